"""Hand-written CuTe DSL that generated kernels import. Nothing here knows a spec; everything traces under DSL 4.6 to 4.8."""
