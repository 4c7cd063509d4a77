"""The modules that every package has, next to those of its kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from cutegen.families.call_text import CallText
from cutegen.render.environment import render_template
from cutegen.runtime.by_arch import plan_module

R = TypeVar("R", bound=Any)  # a resolved kernel


def package_modules(
    resolved: R,
    *others: R,
    call: CallText,
    template: str,
    plan: Callable[[R], object],
    kernels: Callable[[R], Mapping[str, str]],
) -> dict[str, str]:
    """The text of a package's modules, by file name. others: the same problem for more architectures, of which each
    has a module with its tilings then. template: of the plan; plan: what that reads as p. kernels: texts by file name.
    """
    first = plan(resolved)
    texts = {
        "__init__.py": render_template("_shared/init.py.jinja", p=first, c=call),
        "__main__.py": render_template("_shared/main.py.jinja", p=first),
        "plan.py": render_template(template, p=first, shared=True, own=not others),
    }
    for of_arch in (resolved, *others):
        texts |= kernels(of_arch)
        if others:
            texts[f"{plan_module(of_arch.arch)}.py"] = render_template(
                template, p=plan(of_arch), shared=False, own=True
            )
    return texts
