"""The life of a lock: written, honoured, stale, illegal, damaged, upgraded."""

from __future__ import annotations

from pathlib import Path

import pytest
from gemm_specs import ALONE, FP8, values

from cutegen.cli import main
from cutegen.diagnostics import CutegenError, SpecError
from cutegen.resolve import Lock, chain, lock_path, meaning, read_lock, resolve_file, save_lock
from cutegen.spec import load_text


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "plain.yaml"
    path.write_text(ALONE)
    return path


def relock(path: Path, old: str, new: str) -> None:
    text = lock_path(path).read_text()
    assert old in text
    lock_path(path).write_text(text.replace(old, new))


def write_lock(path: Path) -> Lock:
    resolution = resolve_file(path)
    assert save_lock(resolution, path)
    return resolution.lock


def test_a_written_lock_reads_back_and_changes_nothing(spec: Path) -> None:
    lock = write_lock(spec)
    assert read_lock(lock_path(spec)) == lock
    again = resolve_file(spec, locked=True)
    assert again.lock == lock
    assert again.notes == ()
    assert not save_lock(again, spec)
    assert {d.origin for d in again.resolved.decisions} == {"lock"}


def test_a_lock_that_changed_after_it_was_read_is_left_alone(spec: Path) -> None:
    """A tune may end while another command resolves the same spec: its winners stay."""
    first = resolve_file(spec)
    write_lock(spec)
    relock(spec, "tiling.raster.group: {value: 8", "tiling.raster.group: {value: 4")
    kept = lock_path(spec).read_bytes()
    with pytest.raises(CutegenError, match="has changed since it was read: it is left as it is"):
        save_lock(first, spec)
    assert lock_path(spec).read_bytes() == kept
    save_lock(resolve_file(spec), spec)
    assert lock_path(spec).read_bytes() == kept


def test_what_no_longer_gathers_rows_has_no_way_of_gathering_them(spec: Path) -> None:
    write_lock(spec)
    relock(spec, "decisions:\n", 'decisions:\n  tma.a.gather: {value: "copy", reason: "many rows"}\n')
    again = resolve_file(spec)
    assert again.resolved.default.candidate.gather == "none"
    assert any("gather is copy, but no index names rows" in note for note in again.notes)


def test_only_the_spec_promises(spec: Path) -> None:
    """A lock that is from another branch, or that a pull request changed, makes no kernel load before it may."""
    write_lock(spec)
    relock(spec, "decisions:\n", 'decisions:\n  tma.b.load_ahead: {value: true, reason: "they are weights"}\n')
    again = resolve_file(spec)
    assert not again.resolved.default.candidate.load_ahead_b
    assert any("pdl.ready does not name `b`" in note for note in again.notes)
    spec.write_text(ALONE + "pdl: {ready: [b]}\n")
    assert resolve_file(spec).resolved.default.candidate.load_ahead_b


def test_what_a_damaged_lock_held_is_not_lost_in_silence(spec: Path) -> None:
    write_lock(spec)
    lock_path(spec).write_text("{\n" + lock_path(spec).read_text())
    with pytest.raises(CutegenError) as error:
        resolve_file(spec)
    assert "which loses its winners" in (error.value.remedy or "")
    notes = resolve_file(spec, upgrade=True).notes
    assert notes[0].endswith("could not be read: nothing that it held is kept, winners among it")


def test_the_lock_wins_over_auto(spec: Path) -> None:
    write_lock(spec)
    relock(spec, "tiling.tile: {value: [128, 256, 64]", "tiling.tile: {value: [256, 128, 64]")
    resolution = resolve_file(spec, locked=True)
    assert values(resolution)["tiling.tile"] == (256, 128, 64)
    assert resolution.notes == ()


