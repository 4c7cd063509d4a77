"""Rendering: resolved kernels to text, and text to files."""

from cutegen.render.environment import render_template
from cutegen.render.package import RenderedPackage, render_package
from cutegen.render.standalone import make_standalone, share_parts
from cutegen.render.write import Drift, compare_package, refuse_left_out, write_package

__all__ = [
    "Drift",
    "RenderedPackage",
    "compare_package",
    "make_standalone",
    "refuse_left_out",
    "render_package",
    "render_template",
    "share_parts",
    "write_package",
]
