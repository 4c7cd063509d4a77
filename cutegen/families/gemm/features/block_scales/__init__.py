"""Scales that vary along k, which f32 registers apply to the sum of each block."""
