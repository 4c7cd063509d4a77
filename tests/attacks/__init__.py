"""Attacks on cutegen, each of any length: a few cases as tests, many from the command line."""
