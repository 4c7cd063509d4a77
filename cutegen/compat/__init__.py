"""Modules with the interfaces of other libraries, over kernels that cutegen renders."""
