"""Operands that are ready early, loaded before the wait for the preceding kernel."""
