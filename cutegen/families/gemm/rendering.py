"""The text of the modules of a GEMM package: templates, given what `text` decides."""

from __future__ import annotations

from cutegen.arch import ARCHS
from cutegen.families.gemm.resolved import ResolvedGemm
from cutegen.families.gemm.text.call import gemm_call_text
from cutegen.families.gemm.text.copy_rows import copy_rows_text
from cutegen.families.gemm.text.kernel import kernel_text
from cutegen.families.gemm.text.plan import plan_text
from cutegen.render.environment import render_template


def render(resolved: ResolvedGemm) -> dict[str, str]:
    """The text of the package's modules, by file name."""
    plan, copy = plan_text(resolved), copy_rows_text(resolved)
    own = f"gemm/{ARCHS[resolved.arch].folder}"
    return {
        "__init__.py": render_template("_shared/init.py.jinja", p=plan, c=gemm_call_text(resolved)),
        "__main__.py": render_template("_shared/main.py.jinja", p=plan),
        **({"copy_rows.py": render_template(f"{own}/copy_rows.py.jinja", c=copy)} if copy else {}),
        **{
            f"{kernel.module}.py": render_template(f"{own}/kernel.py.jinja", k=kernel_text(resolved, kernel))
            for kernel in resolved.kernels
        },
        "plan.py": render_template("gemm/plan.py.jinja", p=plan),
    }
