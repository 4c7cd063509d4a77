"""What generated row kernels import."""
