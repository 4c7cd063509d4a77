"""The text of the modules of a GEMM package: templates, given what `text` decides."""

from __future__ import annotations

from cutegen.arch import ARCHS
from cutegen.families.gemm.resolved import ResolvedGemm
from cutegen.families.gemm.text.call import gemm_call_text
from cutegen.families.gemm.text.copy_rows import copy_rows_text
from cutegen.families.gemm.text.kernel import kernel_text
from cutegen.families.gemm.text.plan import plan_text
from cutegen.render.environment import render_template
from cutegen.runtime.by_arch import plan_module


def render(resolved: ResolvedGemm, *others: ResolvedGemm) -> dict[str, str]:
    """The text of the package's modules, by file name. others: the same product for more architectures."""
    plan = plan_text(resolved)
    texts = {
        "__init__.py": render_template("_shared/init.py.jinja", p=plan, c=gemm_call_text(resolved)),
        "__main__.py": render_template("_shared/main.py.jinja", p=plan),
        "plan.py": render_template("gemm/plan.py.jinja", p=plan, shared=True, own=not others),
    }
    for of_arch in (resolved, *others):
        own, copy = f"gemm/{ARCHS[of_arch.arch].folder}", copy_rows_text(of_arch)
        texts |= {"copy_rows.py": render_template(f"{own}/copy_rows.py.jinja", c=copy)} if copy else {}
        for kernel in of_arch.kernels:
            text = kernel_text(of_arch, kernel)
            texts[f"{kernel.module}.py"] = render_template(f"{own}/kernel.py.jinja", k=text)
        if others:
            own_plan = render_template("gemm/plan.py.jinja", p=plan_text(of_arch), shared=False, own=True)
            texts[f"{plan_module(of_arch.arch)}.py"] = own_plan
    return texts
