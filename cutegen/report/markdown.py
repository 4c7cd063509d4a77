"""Stored results as Markdown: a summary, or a row for every problem, and a line that says where each comes from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from cutegen.diagnostics import CutegenError, suggest
from cutegen.report.result import CandidateResult, ProblemResult, Result
from cutegen.report.table import describe_repeats, rates
from cutegen.run.intervals import Summary, ratio_text, summarise_speeds

NAME = "name"  # in place of a dim: what a suite calls a problem
ALL = "all"
LONGEST = 300  # characters of a command that is shown
_SOFTWARE = {"driver": "driver", "torch": "PyTorch", "nvidia-cutlass-dsl": "CuTe DSL", "cutegen": "cutegen"}


@dataclass(frozen=True, slots=True)
class Source:
    """A result, and where a page finds its file."""

    link: str
    result: Result


@dataclass(frozen=True, slots=True)
class View:
    """What to show. by: dims whose extents group the rows of a summary, or NAME. full: every problem instead. below:
    every problem on which a speed is below this, the slowest first. together: a summary of all kernels as if they were
    one. kernels, against: only these, of kernels and of what they are relative to; empty: all."""

    by: tuple[str, ...] = ()
    full: bool = False
    below: float | None = None
    together: bool = False
    kernels: tuple[str, ...] = ()
    against: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Entry:
    """A kernel on a problem. rival: the library that it is relative to; reference: that one's seconds by round."""

    device: str
    problem: ProblemResult
    kernel: CandidateResult
    rival: str
    reference: Sequence[float]

    @property
    def speed(self) -> float:
        return self.kernel.speeds[self.rival].median


def markdown(sources: Sequence[Source], view: View) -> str:
    """CutegenError (exit 2): nothing is left to show, a name is in none of the results, or two of them have the same
    kernel on the same problem."""
    entries = list(_entries(sources, view))
    if len(behind := {s.result.behind for s in sources}) > 1:
        raise CutegenError(f"these results were timed behind {' and '.join(sorted(behind))}", "show them apart", 2)
    if not entries:
        raise CutegenError("no kernel of these results was measured against another library", exit_code=2)
    if view.below is not None:
        slow = sorted((e for e in entries if e.speed < view.below), key=lambda e: e.speed)
        table = [*_table(*_full(slow))] if slow else [f"No speed is below {view.below:g}."]
    else:
        table = [*_table(*(_full(entries) if view.full else _summary(entries, view)))]
    lines = [*table, "", *(f"- {text}" for text in _describe_sources(sources))]
    return "\n".join(lines) + "\n"


def _entries(sources: Sequence[Source], view: View) -> Iterator[_Entry]:
    kernels = {c.name for s in sources for p in s.result.problems for c in p.kernels()}
    libraries = {library for s in sources for library in s.result.libraries()}
    for asked, known in ((view.kernels, kernels), (view.against, libraries)):
        for name in asked:
            if name not in known:
                hint = suggest(name, known) or f"they have {', '.join(sorted(known)) or 'none'}"
                raise CutegenError(f"these results have no `{name}`", hint, exit_code=2)
    seen: dict[tuple[str, ...], str] = {}
    for source in sources:
        device = source.result.device()
        for problem in source.result.problems:
            samples = {c.name: c.samples for c in problem.candidates}
            for c in problem.kernels():
                for library, speed in c.speeds.items():
                    if (view.kernels and c.name not in view.kernels) or (view.against and library not in view.against):
                        continue
                    key = (device, problem.title, c.name, library)
                    if (where := seen.setdefault(key, source.link)) != source.link:
                        said = f"{c.name} on {problem.title} is in {where} and in {source.link}"
                        raise CutegenError(said, "show one of the two, or keep them apart", exit_code=2)
                    if speed.against not in samples:
                        message = f"{source.link}: {problem.title} has no `{speed.against}`, which {c.name} refers to"
                        raise CutegenError(message, "measure it again", exit_code=2)
                    yield _Entry(device, problem, c, library, samples[speed.against])


def summarise(sources: Sequence[Source], library: str) -> tuple[str, Summary]:
    """The device, and the speeds of all kernels of these results relative to one library. CutegenError (exit 2): they
    are of several devices, or there is nothing to summarise."""
    entries = list(_entries(sources, View(against=(library,))))
    devices = list(dict.fromkeys(e.device for e in entries))
    if len(devices) != 1:
        raise CutegenError(f"these results are of {' and of '.join(devices) or 'no GPU'}", "name those of one", 2)
    return devices[0], _summarise(entries)


def _summarise(entries: Sequence[_Entry]) -> Summary:
    return summarise_speeds([e.reference for e in entries], [e.kernel.samples for e in entries])


