"""Rendering: resolved kernels to text, and text to files."""

from cutegen.render.environment import render_template
from cutegen.render.package import RenderedPackage, render_package
from cutegen.render.standalone import make_standalone
from cutegen.render.write import Drift, compare_package, write_package

__all__ = [
    "Drift",
    "RenderedPackage",
    "compare_package",
    "make_standalone",
    "render_package",
    "render_template",
    "write_package",
]
