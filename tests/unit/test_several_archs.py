"""Specs for several architectures: what each part says, and one package that dispatches by device."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gemm_specs import PLAIN  # noqa: E402

import cutegen  # noqa: E402
from cutegen.cli import main  # noqa: E402
from cutegen.diagnostics import CutegenError, SpecError  # noqa: E402
from cutegen.render import render_package, write_package  # noqa: E402
from cutegen.resolve import (  # noqa: E402
    list_open,
    lock_path,
    resolve_archs,
    resolve_file,
    save_lock,
    split_document,
)
from cutegen.run.subject import list_plans, load_subject  # noqa: E402
from cutegen.runtime.by_arch import PlanByArch  # noqa: E402
from cutegen.spec import load_text  # noqa: E402

BOTH = (
    PLAIN.replace("sm_90a", "[sm_90a, sm_100a]")
    + """\
portfolio: 1
tiling: {tile: [128, 128, 64], cluster: [1, 1]}
for:
  sm_90a: {warpgroups: {schedule: cooperative}, pipeline: {stages: 3}}
  sm_100a:
    tiling: {cluster: [2, 1]}
"""
)
PRODUCT = PLAIN.replace("sm_90a", "[sm_90a, sm_100a]") + "portfolio: 1\n"
ROOT = Path(__file__).parents[2]
CAPABILITY = {"sm_90a": (9, 0), "sm_100a": (10, 0), "sm_120a": (12, 0)}


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    file = tmp_path / "gemm_both.yaml"
    file.write_text(BOTH)
    return file


@pytest.fixture
def stand_on(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes the current device one of an architecture."""

    def stand(arch: str) -> None:
        facts = type("Facts", (), {"multi_processor_count": 100, "name": f"a {arch}", "total_memory": 1 << 36})
        facts.major, facts.minor = CAPABILITY[arch]  # type: ignore[attr-defined]
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: facts)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)

    return stand


class OnDevice:
    """What a plan asks of a tensor before anything else."""

    def get_device(self) -> int:
        return 0


def test_each_part_is_the_spec_with_what_for_says() -> None:
    parts = {part.arch: part for part in split_document(load_text(BOTH, "both"))}
    assert list(parts) == ["sm_90a", "sm_100a"]
    assert parts["sm_90a"].data["tiling"] == {"tile": [128, 128, 64], "cluster": [1, 1]}
    assert parts["sm_100a"].data["tiling"] == {"tile": [128, 128, 64], "cluster": [2, 1]}
    assert parts["sm_90a"].data["pipeline"] == {"stages": 3}
    assert all("for" not in part.data and part.data["arch"] == arch for arch, part in parts.items())
    places = {arch: part.locate(("tiling", "cluster")).line for arch, part in parts.items()}
    lines = BOTH.splitlines()
    assert "[1, 1]" in lines[places["sm_90a"] - 1]
    assert "[2, 1]" in lines[places["sm_100a"] - 1]


def test_a_list_of_one_is_that_architecture() -> None:
    (part,) = split_document(load_text(BOTH.replace(", sm_100a]", "]").partition("  sm_100a:")[0], "one"))
    assert part.archs == ()
    assert part.data["arch"] == "sm_90a"
    assert part.data["pipeline"] == {"stages": 3}


def test_families_of_one_architecture_take_no_list(tmp_path: Path) -> None:
    file, text = tmp_path / "rows.yaml", (ROOT / "specs" / "rmsnorm_bf16_sm90a.yaml").read_text()
    file.write_text(text.replace("arch: sm_90a", "arch: [sm_90a, sm_100a]"))
    with pytest.raises(SpecError, match="rowwise` are for one architecture"):
        resolve_archs(file)


