"""cutegen: YAML specs to readable, proven CuTe DSL kernels."""

__version__ = "0.1.0"
