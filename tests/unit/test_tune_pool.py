"""Candidates of a problem, and the package that holds their kernels."""

from __future__ import annotations

from dataclasses import replace

from gemm_specs import FUSED, N_MAJOR_B, PLAIN, random_specs, resolve_text

from cutegen.families.tuned import TunedRow
from cutegen.resolve import Resolution, resolve_tuned, tuning_space
from cutegen.run.shapes import Shape
from cutegen.tune.pool import Pool, compose, gather

PROBLEM = {"m": 64, "n": 4096, "k": 4096}


def pool(resolution: Resolution, limit: int = 40, problem: Shape = PROBLEM) -> Pool:
    return gather(tuning_space(resolution), problem, (), resolution.resolved.default.candidate, limit)


def test_what_a_lock_says_of_a_candidate_gives_that_candidate_again() -> None:
    for text in (PLAIN, FUSED, N_MAJOR_B, *random_specs(7, 4).values()):
        resolution = resolve_text(text)
        dims = tuning_space(resolution).dims
        found = pool(resolution, 60, dict.fromkeys(dims, 512))
        rows = [TunedRow("", {}, f"c{i}", p.knobs) for i, p in enumerate(found.tried)]
        outcome = resolve_tuned(resolution, rows)
        assert outcome.unfit == {}
        by_name = {t.name: t.candidate for t in outcome.resolved.tilings}
        assert [by_name[outcome.instances[row.name]] for row in rows] == [p.candidate for p in found.tried]


def test_every_candidate_is_tried_once_and_the_default_never() -> None:
    resolution = resolve_text(PLAIN)
    found = pool(resolution, 10_000)
    candidates = [p.candidate for p in found.tried]
    assert len(set(candidates)) == len(candidates)
    assert resolution.resolved.default.candidate not in candidates
    assert found.left_out == 0
    assert not any(p.refusals for p in found.tried)
    fewer = pool(resolution, 10)
    assert [p.candidate for p in fewer.tried] == candidates[:10]
    assert fewer.left_out == len(candidates) - 10


def test_known_winners_come_first_and_beside_the_limit() -> None:
    resolution = resolve_text(PLAIN)
    known = [p.candidate for p in pool(resolution, 50).tried[-3:]]
    found = gather(tuning_space(resolution), PROBLEM, known, resolution.resolved.default.candidate, 2)
    candidates = [p.candidate for p in pool(resolution, 2).tried]
    assert [p.candidate for p in found.tried] == [*known, *candidates]
    assert found.tried[0].why == "a winner of the lock"


def test_written_knobs_hold_for_all_candidates() -> None:
    resolution = resolve_text(PLAIN + "warpgroups: {schedule: pingpong}\ntiling: {cluster: [1, 1]}\n")
    found = pool(resolution)
    assert {(p.candidate.schedule, p.candidate.cluster) for p in found.tried} == {("pingpong", (1, 1))}
    # A lock has them all the same: what was measured does not change when the spec lets go of a knob.
    assert all(p.knobs["tiling.cluster"] == [1, 1] for p in found.tried)


def test_a_kernel_has_one_key_whoever_shares_its_module() -> None:
    resolution = resolve_text(PLAIN)
    tried = pool(resolution, 12).tried
    default = resolution.resolved.default.candidate
    together = compose(resolution, tried, [default])
    for proposal in tried[::4]:
        alone = compose(resolution, [proposal], [default])
        for c in (proposal.candidate, default):
            assert alone.keys[alone.names[c]] == together.keys[together.names[c]]
    assert len(set(together.keys.values())) == len(tried) + 1
    fused = resolve_text(FUSED)
    other = compose(
        replace(resolution, document=fused.document, lock=fused.lock), (), [fused.resolved.default.candidate]
    )
    assert not set(other.keys.values()) & set(together.keys.values())


def test_what_is_compiled_in_any_case_is_a_candidate_whatever_its_rank() -> None:
    """As the default of another problem is, which is none of the first here."""
    resolution = resolve_text(PLAIN)
    space, default = tuning_space(resolution), resolution.resolved.default.candidate
    other = pool(resolution, 60).tried[-1]
    found = gather(space, PROBLEM, (), default, 4, also={other.candidate, default})
    assert [p.candidate for p in found.tried] == [*(p.candidate for p in pool(resolution, 4).tried), other.candidate]
    assert all(p.clocks for p in found.tried)
