"""cutegen: YAML specs to readable, proven CuTe DSL kernels.

`load` and `Spec` make kernels from Python; the exceptions carry the findings that the command line prints. All of it is
imported when it is first used: docs/python.md.
"""

from __future__ import annotations

TYPE_CHECKING = False  # that of `typing`, which takes longer to import than Python to start; see cutegen.interrupts
if TYPE_CHECKING:
    from cutegen.api import Spec, load
    from cutegen.diagnostics import CutegenError, Diagnostic, Location, SpecError
    from cutegen.runtime.autograd import NotDifferentiable

__version__ = "0.1.0"
__all__ = [
    "CutegenError", "Diagnostic", "Location", "NotDifferentiable", "Spec", "SpecError", "__version__", "load",
]  # fmt: skip
_HOMES = {
    **dict.fromkeys(("Spec", "load"), "cutegen.api"),
    **dict.fromkeys(("CutegenError", "Diagnostic", "Location", "SpecError"), "cutegen.diagnostics"),
    "NotDifferentiable": "cutegen.runtime.autograd",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
