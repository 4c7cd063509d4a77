"""Outputs that are one value of a whole row, column or matrix, which tiles reduce and then join."""
