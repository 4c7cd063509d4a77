"""Products that two CTAs compute together."""