def _summary(entries: Sequence[_Entry], view: View) -> tuple[tuple[str, ...], Iterator[tuple[str, ...]]]:
    by, kernels = view.by, len({e.kernel.name for e in entries})
    devices = len({e.device for e in entries}) > 1
    groups: dict[tuple[str, str, str], dict[str, list[_Entry]]] = {}
    for e in entries:
        name = f"{kernels} kernels" if view.together and kernels > 1 else f"`{e.kernel.name}`"
        parts = groups.setdefault((e.device, name, e.rival), {})
        for group in (_group(e.problem, by), ALL) if by else (ALL,):
            parts.setdefault(group, []).append(e)
    first = (*(["GPU"] * devices), "kernel", "relative to", *([", ".join(by)] * bool(by)))
    header = (*first, "problems:", "geomean speed", "least:", "below 1:")

    def rows() -> Iterator[tuple[str, ...]]:
        for (device, kernel, library), parts in groups.items():
            total = parts.pop(ALL)
            for group, members in [*parts.items(), (ALL, total)]:
                s = _summarise(members)
                first = (*([device] * devices), kernel, library, *([group] * bool(by)))
                yield (*first, str(s.problems), ratio_text(s.geomean), f"{s.least:.3f}", str(s.below_one))

    return header, rows()


def _group(problem: ProblemResult, by: Iterable[str]) -> str:
    values = []
    for dim in by:
        if dim != NAME and dim not in problem.shape:
            hint = suggest(dim, problem.shape) or f"its dims are {', '.join(problem.shape)}; `{NAME}` is its name"
            raise CutegenError(f"{problem.title} has no dim `{dim}` to group by", hint, exit_code=2)
        values.append(problem.name if dim == NAME else str(problem.shape[dim]))
    return ", ".join(values)


def _full(entries: Sequence[_Entry]) -> tuple[tuple[str, ...], Iterator[tuple[str, ...]]]:
    """A row for each kernel on each problem, a column for each library."""
    devices, libraries = len({e.device for e in entries}) > 1, list(dict.fromkeys(e.rival for e in entries))
    named = any(e.problem.name for e in entries)
    dims = list(dict.fromkeys(dim for e in entries for dim in e.problem.shape))
    uneven = len({e.problem.rounds for e in entries}) > 1
    rows: dict[tuple[str, str, str], list[_Entry]] = {}
    for e in entries:
        rows.setdefault((e.device, e.problem.title, e.kernel.name), []).append(e)
    header = (*(["GPU"] * devices), *(["problem"] * named), *(f"{dim}:" for dim in dims), "kernel", "us:", "TFLOP/s:",
              "TB/s:", "of floor:", *(["rounds:"] * uneven), *(f"x {name}" for name in libraries))  # fmt: skip

    def cells() -> Iterator[tuple[str, ...]]:
        for (device, _, kernel), own in rows.items():
            problem, c = own[0].problem, own[0].kernel
            speeds = {e.rival: ratio_text(e.kernel.speeds[e.rival]) for e in own}
            first = (*([device] * devices), *([problem.name] * named))
            yield (
                *first, *(str(problem.shape.get(dim, "")) for dim in dims),
                f"`{kernel}`" + (" (WRONG)" if c.right is False else ""), *rates(c),
                *([str(problem.rounds)] * uneven), *(speeds.get(name, "") for name in libraries),
            )  # fmt: skip

    return header, cells()


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """A heading that ends with a colon is over a column of numbers."""
    yield "| " + " | ".join(_escape(h.removesuffix(":")) for h in header) + " |"
    yield "| " + " | ".join("---:" if h.endswith(":") else "---" for h in header) + " |"
    for row in rows:
        yield "| " + " | ".join(map(_escape, row)) + " |"


def _escape(text: str) -> str:
    """Names come from specs and suites: none of them may end a cell, or the section of a page."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _describe_sources(sources: Sequence[Source]) -> Iterator[str]:
    """Where figures are from and how they were taken, in one line for all files of which that is the same; then what
    else there is to say about each."""
    alike: dict[str, list[Source]] = {}
    for source in sources:
        alike.setdefault(_describe_run(source.result), []).append(source)
    for about, group in alike.items():
        links = ", ".join(f"[{s.link.rpartition('/')[2]}]({s.link})" for s in group)
        command = group[0].result.command
        shown = f"Again: `{_escape(command)}`" if len(command) <= LONGEST else "The file has the command"
        yield f"{links}: {about}. {shown if len(group) == 1 else 'Each file has its command'}"
        for source in group:
            yield from _describe_faults(source.result)


def _describe_run(result: Result) -> str:
    environment = result.environment
    software = [f"{said} {environment[key]}" for key, said in _SOFTWARE.items() if environment.get(key)]
    at = f"measured {str(environment['measured_at'])[:10]}" if environment.get("measured_at") else ""
    rounds = f"{result.rounds} rounds of {result.slice_seconds * 1e3:g} ms"
    sms = f"at most {result.sms} SMs" if result.sms else ""
    behind = {"nothing": "", "plain": "behind a plain kernel", "itself": "behind themselves"}[result.behind]
    return "; ".join(map(_escape, filter(None, (result.device(), at, ", ".join(software), rounds, sms, behind))))


def _describe_faults(result: Result) -> Iterator[str]:
    """What was repeated, and what was not measured or is wrong."""
    yield from map(_escape, describe_repeats(result))
    if result.left_out:
        yield f"Not measured: {len(result.left_out)} problems of {len(result.left_out) + len(result.problems)}."
    wrong = Counter(c.name for p in result.problems for c in p.kernels() if c.right is False)
    for name, count in wrong.items():
        yield f"WRONG results of `{_escape(name)}` on {count} problems."
    if not result.complete:
        yield "This run was stopped before it was complete."
    yield from (_escape(note) for note in result.notes)