def test_the_lock_of_each_is_kept(spec: Path) -> None:
    assert main(["lock", str(spec)]) == 0
    locks = {arch: lock_path(spec, arch) for arch in ("sm_90a", "sm_100a")}
    assert locks["sm_100a"].name == "gemm_both.sm_100a.lock.yaml"
    assert all(lock.is_file() for lock in locks.values())
    assert not lock_path(spec).exists()
    assert main(["lock", "--check", str(spec), *map(str, locks.values())]) == 0  # as a shell makes of *.yaml
    locks["sm_100a"].write_text(
        locks["sm_100a"].read_text().replace("pipeline.stages: {value: 8", "pipeline.stages: {value: 7")
    )
    found = {r.document.arch: r for r in resolve_archs(spec)}
    assert found["sm_100a"].resolved.default.numbers.stages == 7
    assert not found["sm_90a"].notes
    locks["sm_90a"].unlink()
    assert main(["lock", "--check", str(spec)]) == 1


def test_one_package_has_the_kernels_of_each(spec: Path, tmp_path: Path) -> None:
    kernels = [r.resolved for r in resolve_archs(spec)]
    package = render_package(*kernels)
    assert {f for f in package.files if f.startswith(("kernel", "plan"))} == {
        "kernel_sm_90a.py", "kernel_sm_100a.py", "plan.py", "plan_sm_90a.py", "plan_sm_100a.py",
    }  # fmt: skip
    assert sum("def _reference" in text for text in package.files.values()) == 1
    write_package(package, tmp_path)
    plans = list_plans(tmp_path / "gemm_both")
    subjects = [load_subject(path) for path in plans]
    assert [s.name for s in subjects] == ["gemm_both (sm_100a)", "gemm_both (sm_90a)"]
    assert subjects[0].digest == subjects[1].digest
    assert [s.plan.arch for s in subjects if s.plan] == ["sm_100a", "sm_90a"]
    with pytest.raises(CutegenError, match="several architectures"):
        load_subject(tmp_path / "gemm_both")