def test_the_spec_wins_over_the_lock(spec: Path) -> None:
    write_lock(spec)
    spec.write_text(ALONE + "tiling: {cluster: [1, 2]}\n")
    resolution = resolve_file(spec)
    assert values(resolution)["tiling.cluster"] == (1, 2)
    assert "tiling.cluster: the spec now says [1, 2], the lock had [2, 1]" in resolution.notes
    # Multicast of B to two CTAs along m became illegal with it; everything else stayed.
    assert any(note.startswith("tma.b.multicast: 2 of the lock is decided again:") for note in resolution.notes)
    assert values(resolution)["tiling.tile"] == (128, 256, 64)
    assert "tiling.cluster" not in resolution.lock.decisions


def test_what_goes_with_another_tile_is_decided_anew(spec: Path) -> None:
    """Beside a new core, knobs that were chosen for the old one would be slow, and their reasons false."""
    known = ALONE + "instances: [{n: 8192, k: 28672}]\nm: [1, 16, 64, 256, 4096]\n"
    spec.write_text(known)
    first = write_lock(spec)
    relock(spec, "pdl.wait: {value: true", "pdl.wait: {value: false")
    spec.write_text(known + "tiling: {tile: [128, 256, 64]}\n")
    resolution = resolve_file(spec)
    fresh = resolve_file(spec, upgrade=True).lock.decisions
    assert resolution.lock.decisions == fresh | {"pdl.wait": (False, first.decisions["pdl.wait"][1])}
    changed = {key for key, (value, _) in fresh.items() if value != first.decisions[key][0]}
    assert {"tiling.swap_ab", "pipeline.stages"} <= changed
    assert {note.partition(":")[0] for note in resolution.notes} == changed | {"tiling.tile"}
    said = "tiling.swap_ab: false of the lock is decided again: it goes with tiling.tile; now true"
    assert said in resolution.notes
    # And back: what the spec no longer writes is decided with what goes with it.
    save_lock(resolution, spec)
    relock(spec, "pdl.wait: {value: false", "pdl.wait: {value: true")
    spec.write_text(known)
    assert resolve_file(spec).lock.decisions == first.decisions


def test_a_lock_knows_beside_which_tile_it_was_decided(spec: Path) -> None:
    def write(tile: str) -> None:
        spec.write_text(f"{ALONE}tiling: {{tile: {tile}}}\n")

    write("[128, 256, 64]")
    assert write_lock(spec).written == {"tiling.tile": [128, 256, 64]}
    assert read_lock(lock_path(spec)) == resolve_file(spec, locked=True).lock
    write("[64, 128, 64]")
    resolution = resolve_file(spec)
    assert "tiling.tile: the spec now says [64, 128, 64], the lock had [128, 256, 64]" in resolution.notes
    assert resolution.lock == resolve_file(spec, upgrade=True).lock
    spec.write_text(ALONE)
    assert resolve_file(spec).lock == resolve_file(spec, upgrade=True).lock
    # A lock without a word about it, from before there was one, stays as it is as long as its spec does.
    write("[128, 256, 64]")
    relock(spec, "written:\n  tiling.tile: [128, 256, 64]\n", "")
    assert resolve_file(spec, locked=True).lock.written == {}
    relock(spec, "decisions:\n", "written: 3\ndecisions:\n")
    with pytest.raises(CutegenError, match="`written` is a map"):
        resolve_file(spec)


def test_to_write_what_is_locked_changes_nothing(spec: Path) -> None:
    write_lock(spec)
    relock(spec, "tiling.raster.group: {value: 8", "tiling.raster.group: {value: 4")
    spec.write_text(ALONE + "tiling: {tile: [128, 256, 64], cluster: [2, 1]}\n")
    resolution = resolve_file(spec)
    assert resolution.notes == ()
    assert values(resolution)["tiling.raster.group"] == 4


