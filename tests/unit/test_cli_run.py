"""check, bench and run from the command line, on a machine with and without a GPU."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_bench import FakeDevice

from cutegen.build.contract import Check
from cutegen.cli import main
from cutegen.families.rowwise.proving import LIBRARIES
from cutegen.run.candidates import baselines_for
from cutegen.run.subject import load_subject
from cutegen.run.targets import open_target
from cutegen.runtime.gpu import GpuStatus

pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
SPEC = ROOT / "specs" / "gemm_bf16_sm90a.yaml"
RIGHT = Path(__file__).parent / "kernels" / "right.py"


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def probe(arch: str = "sm_90a") -> GpuStatus:
        return GpuStatus(("no NVIDIA driver: install it",))

    monkeypatch.setattr("cutegen.runtime.gpu.probe_gpu", probe)
    monkeypatch.setattr("cutegen.run.targets.probe_gpu", probe)


def test_check_of_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(RIGHT)]) == 0
    out = capsys.readouterr().out
    assert "right: ok: 13 of 17 cases pass (4 skipped); largest error" in out
    assert "several waves" in out
    assert "output 0: |error| <= 0.0039 |ref| + " in out


def test_check_of_a_wrong_file_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text(RIGHT.read_text().replace("math.ceil(a.shape[1] / tk)", "a.shape[1] // tk"))
    assert main(["check", str(wrong), "--shape", "m=8,n=8,k=40", "--json"]) == 1
    result = json.loads(capsys.readouterr().out)
    (check,) = result["checks"]
    assert (result["ok"], check["ok"], check["name"]) == (False, False, "wrong")
    assert check["environment"]["torch"]
    given = check["cases"][-1]
    assert (given["case"]["shape"], given["status"]) == ({"m": 8, "n": 8, "k": 40}, "wrong")


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("target", [SPEC, ROOT / "generated" / "gemm_bf16_sm90a"])
def test_check_without_a_gpu_says_why(target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(target)]) == 2
    assert capsys.readouterr().out == "gemm_bf16_sm90a: not run: no NVIDIA driver: install it\n"


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("command", ["check", "bench"])
def test_a_shape_is_read_before_anything_else(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, str(SPEC), "--shape", "m=8,n=x,k=8"]) == 2
    out, err = capsys.readouterr()
    assert (out, "`n=x` is not a dim and extent" in err, "GPU" in err) == ("", True, False)


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--shape", "m=1,n=2"], "--shape m=1,n=2: k missing"),
        (["--suite", "llm_gemm", "--shape", "m=8,n=8,k=8"], "--shape and --suite exclude each other"),
    ],
)
def test_bench_looks_at_its_problems_before_the_gpu(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", str(SPEC), *options]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"error: {message}\n")
    assert "no NVIDIA driver" not in err


@pytest.mark.usefixtures("no_gpu")
def test_file_that_needs_a_gpu_was_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "needs_gpu.py"
    file.write_text(RIGHT.read_text().replace("torch.randn(m, k)", "torch.randn(m, k, device='cuda')"))
    code = main(["check", str(file)])
    out = capsys.readouterr().out
    import torch

    if not torch.cuda.is_available():
        assert code == 2
        assert "needs_gpu: not run: no CUDA device; " in out


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--again", "15"], "--again has no effect without --floor"),
        (["--margin", "1"], "--margin has no effect without --compare"),
        (["--all"], "--all has no effect without --compare"),
    ],
)
def test_bench_refuses_what_has_no_effect(options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", str(SPEC), *options]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.usefixtures("no_gpu")
def test_bench_without_a_gpu_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", str(SPEC)]) == 2
    assert capsys.readouterr().err == "error: not run: no NVIDIA driver: install it\n"
    assert main(["bench", "--json", str(SPEC)]) == 2
    result = json.loads(capsys.readouterr().out)
    assert result["ok"] is False
    assert result["findings"][0]["message"] == "not run: no NVIDIA driver: install it"


@pytest.mark.usefixtures("no_gpu")
def test_errors_of_one_target_do_not_hide_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("cutegen: 1\nkernel: gemm\n")
    assert main(["check", str(bad), str(RIGHT)]) == 1
    captured = capsys.readouterr()
    assert "bad.yaml" in captured.err
    assert "right: ok" in captured.out
    assert main(["check", str(tmp_path / "none.yaml")]) == 2
    assert main(["check", str(RIGHT), "--shape", "m=8"]) == 0  # a file's defaults fill it up
    assert main(["check", str(RIGHT), "--shape", "q=8"]) == 2
    assert "right has no dim q" in capsys.readouterr().err


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.dsl
def test_run_goes_as_far_as_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("cutlass")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("cutegen.build.cpu.lacking_for_cpu", lambda: ("no torch: install it",))
    spec = tmp_path / "gemm.yaml"
    spec.write_text(SPEC.read_text() + "portfolio: 1\n")
    assert main(["run", str(spec)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [
        ["validate", "ok"],
        ["render", "ok"],
        ["build", "ok"],
        ["check", "-"],
    ]
    assert lines[-1].endswith("not run: no NVIDIA driver: install it; to execute it on the CPU: no torch: install it")
    assert (tmp_path / "generated" / "gemm" / "plan.py").is_file()
    assert main(["run", str(spec), "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)
    assert result["ok"] is True
    assert result["steps"]["check"] == {"ok": None, "result": lines[-1].split("  ")[-1], "details": None}
    spec.write_text(SPEC.read_text().replace("acc", "ac", 1) + "\ntiling: {tile: [100, 1, 1]}\n")
    assert main(["run", str(spec)]) == 1
    captured = capsys.readouterr()
    assert "validate  failed" in captured.out
    assert "render" not in captured.out


def test_run_says_what_a_broken_contract_means(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = SimpleNamespace(
        ok=False,
        tiling="t128x256x64",
        checks=(Check("local-memory", "none", "8 B stack", False, "registers spill: use a smaller tile"),),
        outcome=SimpleNamespace(seconds=1.0, cached=False, error="", unknown=False),
        to_json=dict,
    )
    monkeypatch.setattr("cutegen.build.kernels.build_kernels", lambda *_, **__: [broken])
    monkeypatch.chdir(tmp_path)
    spec = tmp_path / "gemm.yaml"
    spec.write_text(SPEC.read_text() + "portfolio: 1\n")
    assert main(["run", str(spec)]) == 1
    out, err = capsys.readouterr()
    assert "0 of 1 contract checks hold, 1.0 s; local-memory: planned none, found 8 B stack" in out
    assert err == "local-memory: registers spill: use a smaller tile\n"
    assert main(["run", str(spec), "-o", "made/here"]) == 1
    assert "made/here/gemm: 4 files written" in capsys.readouterr().out
    assert (tmp_path / "made" / "here" / "gemm" / "plan.py").is_file()
    (tmp_path / "pyproject.toml").write_text('[tool.cutegen]\nspecs = ["gemm.yaml"]\noutput = "configured"\n')
    assert main(["run"]) == 1
    assert (tmp_path / "configured" / "gemm" / "plan.py").is_file()


def test_run_refuses_two_specs_of_one_name_and_says_what_it_decides_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("cutegen.build.kernels.build_kernels", lambda *_, **__: [])
    monkeypatch.setattr("cutegen.cli.run._build", lambda *_: False)
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.yaml").write_text(SPEC.read_text() + "portfolio: 1\n")
    assert main(["run", "a/x.yaml", "b/x.yaml"]) == 1
    assert "b/x.yaml and a/x.yaml are both named `x`" in capsys.readouterr().err
    assert not (tmp_path / "b" / "x.lock.yaml").exists()
    lock = tmp_path / "a" / "x.lock.yaml"
    text = lock.read_text()
    for options in ([], ["--json"]):
        lock.write_text(re.sub(r"(pipeline.stages: \{value: )\d+", r"\g<1>40", text))
        assert main(["run", "a/x.yaml", *options]) == 0
        out, err = capsys.readouterr()
        notes = json.loads(out)[0]["notes"] if options else [err]
        assert "pipeline.stages" in notes[0]


def test_spec_sections_reach_the_target(tmp_path: Path) -> None:
    spec = tmp_path / "gemm.yaml"
    text = SPEC.read_text().split("bench:")[0].split("check:")[0]
    spec.write_text(
        text + "check: {shapes: [{m: 8, n: 16, k: 24}]}\nbench: {suite: small, shapes: [{m: 64, n: 64, k: 64}]}\n"
    )
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / "small.yaml").write_text("shapes: [{m: 128, n: 128, k: 128}]\n")
    target = open_target(spec, tmp_path / "scratch")
    assert (target.name, target.arch, target.path) == ("gemm", "sm_90a", tmp_path / "scratch" / "gemm")
    assert target.check_shapes == ({"m": 8, "n": 16, "k": 24},)
    subject = load_subject(target.path)
    rows = [row.shape for row in target.measured_rows(subject)]
    assert rows == [{"m": 64, "n": 64, "k": 64}, {"m": 128, "n": 128, "k": 128}]
    assert [row.shape for row in target.measured_rows(subject, "small")] == [{"m": 128, "n": 128, "k": 128}]


@pytest.mark.parametrize("text", [None, "shapes: 3\n", "shapes: [{m: x}]\n", "[]\n"])
def test_bad_suites(tmp_path: Path, text: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    spec = tmp_path / "gemm.yaml"
    spec.write_text(SPEC.read_text().split("bench:")[0] + "bench: {suite: small}\n")
    if text:
        (tmp_path / "suites").mkdir()
        (tmp_path / "suites" / "small.yaml").write_text(text)
    assert main(["bench", str(spec)]) == 1
    assert "small.yaml" in capsys.readouterr().err


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(
    ("options", "message", "remedy"),
    [
        (["--baseline", "quak"], "there is no baseline `quak`", "did you mean `quack`?"),
        (
            ["--baseline", "flash_mla"],
            "the baseline `flash_mla` does not fit this kernel: it is for MLA decode with `q: joined`",
            "there are torch, nvmath, quack, cutlass_operators, torch.mm, none",
        ),
        (
            ["--baseline", "none", "--baseline", "torch"],
            "--baseline none and --baseline torch contradict each other",
            "leave out --baseline none, or the others",
        ),
        (["--against", "nobody"], "--against nobody: nothing of that name is measured", "choose from gemm_bf16_sm90a"),
        (["--suite", ""], "--suite is empty", "name a suite"),
        (["--suite", "llm_gem"], "llm_gem.yaml does not exist", "did you mean `llm_gemm`"),
        (["--suite", "mla_decode_h200"], "`gemm_bf16_sm90a` has no dim `batch`", "its dims are m, n, k"),
        (["--sms", "9", str(RIGHT)], "--sms: right is a Python file, which takes no SM budget", "generated packages"),
        (["--compare", "no.json"], "no.json: No such file", "measure again"),
        (["--slice", "nan"], "nan is not a number", "--slice"),
    ],
)
def test_unknown_names_are_told_before_a_gpu_is_looked_for(
    options: list[str], message: str, remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", str(SPEC), *options]) in (1, 2)
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert remedy in err
    assert "GPU" not in err


def test_every_baseline_that_there_is_has_a_word_about_what_it_is_for() -> None:
    sources = (p.read_text() for p in (ROOT / "cutegen").rglob("*.py"))
    names = {name for text in sources for name in re.findall(r'\bBaseline\(\s*"([^"]+)"', text)}
    assert (names | LIBRARIES.keys()) - {"torch"} == baselines_for().keys()  # some baseline of every kernel is torch's


def test_bench_keeps_draws_and_compares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole way of a bench, with a device whose times are scripted: candidate i takes i + 1 us, times `slower`."""

    class Device(FakeDevice):
        slower = 1.0

        def sample(self, prepared: int, seconds: float) -> Any:
            time, reading = super().sample(prepared, seconds)
            return time * (self.slower if prepared == 0 else 1.0), reading

    monkeypatch.setattr("cutegen.runtime.gpu.probe_gpu", lambda arch="sm_90a": GpuStatus(()))
    monkeypatch.setattr("cutegen.run.device.CudaDevice", Device)
    gpu = {"name": "Scripted", "uuid": "1", "power_limit_watts": 700.0}
    monkeypatch.setattr("cutegen.run.environment.describe_environment", lambda: {"gpu": gpu, "torch": "2.11"})
    other = tmp_path / "other.py"
    other.write_text(RIGHT.read_text())
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    command = ["bench", str(RIGHT), str(other), "--shape", "m=40,n=24,k=16", "--against", "other", "--slice", "5"]
    assert main([*command, "-o", str(old), "--html", str(tmp_path / "a.html"), "--svg", str(tmp_path / "a.svg")]) == 0
    out = capsys.readouterr().out
    assert "right" in out
    assert "1.99" in out or "2.00" in out
    assert "other" in (tmp_path / "a.svg").read_text()
    assert "Scripted, 700 W" in (tmp_path / "a.html").read_text()
    assert main([*command, "--compare", str(old), "-o", str(new)]) == 0
    assert "0 slower, 2 equal, 0 faster" in capsys.readouterr().out
    Device.slower = 1.2
    assert main([*command, "--compare", str(old)]) == 1
    out = capsys.readouterr().out
    assert "1 slower, 1 equal, 0 faster" in out
    assert main([*command, "--compare", str(old), "--margin", "30"]) == 0
    assert main([*command, "--compare", str(old), "--margin", "nan"]) == 2
    capsys.readouterr()
    assert main([*command, "--compare", str(old), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)["comparison"]
    assert [(r["kernel"], r["verdict"]) for r in found["rows"]] == [("right", "slower"), ("other", "equal")]
    assert main(["report", str(new), "--compare", str(old)]) == 0
    capsys.readouterr()
    assert main(["report", str(new), "--compare", str(old), "--model", str(SPEC)]) == 2
    assert "--model and --compare contradict each other" in capsys.readouterr().err
    assert main(["report", str(new), "--compare", str(old)]) == 0

    class Stopped(Device):
        def sample(self, prepared: int, seconds: float) -> Any:
            if prepared > 1:  # two kernels of the first problem
                raise KeyboardInterrupt
            return super().sample(prepared, seconds)

    monkeypatch.setattr("cutegen.run.device.CudaDevice", Stopped)
    assert main([*command, "--shape", "m=80,n=24,k=16", "-o", str(new)]) == 130
    assert [p["shape"]["m"] for p in json.loads(new.read_text())["problems"]] == [40]
    assert main(["report", str(new)]) == 0


@pytest.mark.usefixtures("no_gpu")
def test_a_suite_leaves_out_kernels_with_other_dims(capsys: pytest.CaptureFixture[str]) -> None:
    batched = ROOT / "specs" / "gemm_bf16_batched_sm90a.yaml"
    assert main(["bench", str(batched), str(SPEC), "--suite", "llm_gemm"]) == 2
    err = capsys.readouterr().err
    assert "gemm_bf16_batched_sm90a is left out: " in err
    assert "`batch` is missing, which `gemm_bf16_batched_sm90a` needs" in err
    assert err.endswith("error: not run: no NVIDIA driver: install it\n")
    assert main(["bench", str(batched), "--suite", "llm_gemm"]) == 1
    assert "no NVIDIA driver" not in capsys.readouterr().err


def test_specs_name_the_baselines_that_no_option_names() -> None:
    from cutegen.cli.bench import name_baselines
    from cutegen.run.bench import Settings
    from cutegen.run.targets import Target

    def named(*lists: tuple[str, ...] | None, asked: tuple[str, ...] = ()) -> tuple[str, ...]:
        targets = [
            Target(SPEC, SPEC, "file", "") if names is None else Target(SPEC, SPEC, "spec", "sm_90a", baselines=names)
            for names in lists
        ]
        return name_baselines(Settings(baselines=asked), targets).baselines

    assert named(("torch",), None, ("torch", "quack")) == ("torch", "quack")
    assert named(("torch",), ("quack",), asked=("nvmath",)) == ("nvmath",)
    assert named(("torch",), ()) == named(None) == ()


def test_a_bench_with_fewer_sms_is_repeated_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from cutegen.cli.bench import bench_targets, repeat
    from cutegen.run.bench import Settings
    from cutegen.run.targets import open_target

    seen: list[int | None] = []

    def measure(subjects: Any, *_: Any) -> None:
        seen.extend(subject.plan.sms for subject, _ in subjects)
        print("a library's greeting")

    monkeypatch.setattr("cutegen.runtime.gpu.probe_gpu", lambda arch="sm_90a": GpuStatus(()))
    monkeypatch.setattr("cutegen.run.bench.measure", measure)
    monkeypatch.setattr("cutegen.run.device.CudaDevice", FakeDevice)
    monkeypatch.setattr("cutegen.run.environment.describe_environment", lambda: {"gpu": {"uuid": "gpu-0"}})
    package = SPEC.parents[1] / "generated" / SPEC.stem
    bench_targets([open_target(package, package)], (), Settings(sms=100))
    assert seen == [100]
    assert capsys.readouterr() == ("", "a library's greeting\n")  # stdout is for results
    assert "--sms 100" in repeat([package], (), Settings(sms=100))
    assert "--behind plain" in repeat([package], (), Settings(behind="plain"))
    assert "--behind" not in repeat([package], (), Settings())
