"""The problems that a kernel is checked and measured on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cutegen.arch import MOST_SMS
from cutegen.diagnostics import CutegenError, cut, suggest
from cutegen.families.proving import WAVES
from cutegen.run.subject import Subject
from cutegen.runtime.arguments import legal_extent
from cutegen.spec.dims import MAX_EXTENT

Shape = dict[str, int]

# Ring buffers hold at most this many k tiles: 227 KiB of SMEM over the smallest stage.
DEEPEST_RING = 12

# Measured when neither the command line nor the spec names shapes: squares, and two layers of language models.
BENCH_SHAPES = (
    (4096, 4096, 4096),
    (8192, 8192, 8192),
    (16384, 4096, 14336),
    (4096, 28672, 8192),
)
BENCH_BATCH = 8


def shape_text(shape: Mapping[str, int]) -> str:
    """ "m=4096 n=4096 k=64"."""
    return " ".join(f"{dim}={extent}" for dim, extent in shape.items())


def problem_title(name: str, shape: Mapping[str, int]) -> str:
    """What a problem is called: its extents, behind its name where it has one."""
    return f"{name}: {shape_text(shape)}" if name else shape_text(shape)


def read_shape(text: str) -> Shape:
    """ "m=4096,n=4096,k=64" as extents by dim. CutegenError (exit 2): it is no list of those, or names a dim twice."""
    shape: Shape = {}
    for part in text.split(","):
        dim, _, extent = (p.strip() for p in part.partition("="))
        digits = extent.lstrip("0") if dim and extent.isascii() and extent.isdigit() else ""
        if len(digits) > len(str(MAX_EXTENT)) or int(digits or "0") > MAX_EXTENT:
            remedy = f"an extent is at most 2^31 - 1 = {MAX_EXTENT}"
            raise CutegenError(f"--shape {cut(text)}: `{cut(part.strip())}` is too large", remedy, exit_code=2)
        if not digits:
            raise CutegenError(
                f"--shape {cut(text)}: `{cut(part.strip())}` is not a dim and extent",
                "write dims and extents from 1 on, such as m=4096,n=4096,k=4096 or batch=8,heads=16,kv_len=4096",
                exit_code=2,
            )
        if dim in shape:
            raise CutegenError(f"--shape {cut(text)}: `{cut(dim)}` is given twice", "keep one of them", exit_code=2)
        shape[dim] = int(digits)
    return shape


def parse_shape(text: str, subject: Subject) -> Shape:
    """`read_shape`, with the subject's constants filled in. CutegenError (exit 2): no problem of this subject."""
    return complete(subject, read_shape(text), f"--shape {text}")


def complete(subject: Subject, given: Mapping[str, int], origin: str) -> Shape:
    """Every dim of the subject: given, constant or a file's default. CutegenError: missing, unknown or illegal ones."""
    if unknown := sorted(set(given) - set(subject.dims)):
        raise CutegenError(
            f"{origin}: {subject.name} has no dim {', '.join(unknown)}",
            suggest(unknown[0], subject.dims) or f"its dims are {', '.join(subject.dims)}",
            exit_code=2,
        )
    constants = _constants(subject)
    shape = _known_extents(subject, given)
    if missing := missing_dims(subject, given):
        raise CutegenError(f"{origin}: {', '.join(missing)} missing", f"add {missing[0]}=...", exit_code=2)
    for dim, extent in shape.items():
        if constants.get(dim, extent) != extent:
            raise CutegenError(f"{origin}: {subject.name} is specialised for {dim}={constants[dim]}", exit_code=2)
        if subject.plan and extent % subject.steps[dim]:
            raise CutegenError(f"{origin}: {dim} must be a multiple of {subject.steps[dim]}", exit_code=2)
        allowed = subject.dims[dim]
        if not isinstance(allowed, int) and not allowed[0] <= extent <= (allowed[1] or extent):
            promise = f"from {allowed[0]}" + (f" to {allowed[1]}" if allowed[1] else "")
            raise CutegenError(f"{origin}: {dim} is {promise} in {subject.name}, not {extent}", exit_code=2)
    return {d: shape[d] for d in subject.dims}