def test_what_goes_with_a_refused_tile_is_decided_anew(spec: Path) -> None:
    write_lock(spec)
    relock(spec, "tiling.tile: {value: [128, 256, 64]", "tiling.tile: {value: [128, 204, 64]")
    relock(spec, "tiling.raster.group: {value: 8", "tiling.raster.group: {value: 4")
    notes = resolve_file(spec).notes
    assert [note.partition(":")[0] for note in notes] == ["tiling.tile", "tiling.raster.group"]
    assert notes[1].endswith("it goes with tiling.tile; now 8")


def test_an_illegal_decision_is_decided_anew_and_told(spec: Path) -> None:
    write_lock(spec)
    relock(spec, "pipeline.stages: {value: 4", "pipeline.stages: {value: 7")
    resolution = resolve_file(spec)
    assert values(resolution)["pipeline.stages"] == 4
    (note,) = resolution.notes
    assert note.startswith("pipeline.stages: 7 of the lock is decided again: 7 stages x 48 KiB")
    with pytest.raises(CutegenError, match="does not hold") as caught:
        resolve_file(spec, locked=True)
    assert "7 stages x 48 KiB" in str(caught.value)
    assert "cutegen lock" in caught.value.remedy


def test_upgrade_decides_anew(spec: Path) -> None:
    write_lock(spec)
    relock(spec, "tiling.tile: {value: [128, 256, 64]", "tiling.tile: {value: [256, 128, 64]")
    assert values(resolve_file(spec, upgrade=True))["tiling.tile"] == (128, 256, 64)
    lock_path(spec).write_text("torn: [")
    assert values(resolve_file(spec, upgrade=True))["tiling.tile"] == (128, 256, 64)


def test_locked_wants_a_lock(spec: Path) -> None:
    with pytest.raises(CutegenError, match="has no lock"):
        resolve_file(spec, locked=True)


def test_locked_refuses_a_stale_lock(spec: Path) -> None:
    write_lock(spec)
    spec.write_text(ALONE + "dims: {k: 4096}\n")
    assert resolve_file(spec).notes == ()
    with pytest.raises(CutegenError, match="stale"):
        resolve_file(spec, locked=True)


def test_comments_order_and_evaluation_sections_make_no_lock_stale(spec: Path) -> None:
    write_lock(spec)
    lines = ALONE.splitlines()
    spec.write_text("\n".join(["# new", *lines[3:], *lines[:3], "bench: {shapes: [{m: 8, n: 8, k: 8}]}", "pipeline:"]))
    assert resolve_file(spec, locked=True).notes == ()


def test_a_decision_that_is_missing_is_made_and_told(spec: Path) -> None:
    write_lock(spec)
    text = lock_path(spec).read_text()
    lock_path(spec).write_text("".join(line for line in text.splitlines(True) if "cluster" not in line.split(":")[0]))
    resolution = resolve_file(spec)
    assert resolution.notes == ("tiling.cluster: not in the lock; decided: [2, 1]",)
    with pytest.raises(CutegenError, match="does not hold"):
        resolve_file(spec, locked=True)


def test_decisions_about_things_that_are_gone_are_dropped(spec: Path) -> None:
    write_lock(spec)
    spec.write_text(ALONE.replace("  a:", "  x:") + "mainloop: x @ b\n")
    notes = resolve_file(spec).notes
    assert "tma.a.multicast, tma.a.swizzle: the lock decides them, but this spec has no such knobs; dropped" in notes
    assert "tma.x.swizzle: not in the lock; decided: 128" in notes


