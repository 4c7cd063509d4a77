"""Rows that fall into groups, each with a matrix of its own: grouped products."""
