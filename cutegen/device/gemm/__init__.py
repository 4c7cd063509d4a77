"""CuTe DSL that kernels of products import."""