def test_a_lock_from_when_there_was_evidence_is_read(spec: Path) -> None:
    lock = write_lock(spec)
    text = lock_path(spec).read_text()
    relock(spec, "decisions:\n", "evidence: []\ndecisions:\n")
    resolution = resolve_file(spec, locked=True)
    assert resolution.lock == lock
    assert save_lock(resolution, spec)
    assert lock_path(spec).read_text() == text


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("decisions:\n", "tilings:\n", "torn: `decisions` is missing"),
        ("cutegen: 1", "cutegen: 2", "another version"),
        ("decisions:\n", "decisions: [\n", "damaged: line"),
        ("spec: ", "spec: 12 #", "is damaged: `spec` is text"),
        ("decisions:\n", "more: 1\ndecisions:\n", "unknown key `more`"),
        ('reason: "the default of sm_90a"}', "reason: 3}", "decision `device` is not a {value, reason}"),
        ("cutegen: 1", "cutegen: 1\ncutegen: 1", "damaged: line 3"),
    ],
)
def test_a_damaged_lock_is_named_with_a_way_out(spec: Path, old: str, new: str, said: str) -> None:
    write_lock(spec)
    relock(spec, old, new)
    with pytest.raises(CutegenError) as caught:
        resolve_file(spec)
    assert said in caught.value.message
    assert "plain.lock.yaml" in caught.value.message
    assert f"cutegen lock --upgrade {spec}`" in caught.value.remedy


@pytest.mark.parametrize(
    "text",
    [
        "PASSWORD=hunter2\n", "hunter2: hunter2\n", "a: &hunter2 b\n", "hunter2: 1\nhunter2: 2\n", "a: !hunter2 b\n",
        "cutegen: hunter2\nspec: hunter2\n", "cutegen: 1\nhunter2: &hunter2 x\n", "spec: hunter2\n[hunter2]: x\n",
    ],
)  # fmt: skip
def test_of_a_file_that_is_no_lock_nothing_is_told(spec: Path, text: str) -> None:
    lock_path(spec).write_text(text)
    with pytest.raises(CutegenError, match=r"plain\.lock\.yaml (is damaged|was written)") as caught:
        resolve_file(spec)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("decisions:\n", "decisions:\n" + "".join(f"  {i:x>50}: {{value: 1, reason: x}}\n" for i in range(2500))),
        ("cutegen: 1", f"cutegen: {'x' * 200_000}"),
        ('reason: "the default of sm_90a"}', f"reason: {'x' * 100_000}}}"),
        ("tiling.tile: {value: [128, 256, 64]", f"tiling.tile: {{value: [{'1, ' * 8000}1]"),
    ],
)
def test_what_is_told_of_a_lock_ends(spec: Path, old: str, new: str) -> None:
    write_lock(spec)
    relock(spec, old, new)
    with pytest.raises(CutegenError) as caught:
        resolve_file(spec, locked=True)
    assert len(str(caught.value)) < 3000


def test_an_empty_lock_is_told_so(spec: Path) -> None:
    write_lock(spec)
    lock_path(spec).write_text("\n")
    with pytest.raises(CutegenError, match=r"plain\.lock\.yaml is empty\n") as caught:
        resolve_file(spec)
    assert f"cutegen lock --upgrade {spec}`" in caught.value.remedy


def test_a_merge_conflict_is_told_as_one(spec: Path) -> None:
    write_lock(spec)
    relock(spec, "decisions:\n", "<<<<<<< HEAD\ndecisions:\n=======\n>>>>>>> other\n")
    with pytest.raises(CutegenError, match="has a merge conflict") as caught:
        resolve_file(spec)
    assert caught.value.remedy == f"take one side of it, then run `cutegen lock {spec}`"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("tiling.tile: {value: [128, 256, 64]", "tiling.tile: {value: [128, 256]", "is not 3 positive integers"),
        ("tiling.tile: {value: [128, 256, 64]", 'tiling.tile: {value: "big"', '"big" of the lock is not'),
        ("pipeline.stages: {value: 4", "pipeline.stages: {value: true", "is not a positive integer"),
        ("pipeline.stages: {value: 4", "pipeline.stages: {value: -4", "is not a positive integer"),
        ('scheduler: {value: "static_persistent"', "scheduler: {value: [1]", "is not one of"),
        ("pdl.wait: {value: true", "pdl.wait: {value: 1", "is not true or false"),
        ('device: {value: "h200"', 'device: {value: "b200"', "not a device of sm_90a"),
    ],
)
def test_a_mistyped_decision_is_decided_anew(spec: Path, old: str, new: str, said: str) -> None:
    good = write_lock(spec)
    relock(spec, old, new)
    resolution = resolve_file(spec)
    assert len(resolution.notes) == 1
    assert said in resolution.notes[0]
    assert resolution.lock.decisions == good.decisions


