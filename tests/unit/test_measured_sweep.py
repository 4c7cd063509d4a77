"""The spec and lock of the sweep among the measurements: they load, and the docs say of them what they hold."""

from __future__ import annotations

from pathlib import Path

from cutegen.resolve import resolve_file
from cutegen.run.suite import load_suite

ROOT = Path(__file__).parents[2]
MEASURED = ROOT / "docs" / "measurements"
SAID = " ".join((ROOT / "docs" / "lab" / "2026-11-tuned-gemm.md").read_text().split())


def test_the_docs_say_what_won_the_sweep() -> None:
    resolution = resolve_file(MEASURED / "gemm_bf16_sweep_sm90a.yaml", locked=True)
    assert resolution.notes == ()
    winners = resolution.lock.winners
    tuned = {(w.calls["m"][1], w.calls["n"], w.calls["k"]) for w in winners}  # type: ignore[index]
    sweep = load_suite("llm_gemm_sweep", ROOT / "specs")
    of_8b = load_suite("llama3_8b", ROOT / "specs")
    rest = [{tuple(row.shape[d] for d in "mnk") for row in suite.rows()} for suite in (sweep, of_8b)]
    assert tuned == rest[0] - rest[1]
    of = [w.tiling for w in winners]
    assert len(of) == 60
    cluster, ahead, turned, pingpong, dynamic = (
        sum(part in name for name in of) for part in ("ordered_cluster", "load_ahead", "swap_ab", "pingpong", "dynamic")
    )
    assert (
        f"A split that sums in a cluster is the winner of {cluster} of the 60, {ahead} load b ahead, {turned} are "
        f"transposed, {pingpong} pingpong, {dynamic} take tiles dynamically; {len(set(of))} different tilings in all"
    ) in SAID
