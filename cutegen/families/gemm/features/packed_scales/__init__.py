"""Scales of 8 bits that vary along k, by which the tensor core multiplies: MXFP8, MXFP4 and NVFP4."""
