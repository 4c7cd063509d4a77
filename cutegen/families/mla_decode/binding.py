"""From a spec of MLA decode to its problem."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from cutegen.diagnostics import Diagnostic, SpecError
from cutegen.dtypes import DTYPES
from cutegen.families.mla_decode.lowering.sm100.spec_rules import refuse_unsupported
from cutegen.families.mla_decode.problem import KEYS, PIECE_KEYS, MlaProblem
from cutegen.families.mla_decode.problem_rules import CACHE_PARTS, CHECKS, FIXED_CUT
from cutegen.runtime.mla_decode.cache_format import SCALE_BYTES, CacheFormat, ExtraKeys, ScaleDtype

if TYPE_CHECKING:
    from cutegen.families.mla_decode.spec import MlaSpec, SplitKv
    from cutegen.spec import SpecDocument


def bind(spec: MlaSpec, doc: SpecDocument) -> MlaProblem:
    """The problem of a spec; SpecError with every finding about its extents."""
    promises = spec.shape_dims()
    heads, query_len, topk = promises["heads"], promises["query_len"], promises.get("topk")
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
        cache=_cache_format(spec),
        topk=topk,
        sink=spec.sink,
        extra=ExtraKeys(_ends(extra.topk), extra.page_size) if (extra := spec.keys and spec.keys.extra) else None,
        piece=_split(spec).keys or PIECE_KEYS if spec.invariance == "batch" else 0,
        ready=tuple(sorted(spec.pdl.ready, key=KEYS.index)),
    )
    if _split(spec).keys and not problem.piece:
        reason = "only requests that are cut by their own lengths have parts of so many keys"
        remedy = "write `invariance: batch`, or leave `keys` out"
        raise SpecError([doc.diagnostic(FIXED_CUT.id, ("split_kv", "keys"), reason, remedy)])
    if found := [*_part_findings(spec, doc)] or [
        *_findings(problem, doc),
        *refuse_unsupported(spec, doc, problem),
    ]:
        raise SpecError(found)
    return problem


def _ends(extent: int | tuple[int, int]) -> tuple[int, int]:
    return (extent, extent) if isinstance(extent, int) else extent


def _split(spec: MlaSpec) -> SplitKv:
    assert not isinstance(spec.split_kv, (str, int))  # a number stands for a section of it
    return spec.split_kv


def _cache_format(spec: MlaSpec) -> CacheFormat | None:
    """Parts whose place is not written follow one another."""
    cache = spec.kv_cache
    latent, rope = cache.latent, cache.rope
    if latent is None or (rope is None and spec.rope_dim):
        return None
    end, block, scale_at = latent.offset + spec.latent_dim, 0, 0
    dtype: ScaleDtype = "f32"
    plane = False
    if latent.scale is not None:
        block, dtype, plane = latent.scale.block, latent.scale.dtype, latent.scale.place == "plane"
        if not plane:
            scale_at = end if latent.scale.offset is None else latent.scale.offset
            end = scale_at + spec.latent_dim // block * SCALE_BYTES[dtype]
    rope_at = end if rope is None or rope.offset is None else rope.offset
    derived = CacheFormat(
        latent.offset, scale_at, block, rope_at, 0, spec.latent_dim, spec.rope_dim, scale_dtype=dtype, plane=plane
    )
    end = max(begin + size for begin, size in derived.parts.values())
    return replace(derived, row_bytes=cache.row_bytes or end)


def _part_findings(spec: MlaSpec, doc: SpecDocument) -> Iterator[Diagnostic]:
    """A quantised row has all of its parts, of dtypes that go together."""
    cache = spec.kv_cache
    named = {"latent": cache.latent, "rope": cache.rope}
    if cache.latent and not spec.rope_dim:
        if cache.rope:
            reason = "rope_dim is 0: a row has no rotary part"
            yield doc.diagnostic(CACHE_PARTS.id, ("kv_cache", "rope"), reason, "drop `rope`, or write rope_dim 64")
        elif cache.latent.scale is None:
            reason = "a row without a rotary part has scales"
            yield doc.diagnostic(CACHE_PARTS.id, ("kv_cache", "latent"), reason, "name `scale`, or write rope_dim 64")
        del named["rope"]
    scale = cache.latent.scale if cache.latent else None
    if scale and scale.place == "plane" and scale.offset is not None:
        reason = "scales in a plane lie behind the rows of a page, in no row"
        yield doc.diagnostic(CACHE_PARTS.id, ("kv_cache", "latent", "scale", "offset"), reason, "leave `offset` out")
    if scale and scale.dtype == "e8m0" and scale.place == "row":
        reason = "scales of one byte fill no 16 bytes of a row"
        remedy = "write `place: plane`, or use f32"
        yield doc.diagnostic(CACHE_PARTS.id, ("kv_cache", "latent", "scale", "dtype"), reason, remedy)
    if cache.latent and cache.rope and spec.rope_dim:
        if cache.latent.scale is None and cache.rope.dtype != "e4m3":
            reason = "without scales in the row, one scale is that of the latent and of the rotary part"
            yield doc.diagnostic(CACHE_PARTS.id, ("kv_cache", "rope", "dtype"), reason, "use e4m3, or name `scale`")
        elif cache.latent.scale is not None and cache.rope.dtype != "bf16":
            reason = "scales in the row are those of the latent part; the rotary part has none"
            yield doc.diagnostic(CACHE_PARTS.id, ("kv_cache", "rope", "dtype"), reason, "use bf16, or name no `scale`")
    missing = [name for name, part in named.items() if part is None]
    if missing and (cache.row_bytes or len(missing) < len(named)):
        said = "row_bytes" if len(missing) == len(named) else next(n for n in named if n not in missing)
        reason = f"a quantised row has `latent` and `rope`; there is no {' and no '.join(missing)}"
        yield doc.diagnostic(CACHE_PARTS.id, ("kv_cache", said), reason, "write both, or neither and no row_bytes")


def _findings(problem: MlaProblem, doc: SpecDocument) -> Iterator[Diagnostic]:
    for rule, path, check in CHECKS:
        if found := check(problem):
            yield doc.diagnostic(rule.id, path, *found)
