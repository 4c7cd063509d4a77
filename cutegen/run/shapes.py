"""The problems that a kernel is checked and measured on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cutegen.diagnostics import CutegenError, cut, suggest
from cutegen.families.product_space import ProductSpace
from cutegen.run.subject import Subject
from cutegen.runtime.arguments import MAX_EXTENT

Shape = dict[str, int]


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


def product_space(subject: Subject) -> ProductSpace:
    """The problems of a subject that is taken for a product."""
    return ProductSpace(subject.dims, subject.steps, subject.roles, subject.defaults)


def complete_edge(subject: Subject, name: str, extents: Mapping[str, int]) -> Shape:
    """A problem of that space with every dim. CutegenError: a file says nothing about one."""
    return complete(subject, extents, str(subject.path) if name == "defaults" else name)


def bench_shapes(subject: Subject, asked: Iterable[str], listed: Iterable[Mapping[str, int]]) -> list[Shape]:
    """What to measure: `asked` on the command line, else `listed` in the spec, else a default list; each once."""
    shapes = [parse_shape(text, subject) for text in asked]
    shapes = shapes or [complete(subject, shape, f"bench of {subject.name}") for shape in listed]
    roles, proving = subject.roles, subject.proving
    if not shapes and proving:
        shapes = [complete(subject, dims, "default shape") for dims in proving.bench_dims(subject.plan)]
    elif not shapes and roles.m and roles.n and roles.k:
        shapes = [complete(subject, dims, "default shape") for dims in product_space(subject).bench_dims()]
    elif not shapes:
        shapes = [complete(subject, {}, str(subject.path))]
    return [s for i, s in enumerate(shapes) if s not in shapes[:i]]
