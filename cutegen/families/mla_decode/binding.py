"""From a spec of MLA decode to its problem."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cutegen.diagnostics import Diagnostic, SpecError
from cutegen.dtypes import DTYPES
from cutegen.families.mla_decode.problem import KEYS, MlaProblem
from cutegen.families.mla_decode.problem_rules import CHECKS

if TYPE_CHECKING:
    from cutegen.families.mla_decode.spec import MlaSpec
    from cutegen.spec import SpecDocument


def bind(spec: MlaSpec, doc: SpecDocument) -> MlaProblem:
    """The problem of a spec; SpecError with every finding about its extents."""
    promises = spec.shape_dims()
    heads, query_len = promises["heads"], promises["query_len"]
    assert heads
    assert query_len
    problem = MlaProblem(
        dtype=DTYPES[spec.dtype],
        heads=heads,
        query_len=query_len,
        latent_dim=spec.latent_dim,
        rope_dim=spec.rope_dim,
        q=spec.q,
        mask=spec.mask,
        page_size=spec.kv_cache.page_size,
        lse_base="2" if spec.lse.base == 2 else "e",
        lse_layout=spec.lse.layout,
        ready=tuple(sorted(spec.pdl.ready, key=KEYS.index)),
    )
    if found := list(_findings(problem, doc)):
        raise SpecError(found)
    return problem


def _findings(problem: MlaProblem, doc: SpecDocument) -> Iterator[Diagnostic]:
    for rule, path, check in CHECKS:
        if found := check(problem):
            yield doc.diagnostic(rule.id, path, *found)
