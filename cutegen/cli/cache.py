"""`cutegen cache`: what the cache holds, and taking things out of it."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path

import click

from cutegen.cache_words import OFF, show_size
from cutegen.cli import console
from cutegen.cli.durations import read_duration
from cutegen.cli.options import refuse_idle
from cutegen.diagnostics import CutegenError
from cutegen.runtime.cache import LOCKS, default_root
from cutegen.runtime.cache_limit import ENTRY_NAMES, LIMIT, STAGE, Held, find_limit, list_held, read_size, take_out
from cutegen.runtime.trust import UntrustedError

# Kinds that can be made again, each a folder of entries; measurements take a GPU and time, and stay unless asked for.
MADE = {"kernels": "compiled kernels", "packages": "rendered packages", "templates": "compiled templates"}
TIMINGS = "timings"
OTHER = "other"  # locks, and what is unfinished
_OTHER_NAME = re.compile(f"{LOCKS}|{STAGE}")


@click.group(invoke_without_command=True)
@console.json_option
@click.pass_context
def cache(context: click.Context, as_json: bool) -> None:
    """Show what the cache holds, by kind, and its limit.

    CUTEGEN_CACHE_DIR is its folder. CUTEGEN_CACHE_LIMIT, such as 5GB, is what compiled kernels may take: when one is
    added, those that were used least recently are taken out.
    """
    if context.invoked_subcommand:
        return
    root, limit = default_root(), _limit()
    held = _list_kinds(root) if root else {}
    if as_json:
        kinds = {kind: {"entries": len(found), "bytes": _total(found)} for kind, found in held.items()}
        console.print_json({"folder": str(root) if root else None, "limit": limit, "kinds": kinds})
        return
    if root is None:
        console.say(OFF)
        return
    console.say(f"{root}\n")
    rows = [(_title(kind), len(found), show_size(_total(found)), _last(found)) for kind, found in held.items()]
    console.say(console.table(("holds", "entries", "size", "last used"), rows))
    console.say(f"\nlimit of kernels: {f'none; {LIMIT} sets one' if limit is None else show_size(limit)}")


@cache.command(short_help="Delete what can be made again: by age, by size, or all.")
@click.option("--older-than", "age", metavar="TIME", callback=lambda ctx, parameter, value: (
                  None if value is None else read_duration("--older-than", value, "12h, 30d or 2w")),
              help="What was not used for this long, such as 12h, 30d or 2w.")  # fmt: skip
@click.option("--max-size", metavar="SIZE", callback=lambda ctx, parameter, value: _read_size(value),
              help="The least recently used, until the rest takes no more than this: 500MB, 5GB.")  # fmt: skip
@click.option("--all", "everything", is_flag=True, help="All that can be made again.")
@click.option("--timings", is_flag=True, help="Measurements of `tune`, too: they take a GPU to be made again.")
@click.option("--dry-run", is_flag=True, help="Delete nothing; say what would be.")
@console.json_option
def prune(
    age: float | None, max_size: int | None, everything: bool, timings: bool, dry_run: bool, as_json: bool
) -> int:
    """Delete kernels, packages and templates from the cache; what is needed again is made again.

    Kernels and templates may be deleted while others use them. A server whose package (of cutegen.load, of gradients or
    of FlashMLA's interface) is gone has to be started again; a pickled plan is read after its spec is loaded again.
    """
    if age is None and max_size is None and not (everything or timings):
        remedy = "--older-than 30d, --max-size 5GB, --all, or --timings"
        raise CutegenError("nothing says what to delete", remedy, exit_code=2)
    if everything:
        refuse_idle("with --all", "age", "max_size")
    root = default_root()
    held = _list_kinds(root) if root else {}
    made = sorted((entry for kind in MADE for entry in held.get(kind, ())), key=lambda entry: entry.used)
    chosen = _choose(made, age, max_size, everything) + (list(held.get(TIMINGS, ())) if timings else [])
    gone = chosen if dry_run or root is None else take_out(chosen, root)
    left = [entry for entry in chosen if entry not in gone]
    if as_json:
        said = {"deleted": [str(entry.path) for entry in gone], "failed": [str(entry.path) for entry in left]}
        console.print_json({"ok": not left, "bytes": _total(gone), "dry_run": dry_run, **said})
    else:
        verb = "would be deleted" if dry_run else "deleted"
        console.say(f"{len(gone)} {'entry' if len(gone) == 1 else 'entries'}, {show_size(_total(gone))} {verb}")
        for entry in left:
            console.note(f"error: {entry.path} cannot be deleted")
            console.note("  = help: change the permissions of the cache, or ask whom it belongs to")
    return int(bool(left))


def _choose(made: Sequence[Held], age: float | None, max_size: int | None, everything: bool) -> list[Held]:
    """Of what can be made again, least recently used first, what to delete."""
    if everything:
        return list(made)
    before = time.time() - age if age is not None else float("-inf")
    chosen = [entry for entry in made if entry.used < before]
    kept = [entry for entry in made if entry.used >= before]
    while max_size is not None and kept and _total(kept) > max_size:
        chosen.append(kept.pop(0))
    return chosen


def _list_kinds(root: Path) -> dict[str, list[Held]]:
    """Entries of the cache by kind, least recently used first. CutegenError (exit 2): a folder is not the user's alone,
    or a link."""
    place = root
    try:
        kinds = {TIMINGS: list_held(root, form=ENTRY_NAMES[TIMINGS]), OTHER: list_held(root, form=_OTHER_NAME)}
        for kind in MADE:
            place = root / kind
            kinds[kind] = list_held(root, kind, form=ENTRY_NAMES[kind])
    except OSError as error:
        where = error.filename if isinstance(error, UntrustedError) else place
        remedy = "a cache is a folder that only you and root may write, without links; CUTEGEN_CACHE_DIR names it"
        raise CutegenError(f"{where}: {error.strerror}", remedy, exit_code=2) from None
    return {kind: kinds[kind] for kind in (*MADE, TIMINGS, OTHER)}


def _title(kind: str) -> str:
    return MADE.get(kind) or {TIMINGS: "measurements of tune", OTHER: "locks, unfinished work"}[kind]


def _total(entries: Sequence[Held]) -> int:
    return sum(entry.size for entry in entries)


def _last(entries: Sequence[Held]) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(max(e.used for e in entries))) if entries else "-"


def _limit() -> int | None:
    try:
        return find_limit()
    except ValueError as error:
        raise CutegenError(f"{LIMIT}: {error}", "set it to a size, or to nothing", exit_code=2) from None


def _read_size(text: str | None) -> int | None:
    try:
        return None if text is None else read_size(text)
    except ValueError as error:
        raise CutegenError(f"--max-size: {error}", exit_code=2) from None
