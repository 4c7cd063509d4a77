"""Winners that no call runs: those that a rule or the spec refuses, and those that were measured as something else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bound_winners import TILINGS, WINNERS, bound, winner
from gemm_specs import ALONE, resolve_text

from cutegen.cli import main
from cutegen.diagnostics import CutegenError
from cutegen.resolve import Lock, lock_path, read_lock, resolve_document
from cutegen.resolve.binding import KERNELS
from cutegen.resolve.chain import _describe_unused
from cutegen.resolve.winners import DEFAULT, Winner
from cutegen.spec import load_text


def resolve_bound(winners: Iterable[Winner]) -> Any:
    """What ALONE resolves to with winners that are bound already."""
    lock = resolve_text(ALONE).lock.with_winners(TILINGS, tuple(winners))
    return resolve_document(load_text(ALONE, "product", "product.yaml"), lock).resolved


@pytest.mark.parametrize(
    ("knobs", "reason"),
    [
        ({"tiling.tile": [256, 256, 64]}, "256 accumulator registers a thread"),
        ({"tiling.tile": [64, 12, 64]}, "tile n = 12"),
        ({"tiling.tile": "wide"}, 'tiling.tile: "wide" is not 3 positive integers'),
        ({"tiling.tiles": [64, 64, 64]}, "this spec has no knob `tiling.tiles`"),
        ({"tiling.tile": [64, 64, 64], "tma.b.load_ahead": True}, "pdl.ready does not name `b`"),
    ],
)
def test_a_tiling_that_rules_refuse_is_kept_and_told(knobs: dict[str, object], reason: str) -> None:
    tilings = {**TILINGS, "bad": knobs}
    (bad,) = bound([winner(1, 16, "bad")], tilings)
    lock = resolve_text(ALONE).lock.with_winners(tilings, [bad, *WINNERS[1:]])
    document = load_text(ALONE, "product", "product.yaml")
    resolution = resolve_document(document, lock)
    (note,) = resolution.notes
    assert note.startswith("winners: bad is in the lock, and no call runs it: ")
    assert reason in note
    assert reason in resolution.lock.winners[0].unused
    assert resolution.lock.winners[1:] == WINNERS[1:]
    assert resolution.lock.tilings["bad"] == knobs
    with pytest.raises(CutegenError, match="does not hold"):
        resolve_document(document, lock, locked=True)
    again = resolve_document(document, resolution.lock, locked=True)  # marked, the lock holds; it is still reported
    assert (again.notes, again.lock) == (resolution.notes, resolution.lock)
    assert [t.name for t in again.resolved.tilings] == [t.name for t in resolve_bound(WINNERS[1:]).tilings]
    dropped = resolve_document(document, resolution.lock, drop_winners=True)
    assert dropped.notes[0].startswith("winners: bad is dropped: ")
    assert dropped.lock.winners == WINNERS[1:]
    assert "bad" not in dropped.lock.tilings


def test_what_the_spec_writes_now_wins_over_winners() -> None:
    text = ALONE + "warpgroups: {schedule: cooperative}\n"
    lock = resolve_text(ALONE).lock.with_winners(TILINGS, WINNERS)
    resolution = resolve_document(load_text(text, "product", "product.yaml"), lock)
    reason = 'warpgroups.schedule: the spec now says "cooperative", it has "pingpong"'
    told = [n for n in resolution.notes if n.startswith("winners")]
    assert told == [f"winners: 2 winners (turns) are in the lock, and no call runs them: {reason}"]
    assert {w.tiling: w.unused for w in resolution.lock.winners} == {"flat": "", DEFAULT: "", "turns": reason}
    back = resolve_document(load_text(ALONE, "product", "product.yaml"), resolution.lock)
    assert back.lock.winners == WINNERS  # nobody's figures are lost by an edit that is taken back
    assert "winners: turns: the lock has them as unused, and calls run them again" in back.notes
    with pytest.raises(CutegenError, match="calls run them again"):
        resolve_document(load_text(ALONE, "product", "product.yaml"), resolution.lock, locked=True)


EDITS = {
    "its epilogue": ALONE + "epilogue: {d: relu(acc)}\n",
    "a dtype": ALONE.replace("d: bf16", "d: f16"),
    "a promise": ALONE + "dims: {m: [1, 100000]}\n",
}


@pytest.mark.parametrize("text", EDITS.values(), ids=EDITS)
def test_a_winner_holds_for_what_it_measured(tmp_path: Path, text: str) -> None:
    lock = resolve_text(ALONE).lock.with_winners(TILINGS, WINNERS)
    resolution = resolve_document(load_text(text, "product", "product.yaml"), lock)
    (note,) = [n for n in resolution.notes if n.startswith("winners")]
    assert note.startswith(
        "winners: 6 winners (flat, default, turns) are in the lock, and no call runs them: what was "
    )
    assert [t.name for t in resolution.resolved.tilings] == [t.name for t in resolve_text(text).resolved.tilings]
    assert resolution.resolved.dispatch == resolve_text(text).resolved.dispatch
    assert [replace(w, unused="") for w in resolution.lock.winners] == list(WINNERS)
    assert resolution.lock.tilings == TILINGS
    spec = tmp_path / "product.yaml"
    spec.write_text(text)
    lock_path(spec).write_text(lock.to_text())
    assert main(["lock", "--check", str(spec)]) == 1
    assert main(["lock", str(spec)]) == 0
    assert main(["lock", "--check", str(spec)]) == 0
    assert main(["lock", "--drop-winners", str(spec)]) == 0
    left = read_lock(lock_path(spec))
    assert left
    assert (left.winners, left.tilings) == ((), {})


def test_a_comment_or_a_benchmark_makes_no_winner_stale() -> None:
    text = f"# more\n{ALONE}\nbench: {{shapes: [{{m: 64, n: 64, k: 64}}]}}\n"
    lock = resolve_text(ALONE).lock.with_winners(TILINGS, WINNERS)
    assert resolve_document(load_text(text, "product", "product.yaml"), lock).notes == ()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"measured": ""}, "the lock does not say what was measured"),
        ({"measured": "0" * 16}, "what was measured is another problem or tiling"),
        (
            {"toolchain": f"dsl 4.7.2 cu13, kernels {KERNELS}"},
            "with CuTe DSL 4.7, and the lock was tuned with 4.8 since",
        ),
        ({"toolchain": f"driver 1.0, kernels {KERNELS}"}, "it was measured with CuTe DSL of no known release"),
        ({"toolchain": "dsl 4.8.1 cu13"}, "the kernels that cutegen renders have changed"),
        ({"toolchain": "dsl 4.8.1 cu13, kernels 0"}, "the kernels that cutegen renders have changed"),
        ({"toolchain": f"dsl 4.8.3, kernels {KERNELS}"}, ""),
    ],
)
def test_why_a_winner_is_stale(change: dict[str, str], reason: str) -> None:
    lock = resolve_text(ALONE).lock
    lock = replace(lock.with_winners(TILINGS, [replace(WINNERS[0], **change)]), dsl="4.8")
    resolution = resolve_document(load_text(ALONE, "product", "product.yaml"), lock)
    assert [reason in note for note in resolution.notes] == [True] * bool(reason)
    assert (len(resolution.resolved.dispatch) == 1) == bool(reason)


def test_a_tiling_that_was_edited_in_the_lock_is_another() -> None:
    lock = resolve_text(ALONE).lock.with_winners({**TILINGS, "flat": TILINGS["turns"]}, WINNERS)
    resolution = resolve_document(load_text(ALONE, "product", "product.yaml"), lock)
    assert {w.tiling for w in resolution.lock.winners if w.unused} == {"flat"}


def test_a_reason_is_a_line_whatever_stands_in_it(tmp_path: Path) -> None:
    odd = replace(WINNERS[0], calls={"m\n\x07": (1, 16), "n": 4096, "k": 4096})
    lock = resolve_text(ALONE).lock.with_winners(TILINGS, [odd])
    marked = resolve_document(load_text(ALONE, "product", "product.yaml"), lock).lock
    assert marked.winners[0].unused.startswith("its calls give m??, n, k")
    path = tmp_path / "product.lock.yaml"
    path.write_text(replace(marked, winners=(replace(marked.winners[0], calls=WINNERS[0].calls),)).to_text())
    read = read_lock(path)
    assert read
    assert read.winners[0].unused == marked.winners[0].unused


def test_reasons_end() -> None:
    """Of a lock that has a thousand, each note for another one."""
    lock = Lock("", {}, TILINGS, tuple(replace(winner(1, 16, "flat"), unused=f"reason {i}") for i in range(1000)))
    notes = _describe_unused(lock, dropped=False)
    assert notes[0] == "winners: flat is in the lock, and no call runs it: reason 0"
    assert notes[20:] == ["winners: 980 more are in the lock, and no call runs them, for 980 other reasons"]
