"""What the templates of the GEMM read: every name, number and expression is decided here, one idea a module."""
