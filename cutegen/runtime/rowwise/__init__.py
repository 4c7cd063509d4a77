"""What generated plans of row kernels import."""