def test_a_lock_is_no_spec(spec: Path) -> None:
    write_lock(spec)
    with pytest.raises(CutegenError, match="is a lock"):
        resolve_file(lock_path(spec))


def test_an_illegal_spec_says_so_whatever_the_lock(spec: Path) -> None:
    write_lock(spec)
    spec.write_text(ALONE + "tiling: {tile: [128, 204, 64]}\n")
    with pytest.raises(SpecError) as caught:
        resolve_file(spec)
    assert [d.rule for d in caught.value.diagnostics] == ["tile-n"]


def test_meaning_of_a_spec() -> None:
    def of(text: str) -> str:
        return meaning(load_text(text, "product"))

    assert of(ALONE) == of(ALONE + "tiling: {tile: auto}\npipeline:\ntune: {stages: [3]}\n")
    assert of(ALONE) == of(ALONE.replace("bf16[m, k]", "'bf16[m,k]'"))
    assert of(ALONE) != of(ALONE + "tiling: {tile: [128, 256, 64]}\n")
    # The order of tensors is the order of arguments.
    assert of(ALONE) != of(ALONE.replace("  a: bf16[m, k]\n  b: bf16[n, k]\n", "  b: bf16[n, k]\n  a: bf16[m, k]\n"))


def test_the_command_writes_checks_and_upgrades(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lock", "--check", str(spec)]) == 1
    assert not lock_path(spec).exists()
    assert main(["lock", str(spec)]) == 0
    assert main(["lock", "--check", str(spec)]) == 0
    relock(spec, "tiling.raster.group: {value: 8", "tiling.raster.group: {value: 4")
    assert main(["lock", str(spec)]) == 0
    assert "value: 4, reason" in lock_path(spec).read_text()
    assert main(["lock", "--upgrade", str(spec)]) == 0
    assert "tiling.raster.group: {value: 8" in lock_path(spec).read_text()
    assert main(["lock", "--upgrade", "--check", str(spec)]) == 2
    assert "exclude each other" in capsys.readouterr().err


def test_writing_leaves_no_temporary_files(spec: Path) -> None:
    write_lock(spec)
    assert sorted(p.name for p in spec.parent.iterdir()) == ["plain.lock.yaml", "plain.yaml"]


def test_a_lock_keeps_how_often_sums_are_promoted(tmp_path: Path) -> None:
    path = tmp_path / "fp8.yaml"
    path.write_text(FP8 + "portfolio: 1\n")
    write_lock(path)
    assert values(resolve_file(path))["accumulate.promote_every"] == 4
    relock(path, "accumulate.promote_every: {value: 4", "accumulate.promote_every: {value: never")
    assert values(resolve_file(path, locked=True))["accumulate.promote_every"] == "never"
    relock(path, "accumulate.promote_every: {value: never", "accumulate.promote_every: {value: often")
    resolution = resolve_file(path)
    assert values(resolution)["accumulate.promote_every"] == 4
    said = 'accumulate.promote_every: "often" of the lock is not a positive integer or one of never; decided again'
    assert said in resolution.notes


def test_a_lock_that_another_process_writes_meanwhile_is_none_that_was_lost(
    spec: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of processes that render a new spec at once, the others see no lock and then one."""
    lock, look = lock_path(spec), chain.read_lock

    def look_too_early(path: Path) -> Lock | None:
        lock.unlink(missing_ok=True)
        found = look(path)
        lock.write_text("written meanwhile")
        return found

    monkeypatch.setattr(chain, "read_lock", look_too_early)
    assert resolve_file(spec).notes == ()
    assert resolve_file(spec, upgrade=True).notes == ()
