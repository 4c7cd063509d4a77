"""`cutegen migrate`: specs and locks of older versions, with their comments; and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gemm_specs import PLAIN

from cutegen.cli import main
from cutegen.diagnostics import CutegenError
from cutegen.resolve import lock_path, read_lock
from cutegen.resolve.migrate import LANGUAGE_STEPS, LanguageStep, migrate, migrate_spec
from cutegen.spec import load_text
from cutegen.spec.base import LANGUAGE

ROOT = Path(__file__).parents[2]
TUNED = "gemm_bf16_bias_gelu_sm90a"
# A language of three versions, which nobody has.
STEPS = (LanguageStep(2, {"tiling.tile": "cta_tile"}), LanguageStep(3, {"pipeline.stages": "slots", "arch": "target"}))
OLD = """\
# of long ago
cutegen: 1  # the version
arch: sm_90a
tiling:   {tile: [64, 64, 64],  cluster: [1, 1]}   # as it was
pipeline:
  # slots of the ring
  stages: 4
"""
NEW = """\
# of long ago
cutegen: 3  # the version
target: sm_90a
tiling:   {cta_tile: [64, 64, 64],  cluster: [1, 1]}   # as it was
pipeline:
  # slots of the ring
  slots: 4
"""


def test_what_is_shipped_is_of_today() -> None:
    assert (LANGUAGE, LANGUAGE_STEPS) == (1, ())
    for path in sorted((ROOT / "specs").glob("*.yaml")):
        if not path.name.endswith(".lock.yaml"):
            assert [file.changes for file in migrate(path)] in ([()], [(), ()], [(), (), ()]), path


def test_renamed_keys_keep_comments_and_layout() -> None:
    found = migrate_spec(load_text(OLD, "old", "old.yaml"), STEPS, 3)
    assert found.text == NEW
    assert len(found.changes) == 4
    halfway = OLD.replace("cutegen: 1", "cutegen: 2").replace("{tile", "{cta_tile")
    assert migrate_spec(load_text(halfway, "old", "old.yaml"), STEPS, 3).text == NEW
    assert migrate_spec(load_text(NEW, "new", "new.yaml"), STEPS, 3).changes == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (OLD.replace("cutegen: 1", "cutegen: 4"), "of version 4 .* up to 3"),
        (OLD.replace("cutegen: 1", "cutegen: one"), "is not a version"),
        (OLD.replace("stages: 4", "stages: 4\n  slots: 4"), "has both `pipeline.stages` and `slots`"),
        (OLD.replace("cutegen: 1", ""), "there are several versions"),
    ],
)
def test_what_is_refused(text: str, said: str) -> None:
    with pytest.raises(CutegenError, match=said):
        migrate_spec(load_text(text, "old", "old.yaml"), STEPS, 3)


def test_a_spec_without_a_version_and_its_old_lock(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`evidence` was a key of locks; winners did not say what they measured."""
    spec = tmp_path / f"{TUNED}.yaml"
    text = (ROOT / "specs" / spec.name).read_text()
    spec.write_text(text.replace("cutegen: 1\n", ""))
    held = read_lock(lock_path(ROOT / "specs" / spec.name))
    assert held
    assert held.winners
    old = lock_path(ROOT / "specs" / spec.name).read_text().replace("\ndecisions:", "\nevidence: []\ndecisions:")
    bound = held.winners[0].measured
    old = old.replace(f'measured: "{bound}", ', "").replace(f"measured: {bound}, ", "")
    lock_path(spec).write_text(old)
    assert main(["migrate", "--check", str(spec)]) == 1
    assert lock_path(spec).read_text() == old
    capsys.readouterr()
    assert main(["migrate", str(spec), "--json"]) == 0
    files = json.loads(capsys.readouterr().out)["files"]
    assert [len(file["changes"]) for file in files] == [1, 1]
    assert "`evidence` is gone" in files[1]["changes"][0]
    assert spec.read_text().count("cutegen: 1\nkernel: gemm\n") == 1
    assert [line for line in text.splitlines() if "#" in line] == [x for x in spec.read_text().splitlines() if "#" in x]
    now = read_lock(lock_path(spec))
    assert now
    assert now.decisions == held.decisions
    assert len(now.winners) == len(held.winners)
    if unbound := sum(not winner.measured for winner in now.winners):
        assert files[1]["notes"][0].startswith(f"{unbound} winners do not say what they measured")
    assert main(["migrate", str(spec)]) == 0
    assert capsys.readouterr().out.count("up to date") == 2


def test_errors_are_those_of_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = tmp_path / "mine.yaml"
    spec.write_text(PLAIN.replace("cutegen: 1", "cutegen: 7"))
    assert main(["migrate", str(spec)]) == 1
    assert "upgrade cutegen" in capsys.readouterr().err
    assert main(["migrate", str(spec), "--json"]) == 1
    assert "of version 7" in json.loads(capsys.readouterr().out)["findings"][0]["message"]


@pytest.mark.parametrize(
    ("text", "migrated"),
    [
        ("{kernel: gemm, arch: sm_90a}\n", "{cutegen: 1, kernel: gemm, arch: sm_90a}\n"),
        ("  kernel: gemm\n  arch: sm_90a\n", "  cutegen: 1\n  kernel: gemm\n  arch: sm_90a\n"),
    ],
)
def test_the_version_is_written_as_the_map_is(text: str, migrated: str) -> None:
    assert migrate_spec(load_text(text, "spec", "spec.yaml")).text == migrated


@pytest.mark.parametrize("text", ["{}\n", "services: {web: {image: nginx}}\n"])
def test_what_is_not_a_spec_is_left_alone(text: str) -> None:
    with pytest.raises(CutegenError, match=r"spec\.yaml is not a spec: it has no key `kernel`"):
        migrate_spec(load_text(text, "spec", "spec.yaml"))
