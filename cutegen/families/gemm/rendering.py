"""The text of the modules of a GEMM package: templates, given what `text` decides."""

from __future__ import annotations

from cutegen.arch import ARCHS
from cutegen.families.gemm.resolved import ResolvedGemm
from cutegen.families.gemm.text.call import gemm_call_text
from cutegen.families.gemm.text.copy_rows import copy_rows_text
from cutegen.families.gemm.text.kernel import kernel_text
from cutegen.families.gemm.text.plan import plan_text
from cutegen.families.package_text import package_modules
from cutegen.render.environment import render_template


def render(resolved: ResolvedGemm, *others: ResolvedGemm) -> dict[str, str]:
    """The text of the package's modules, by file name. others: the same product for more architectures."""
    return package_modules(
        resolved,
        *others,
        call=gemm_call_text(resolved),
        template="gemm/plan.py.jinja",
        plan=plan_text,
        kernels=_kernels,
    )


def _kernels(resolved: ResolvedGemm) -> dict[str, str]:
    folder, copy = f"gemm/{ARCHS[resolved.arch].folder}", copy_rows_text(resolved)
    texts = {"copy_rows.py": render_template(f"{folder}/copy_rows.py.jinja", c=copy)} if copy else {}
    for kernel in resolved.kernels:
        text = kernel_text(resolved, kernel)
        texts[f"{kernel.module}.py"] = render_template(f"{folder}/kernel.py.jinja", k=text)
    return texts
