"""`explain --why-not`: what stands against other values of some knobs, or what they would give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cutegen.diagnostics import CutegenError, suggest
from cutegen.families.gemm.auto import Choice, choose
from cutegen.families.gemm.candidate import KNOBS, Candidate, Knob
from cutegen.families.gemm.cost_model import estimate, memory_clocks
from cutegen.families.gemm.derived import derive
from cutegen.families.gemm.explain import Section, candidate_of, read_shape, show
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.resolve import known_shapes, written_knobs
from cutegen.families.gemm.resolved import ResolvedGemm
from cutegen.hardware import ARCHS, DEVICES, Device

if TYPE_CHECKING:
    from cutegen.families.gemm.spec import GemmSpec

CORE = ("schedule", "consumers", "tile", "cluster")
# Last steps of paths that say too little alone.
AMBIGUOUS = ("count", "registers", "order", "group", "multicast", "swizzle", "wait", "trigger")


def why_not(spec: GemmSpec, resolved: ResolvedGemm, wish: str, shape: Mapping[str, int] | None) -> Section:
    """What the wished knobs give beside the kernel's tile, cluster and schedule; if that is illegal, why, and what they
    give with only the written knobs fixed. CutegenError (exit 2) for an unreadable wish."""
    problem, now = resolved.problem, candidate_of(resolved)
    wished = read_wish(problem, now, wish)
    written, core = written_knobs(spec, problem), {field: getattr(now, field) for field in CORE}
    arch, device, shapes = ARCHS[resolved.arch], DEVICES[resolved.device], known_shapes(spec, problem)
    lines: list[str] = []
    for fixed, said in ((written | core | wished, "legal"), (written | wished, "legal, with other choices beside it")):
        result = choose(problem, fixed, arch, device, shapes)
        if isinstance(result, Choice):
            rows = _changes(problem, now, result.candidate, device, shape)
            lines.append(
                f"{said}; what it would change:" if rows else "nothing stands against it: the kernel is like that"
            )
            return Section(f"Why not {wish}?", tuple(lines), ("", "now", "then") if rows else (), rows)
        refused = [line for r in result for line in (f"refused[{r.rule}]: {r.reason}", f"  = help: {r.remedy}")]
        lines += refused if refused != lines else []
    return Section(f"Why not {wish}?", tuple(lines))


def _changes(
    problem: GemmProblem, now: Candidate, then: Candidate, device: Device, shape: Mapping[str, int] | None
) -> tuple[tuple[str, ...], ...]:
    """Rows (what, now, then) of the knobs and derived numbers that differ."""
    rows = [(".".join(k.path(problem)), show(getattr(now, k.field)), show(getattr(then, k.field))) for k in KNOBS]
    before, after = derive(problem, now), derive(problem, then)
    rows += [
        ("accumulators a thread", str(before.accumulator_registers), str(after.accumulator_registers)),
        ("SMEM bytes", str(before.smem_bytes), str(after.smem_bytes)),
        ("bytes loaded per output element and k", _loaded(now), _loaded(then)),
    ]
    if shape is not None:
        extents = read_shape(problem, shape)
        floor = memory_clocks(problem, extents, device)
        times = [estimate(problem, c, extents, device, floor).clocks * 1e6 / device.clock_hz for c in (now, then)]
        rows.append((f"cost model for {extents}, us", f"{times[0]:.4g}", f"{times[1]:.4g}"))
    return tuple(row for row in rows if row[1] != row[2])


def read_wish(problem: GemmProblem, current: Candidate, wish: str) -> dict[str, Any]:
    """`tile=256x256 stages=3` as values by Candidate field. Knobs go by path, last step or field name."""
    names = _names(problem)
    values: dict[str, Any] = {}
    for part in wish.replace(",", " ").split():
        name, _, text = part.partition("=")
        knob = names.get(name)
        if knob is None or not text:
            hint = suggest(name, names) if text else ""
            remedy = hint or 'write it like "tile=256x256 stages=3"; knobs: ' + ", ".join(sorted(names))
            raise CutegenError(f"`{part}` names no knob and value", remedy, exit_code=2)
        values[knob.field] = _read(knob, text, current)
    if not values:
        raise CutegenError("the wish is empty", 'write it like "tile=256x256"', exit_code=2)
    return values


def _read(knob: Knob, text: str, current: Candidate) -> Any:
    value: object = text
    if text in ("true", "false"):
        value = text == "true"
    elif all(part.isascii() and part.isdigit() and len(part) < 10 for part in text.split("x")):
        numbers = [int(part) for part in text.split("x")]
        if knob.field == "tile" and len(numbers) == 2:
            numbers.append(current.tile[2])
        value = numbers if len(numbers) > 1 else numbers[0]
    try:
        return knob.read(value)
    except ValueError as error:
        raise CutegenError(f"`{text}` is no value of `{knob.field}`: it takes {error}", exit_code=2) from None


def _names(problem: GemmProblem) -> dict[str, Knob]:
    names: dict[str, Knob] = {}
    for knob in KNOBS:
        path = knob.path(problem)
        names |= dict.fromkeys((".".join(path), knob.field), knob)
        if path[-1] not in AMBIGUOUS:
            names[path[-1]] = knob
    return names


def _loaded(c: Candidate) -> str:
    """L2 bytes per output element and step of k, 16-bit operands: what tile and cluster are chosen for."""
    per_tile = c.tile[0] / c.multicast_a + c.tile[1] / c.multicast_b
    return f"{2 * per_tile / (c.tile[0] * c.tile[1]):.4f}"
