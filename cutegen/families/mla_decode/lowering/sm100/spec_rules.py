"""What an sm_100a spec may not ask for yet: each is refused by name, where it stands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cutegen.arch import ARCHS
from cutegen.diagnostics import Diagnostic, Rule, register
from cutegen.families.mla_decode.problem import MlaProblem

if TYPE_CHECKING:
    from cutegen.families.mla_decode.spec import MlaSpec
    from cutegen.spec import KeyPath, SpecDocument

SM100_SPEC = register(
    Rule(
        "mla-sm100-spec",
        "some parts of an MLA decode spec are not supported yet on sm_100a",
        "sm_100a decodes dense caches in bf16 and f16, and in e4m3 with one scale. Scales in rows, sparse keys and "
        "keys that are ready ahead of the wait are of sm_90a so far, and so is the section `warpgroups`, whose knobs "
        "are those of setmaxnreg.",
        "arch: sm_100a\nmask: none\nkeys: {topk: 2048}",
    )
)


def refuse_unsupported(spec: MlaSpec, doc: SpecDocument, problem: MlaProblem) -> Iterator[Diagnostic]:
    """A finding for each part that kernels of the spec's architecture lack."""
    for path, what in _unsupported(spec, problem) if ARCHS[spec.arch].tensor_memory else ():
        said = f"{what} on {spec.arch}"
        remedy = (
            "write it under `for: {sm_90a: ...}`" if doc.archs and path[0] in spec.by_arch else "use `arch: sm_90a`"
        )
        yield doc.diagnostic(SM100_SPEC.id, path, f"{said} is not supported yet", remedy, key=True)


def _unsupported(spec: MlaSpec, problem: MlaProblem) -> Iterator[tuple[KeyPath, str]]:
    if problem.cache is not None and not problem.cache.per_tensor:
        yield ("kv_cache", "latent", "scale"), "a cache with scales in its rows"
    elif problem.cache is not None and problem.cache.latent_offset:
        yield ("kv_cache", "latent", "offset"), "a rotary part before the latent one"
    if problem.sparse:
        yield ("keys",), "a choice of keys by indices"
    if problem.ready:
        yield ("pdl", "ready"), "what is loaded ahead of the wait"
    if "warpgroups" in spec.model_fields_set:
        yield ("warpgroups",), "a choice of registers"
