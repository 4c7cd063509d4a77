"""What generated plans of products import."""
