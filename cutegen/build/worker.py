"""A compile process: takes jobs from a connection, answers each with an outcome. It never runs a kernel."""

from __future__ import annotations

import contextlib
import importlib
import sys
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path

from cutegen.build.facts import BATCH, Facts, disassemble, entry_facts, list_facts
from cutegen.build.messages import describe
from cutegen.diagnostics import CutegenError
from cutegen.runtime.cache import Entry, KernelCache, default_root
from cutegen.runtime.compile import CUBIN, compile_kernel, find_compiled


@dataclass(frozen=True, slots=True)
class Job:
    """One kernel instance. root: folder that `module` is imported from. keep: folder for its artefacts, if wanted.

    read: its facts are read right away; else whoever gets the outcomes reads those of many at once."""

    key: str
    root: str
    module: str
    tiling: object
    arch: str
    keep: str | None
    read: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """facts: None when it failed, and then error says why and log what was printed. seconds: of the compiler. killed:
    from outside; starved: for want of disk or memory. Both say nothing of the kernel.

    warnings: what the cache complained about. unread: it is in the cache, and its facts are still to be read there.
    """

    facts: Facts | None = None
    cached: bool = False
    seconds: float = 0.0
    error: str = ""
    log: str = ""
    warnings: tuple[str, ...] = ()
    killed: bool = False
    starved: bool = False
    unread: bool = False

    @property
    def unknown(self) -> bool:
        """Whether it says nothing of the kernel."""
        return self.killed or self.starved


class DiskFullError(CutegenError):
    """Nothing that the compiler makes can be kept, not even for a moment."""


def main(handle: int) -> None:
    """Serves jobs on an inherited socket until the other end closes it; None in place of a job: the compiler is
    imported, and nothing answered."""
    # Compiling needs no tensors, and importing torch (TVM FFI does where it can) takes longer than a compile.
    sys.modules["torch"] = None  # type: ignore[assignment]
    connection = Connection(handle)
    while True:
        try:
            job = connection.recv()
        except EOFError:
            return
        if job is not None:
            connection.send(run_job(job))
            continue
        with contextlib.suppress(Exception):  # the first job tells what is missing
            importlib.import_module("cutlass.cute")


def run_job(job: Job) -> Outcome:
    if job.root not in sys.path:
        sys.path.insert(0, job.root)
    cache = KernelCache(default_root())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RuntimeWarning)
        try:
            with compile_kernel(cache, job.key, job.module, job.tiling, job.arch) as compiled:
                if compiled.entry is None:
                    raise DiskFullError("nothing can be written: the disk is full", "free some space", exit_code=2)
                # Who gets the outcomes reads the facts of many at once.
                unread = not job.read and compiled.entry.kept
                facts = None if unread else entry_facts(cache, compiled.entry)
                if job.keep:
                    keep_artefacts(compiled.entry, Path(job.keep))
                outcome = Outcome(facts, compiled.cached, compiled.seconds, unread=unread)
        except Exception as error:
            outcome = Outcome(error=describe(error), starved=isinstance(error, DiskFullError | OSError | MemoryError))
    return replace(outcome, warnings=cache_warnings(caught))


def read_outcomes(cache: KernelCache, unread: Sequence[tuple[str, Outcome]]) -> list[Outcome]:
    """Outcomes of jobs, each behind its job's key, whose entries are unread: with the facts of those."""
    batches = [unread[first : first + BATCH] for first in range(0, len(unread), BATCH)]  # entries hold a MB each
    return [outcome for batch in batches for outcome in _read_batch(cache, batch)]


def _read_batch(cache: KernelCache, unread: Sequence[tuple[str, Outcome]]) -> list[Outcome]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RuntimeWarning)
        entries = {key: entry for key, _ in unread if (entry := find_compiled(cache, key))}
        facts = dict(zip(entries, list_facts(cache, list(entries.values()))))
        read: list[Outcome] = []
        for key, outcome in unread:
            try:
                if key not in entries:
                    raise CutegenError("the kernel was taken out of the cache before it was read", "build it again")
                found = facts[key] or entry_facts(cache, entries[key])
                read.append(replace(outcome, facts=found, unread=False))
            except Exception as error:
                read.append(Outcome(error=describe(error), starved=isinstance(error, OSError | MemoryError)))
    texts = cache_warnings(caught)
    return [replace(outcome, warnings=(*outcome.warnings, *texts)) for outcome in read]


def cache_warnings(caught: Iterable[warnings.WarningMessage]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(w.message) for w in caught if w.category.__name__ == "CacheWarning"))


def keep_artefacts(entry: Entry, folder: Path) -> None:
    """Copies what the compiler wrote, and the SASS, to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in entry.files.items():
        (folder / name).write_bytes(data)
    (folder / "kernel.sass").write_text(disassemble(entry.files[CUBIN]))
