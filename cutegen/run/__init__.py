"""Running kernels: `check` proves them, `bench` measures them; both take generated packages and plain Python files."""