def test_a_call_runs_the_plan_of_its_device(
    spec: Path, stand_on: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan: Any = cutegen.load(spec)
    assert isinstance(plan, PlanByArch)
    a, b = (torch.ones(rows, 16, dtype=torch.bfloat16) for rows in (4, 8))
    assert torch.equal(plan.reference_fn(a, b), torch.full((4, 8), 16, dtype=torch.bfloat16))  # without a device
    ran: list[str] = []
    for arch in plan.archs:
        monkeypatch.setattr(plan.on(arch), "launch_fn", lambda *values, sms, arch=arch: ran.append(f"{arch} {sms}"))
    for arch, sms in (("sm_90a", None), ("sm_100a", 64)):
        stand_on(arch)
        plan._of_device.clear()  # a device does not change
        plan.launch_fn(OnDevice(), OnDevice(), OnDevice(), sms=sms)
        assert plan.here.arch == plan.arch == arch
    assert ran == ["sm_90a None", "sm_100a 64"]
    stand_on("sm_120a")
    plan._of_device.clear()
    said = r"gemm_both: device 0 \(a sm_120a\) is sm_120; the kernels are built for sm_90a and sm_100a"
    for call in (plan, plan.kernel_fn, plan.plan, plan.launch_fn):
        with pytest.raises(ValueError, match=said):
            call(OnDevice(), OnDevice())
    with pytest.raises(ValueError, match=said):
        plan.warm_up()
    assert plan.inputs == plan.on("sm_90a").inputs
    assert len(ran) == 2
    with pytest.raises(ValueError, match="not for sm_120a"):
        plan.on("sm_120a")


def test_settings_are_those_of_all_plans(spec: Path) -> None:
    plan: Any = cutegen.load(spec)
    before = plan.on("sm_90a")
    plan.sms, plan.on_miss = 17, "error"
    try:
        assert {(p.sms, p.on_miss) for p in (plan, before, plan.on("sm_100a"))} == {(17, "error")}
        other = type(plan)(sms=9)
        assert other.on("sm_90a") is not before
        assert (other.on("sm_90a").sms, before.sms) == (9, 17)
        again = pickle.loads(pickle.dumps(plan))
        assert type(again) is type(plan)
        assert again.on("sm_100a").sms == 17
        assert copy.deepcopy(plan) is plan
    finally:
        plan.sms, plan.on_miss = None, "compile"
    assert before.sms is None
    with pytest.raises(AttributeError, match="nothing_such"):
        _ = plan.nothing_such


def test_an_operator_is_registered_once_for_all(spec: Path) -> None:
    plan: Any = cutegen.load(spec)
    operator = plan.register_torch_op("gemm_of_both_archs")
    assert plan.register_torch_op("gemm_of_both_archs") is operator
    assert [a.name for a in operator.default._schema.arguments] == ["a", "b", "sms"]


def test_commands_say_which_architecture(spec: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*arguments: object, code: int = 0) -> str:
        assert main([*map(str, arguments)]) == code
        return "".join(capsys.readouterr())

    assert "sm_90a: Registers" in (said := run("explain", spec))
    assert "sm_100a: Tensor memory" in said
    assert [row["arch"] for row in json.loads(run("resolve", "--json", spec))] == ["sm_90a", "sm_100a"]
    assert "10 files" not in run("render", spec, "-o", tmp_path / "out")
    assert "up to date" in run("render", "--check", spec, "-o", tmp_path / "out")
    assert "plan_sm_100a.py" in run("render", "--origin", spec)
    assert "is for sm_90a and sm_100a" in run("tune", spec, code=2)
    with pytest.raises(CutegenError, match="is for sm_90a and sm_100a"):
        resolve_file(spec)


@pytest.mark.parametrize("written", ["", "for:\n  # measured\n  sm_90a: {pdl: {wait: false}}\n"])
def test_pin_writes_what_differs_under_for(written: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each architecture has the kernels and the lock that it had; keys that it has not are left to the others."""
    path = tmp_path / "gemm_pinned.yaml"
    path.write_text(PRODUCT + written)
    before = resolve_archs(path)
    for resolution in before:
        save_lock(resolution, path)
    assert main(["pin", "--key", "warpgroups.consumer.count", "--key", "tiling.mma_ctas", "--json", str(path)]) == 0
    pinned = json.loads(capsys.readouterr().out)["pinned"]
    assert pinned == ["for.sm_90a.warpgroups.consumer.count", "for.sm_100a.tiling.mma_ctas"]
    assert main(["pin", str(path)]) == 0
    assert "for.sm_100a.device: b200" in capsys.readouterr().out
    after = resolve_archs(path, locked=True)
    assert [r.resolved.digest for r in after] == [r.resolved.digest for r in before]
    assert not any(list_open(r) for r in after)
    text = path.read_text()
    assert text.startswith(PRODUCT + written.removesuffix("\n").removesuffix("}}"))
    assert "\n  sm_100a:\n    tiling: {mma_ctas: 2" in text
    assert main(["pin", str(path)]) == 0
    assert "nothing to pin" in capsys.readouterr().out
    assert main(["pin", "--key", "tiling.tiles", str(path)]) == 2
    assert "`tiling.tiles` is not a decision of this spec" in capsys.readouterr().err


def test_a_difference_is_of_one_architecture(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = spec.with_name("gemm_other.yaml")
    other.write_text(BOTH.replace("stages: 3", "stages: 4"))
    assert main(["diff", "--no-build", str(spec), str(other)]) == 0
    said = capsys.readouterr().out
    assert "gemm_other (sm_90a): differs" in said
    assert "gemm_other (sm_100a): nothing differs" in said
    other.write_text(BOTH.replace("sm_100a", "sm_103a"))
    assert main(["diff", "--no-build", str(spec), str(other)]) == 2
    assert "one is for sm_90a and sm_100a, the other one for sm_90a and sm_103a" in capsys.readouterr().err
    git = ["git", "-C", str(spec.parent), "-c", "user.name=t", "-c", "user.email=t@t"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run([*git, *command], check=True)
    spec.write_text(BOTH.replace("stages: 3", "stages: 4"))
    assert main(["diff", "--no-build", "HEAD..", str(spec)]) == 0
    assert "gemm_both (sm_90a): differs" in capsys.readouterr().out
