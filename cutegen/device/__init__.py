"""Hand-written CuTe DSL that generated kernels import; it knows no spec and traces under DSL 4.6 to 4.8."""