def missing_dims(subject: Subject, given: Mapping[str, int]) -> list[str]:
    """Dims of the subject that have no extent: not given, nor constant, nor a file's default."""
    known = _known_extents(subject, given)
    return [d for d in subject.dims if d not in known]


def _known_extents(subject: Subject, given: Mapping[str, int]) -> Shape:
    return {**subject.defaults, **_constants(subject), **given}


def _constants(subject: Subject) -> Shape:
    return {d: extent for d, extent in subject.dims.items() if isinstance(extent, int)}


def edge_shapes(subject: Subject, tiling: Any) -> Iterator[tuple[str, Shape]]:
    """(name, shape) of the problems where kernels of this tiling go wrong, without repetitions.

    Extents follow from the CTA tile and from the step that alignment leaves; constants and promised ranges hold.
    """
    roles, steps = subject.roles, subject.steps
    if not (roles.m and roles.n and roles.k):
        yield "defaults", complete(subject, {}, str(subject.path))
        return
    tm, tn, tk = tiling.tile
    n_step, k_step = steps[roles.n], steps[roles.k]
    ring = getattr(tiling, "stages", DEEPEST_RING) * tk
    side = math.ceil(math.sqrt(WAVES * MOST_SMS))
    wanted = {
        "one row": (1, tn, tk),
        "below a tile": (tm // 2 - 3, tn // 2 - n_step, k_step),
        "one tile": (tm, tn, tk),
        "ragged m": (tm + 1, tn, 2 * tk),
        "ragged n": (tm, tn + n_step, 2 * tk),
        "ragged k": (tm, tn, 2 * tk + k_step),
        "ragged": (2 * tm + tm // 2 + 1, tn + tn // 2 + n_step, 5 * tk + k_step),
        "around the ring": (2 * tm, 2 * tn, 2 * ring + tk),
        "several waves": (side * tm - 1, side * tn - n_step, 3 * tk),
    }
    seen: set[tuple[int, ...]] = set()
    for name, (m, n, k) in wanted.items():
        shape = dict(subject.defaults)
        batch = 1 if name == "one tile" else 3
        wanted_of = {roles.gathered: m // 2 + 3, roles.m: m, roles.n: n, roles.k: k, roles.batch: batch}
        shape.update(legal_shape(subject, wanted_of))
        if (key := tuple(shape.values())) not in seen:
            seen.add(key)
            yield name, complete(subject, shape, name)


def legal_shape(subject: Subject, wanted: Mapping[str, int]) -> Shape:
    """The extents that are nearest to what is wanted, for those dims that the subject has: constants, and others up to
    the next multiple of what they are varied in."""
    return {d: legal_extent(subject.dims[d], subject.steps[d], n) for d, n in wanted.items() if d in subject.dims}


def bench_shapes(subject: Subject, asked: Iterable[str], listed: Iterable[Mapping[str, int]]) -> list[Shape]:
    """What to measure: `asked` on the command line, else `listed` in the spec, else a default list; each once."""
    shapes = [parse_shape(text, subject) for text in asked]
    shapes = shapes or [complete(subject, shape, f"bench of {subject.name}") for shape in listed]
    roles = subject.roles
    if not shapes and not subject.proving and not (roles.m and roles.n and roles.k):
        shapes = [complete(subject, {}, str(subject.path))]
    if not shapes and subject.proving:
        shapes = [complete(subject, dims, "default shape") for dims in subject.proving.bench_dims(subject.plan)]
    for m, n, k in () if shapes else BENCH_SHAPES:
        batch = BENCH_BATCH if roles.batch else 1
        wanted = {roles.gathered: m // batch, roles.m: m // batch, roles.n: n, roles.k: k, roles.batch: batch}
        shapes.append(complete(subject, {**subject.defaults, **legal_shape(subject, wanted)}, "default shape"))
    return [s for i, s in enumerate(shapes) if s not in shapes[:i]]
