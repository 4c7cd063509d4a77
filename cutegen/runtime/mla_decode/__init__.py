"""What generated plans of MLA decode import."""
