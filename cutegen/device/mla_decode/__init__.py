"""CuTe DSL that kernels of MLA decode import."""
