"""`cutegen profile --trace`: stamps of what warps wait for, executed on the PTX machine; and where a hang waits."""

from __future__ import annotations

import importlib.util
import json
import re
import struct
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cutegen.build.cpu import lacking_for_cpu
from cutegen.cli import main
from cutegen.cli.role_waits import name_hangs
from cutegen.diagnostics import CutegenError
from cutegen.render import render_package, write_package
from cutegen.resolve import Resolution, resolve_file
from cutegen.run import role_trace
from cutegen.run.case_list import Case
from cutegen.run.cases import CaseResult
from cutegen.run.check import CheckReport
from cutegen.run.role_trace import (
    CTAS,
    RECORDS,
    Stamps,
    TraceRequest,
    instrument,
    launch_stamped,
    make_rows,
    name_hang,
    sum_waits,
)
from cutegen.run.targets import open_target
from cutegen.runtime.stamps import BARRIER, MBARRIER, RECORD, WaitPlace

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
]
on_cpu = pytest.mark.skipif(bool(lacking_for_cpu()), reason="; ".join(lacking_for_cpu()) or "executable")
SPEC = """\
cutegen: 1
kernel: gemm
arch: sm_90a
portfolio: 1
tensors: {a: 'bf16[m, k]', b: 'bf16[n, k]', bias: 'f32[n]', d: 'bf16[m, n]'}
epilogue: {d: acc + bias}
tiling: {tile: [64, 64, 64], cluster: [2, 1]}
pipeline: {stages: 3}
warpgroups: {schedule: cooperative}
"""
SHAPE = {"m": 128, "n": 128, "k": 512}  # 4 tiles, a CTA each, of 8 k tiles


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SPEC)
    return path


@pytest.fixture
def resolution(spec: Path) -> Resolution:
    return resolve_file(spec)


@pytest.fixture
def package(resolution: Resolution, tmp_path: Path) -> Path:
    write_package(render_package(resolution.resolved), tmp_path / "plain")
    return tmp_path / "plain" / "small"


def test_the_copy_alone_is_changed_and_keeps_its_lines(package: Path, tmp_path: Path) -> None:
    shipped = {path.name: path.read_bytes() for path in package.iterdir()}
    copy = instrument(package, tmp_path / "stamped")
    assert {path.name: path.read_bytes() for path in package.iterdir()} == shipped
    old, new = ((folder / "kernel.py").read_text().split("\n") for folder in (package, copy))
    changed = {i: line for i, (before, line) in enumerate(zip(old, new, strict=True)) if before != line}
    assert [re.sub(r"\w+\.begin\(\); |; from .*", "", line) for line in changed.values()] == [old[i] for i in changed]
    assert [line.strip()[:14] for line in changed.values()] == ["from __future_", "_trace.begin()"]
    assert "def kernel(" in "\n".join(old[list(changed)[1] - 20 : list(changed)[1]])
    (package / "kernel.py").write_text(f"{old[0]}\nfrom __future__ import annotations\n")
    with pytest.raises(CutegenError, match=r"kernel\.py has no kernel that can be traced"):
        instrument(package, tmp_path / "none")


@on_cpu
def test_a_trace_is_drawn(spec: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, problem = tmp_path / "roles.svg", ",".join(f"{d}={n}" for d, n in SHAPE.items())
    assert main(["profile", str(spec), "--shape", problem, "--trace", str(file), "--on", "cpu", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["device"], found["tiling"], found["shape"]) == ("the PTX machine", "t64x64x64", SHAPE)
    waits = {(w["role"], w["waits_for"]): w for w in found["waits"]}
    assert waits["consumer 0", "ab full"]["count"] == 4 * 4 * 8  # CTAs, warps, k tiles
    assert waits["load warp", "ab empty"]["count"] == 4 * (8 + 3)  # and the ring's stages before a CTA may exit
    assert waits["idle warps", "CTAs of the cluster"]["count"] == 4 * 3
    assert {what for role, what in waits if role == "consumer 0"} >= {"EPILOGUE", "WGMMA", "stores by TMA"}
    assert all(0 <= w["share"] <= 1 and w["steps"] >= 0 for w in found["waits"])
    root = ElementTree.parse(file).getroot()
    texts = [node.text or "" for node in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "CTA 0 warp 0: load warp" in texts
    assert "CTA 3 warp 7: consumer 0" in texts
    assert texts[texts.index("planned:") + 1].startswith("Timeline of a tile")  # the planned one beside it
    titles = [node.text or "" for node in root.iter("{http://www.w3.org/2000/svg}title")]
    line = next(i for i, text in enumerate(titles) if text.startswith("ab full, stage 2 at kernel.py:"))
    assert re.fullmatch(r"ab full, stage 2 at kernel\.py:\d+, \d+ steps", titles[line])


@on_cpu
def test_a_hang_names_role_and_barrier(package: Path, resolution: Resolution, tmp_path: Path) -> None:
    """The consumers never give a stage back: the load warp waits for the first one when all three are full."""
    kernel = package / "kernel.py"
    text = kernel.read_text().split("\n")
    line = next(i for i, s in enumerate(text, 1) if "ragged.acquire" in s or "producer_acquire" in s)
    full = next(
        i for i, s in enumerate(text, 1) if i > line + 60 and "consumer_wait(read)" in s and "for _" in text[i - 2]
    )
    kernel.write_text("\n".join(re.sub(r"p\.ab_pipeline\.consumer_release\(.*\)", "pass", s) for s in text))
    request = TraceRequest(instrument(package, tmp_path / "stamped"), SHAPE, patience=1.0)
    found = launch_stamped(request, "cpu", tmp_path / "cache")
    assert not found.ended
    lines = name_hang(found, resolution.resolved.tilings[0].model)
    assert f"load warp waits for ab empty, stage 0 at kernel.py:{line} (CTA 0 warp 0, CTA 1 warp 0, " in lines[0]
    assert f"consumer 0 waits for ab full, stage 0 at kernel.py:{full} (CTA 0 warp 4, CTA 0 warp 5, " in lines[1]
    unnamed = name_hang(found, None)
    assert re.match(rf"load waits for mbarrier at shared\+\d+ at kernel\.py:{line} ", unnamed[0])


def stamps(*warps: tuple[tuple[int, int, int], ...]) -> Stamps:
    """Of CTA 0: (cycle, word, barrier) of each stamp."""
    data = bytearray(CTAS * len(warps) * RECORDS * RECORD)
    for i, records in enumerate(warps):
        at = i * RECORDS * RECORD
        struct.pack_into("<QII", data, at + RECORD, 5, 7, len(warps))
        for n, record in enumerate(records):
            struct.pack_into("<QII", data, at + (2 + n) * RECORD, *record)
            struct.pack_into("<QII", data, at, *record)
    places = (
        WaitPlace(MBARRIER, "mbarrier_wait", ("load",), 10),
        WaitPlace(BARRIER, "barrier", ("consume", "store"), 20),
    )
    return Stamps("NVIDIA H200", "t", "kernel.py", places, len(warps), bytes(data))


def test_cycles_become_shares(resolution: Resolution) -> None:
    model = resolution.resolved.tilings[0].model
    ring = next(r.offset for r in model.smem if r.name == "ab_barriers")
    # The second CTA of a cluster has its rank above the address.
    full, empty = 1024 + ring + 8, (1 << 24) + 1024 + ring + 3 * 8 + 16
    found = stamps(((100, 1, full), (130, 0, full), (200, 1, empty), (300, 0, empty)), ((150, 3, 1), (190, 2, 1)))
    assert sum_waits(found, model) == [
        ("load warp", "ab empty", 1, 100, 0.5),
        ("load warp", "ab full", 1, 30, 0.15),
        ("idle warps", "EPILOGUE", 1, 40, 1.0),
    ]
    first, second = make_rows(found, model)
    assert (first.name, first.end) == ("CTA 0 warp 0: load warp", 200)
    assert [(w.start, w.end, w.what) for w in first.waits] == [
        (0, 30, "ab full, stage 1 at kernel.py:10"), (100, 200, "ab empty, stage 2 at kernel.py:10"),
    ]  # fmt: skip
    assert [(w.start, w.end) for w in second.waits] == [(50, 90)]
    assert [(row[0], row[1]) for row in sum_waits(found, None)] == [
        ("load", "mbarrier"),
        ("consume", "named barrier 1"),
    ]
    assert name_hang(found, model) == []
    waiting = stamps(((100, 1, full),), ((150, 3, 0),))
    assert name_hang(waiting, model) == [
        "load warp waits for ab full, stage 1 at kernel.py:10 (CTA 0 warp 0)",
        "idle warps waits for barrier of the CTA at kernel.py:20 (CTA 0 warp 1)",
    ]


def test_check_asks_where_the_first_hang_waits(
    spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target, asked = open_target(spec, tmp_path / "plain"), []
    results = tuple(
        CaseResult(Case(name, SHAPE, "numerics", None), status, ("did not end",) * (status == "hang"))
        for name, status in (("a", "pass"), ("b", "hang"), ("c", "hang"))
    )
    report = CheckReport("small", spec, results=results)

    def launch(request: TraceRequest, where: str, scratch: Path) -> Stamps:
        asked.append((request.shape, request.patience, where))
        return replace(stamps(((100, 1, 0),)), ended=False, tiling="t64x64x64")

    monkeypatch.setattr(role_trace, "launch_stamped", launch)
    first, second, third = name_hangs(report, target, tmp_path).results
    assert asked == [(SHAPE, 10.0, "gpu")]
    assert (first.detail, third.detail) == ((), ("did not end",))
    assert second.detail[1].startswith("load warp waits for mbarrier at shared+")
    monkeypatch.setattr(role_trace, "launch_stamped", lambda *_: replace(stamps(((100, 1, 0),)), ended=True))
    assert "what hangs depends on time" in name_hangs(report, target, tmp_path / "again").results[1].detail[1]

    def fail(*_: object) -> Stamps:
        raise CutegenError("no memory")

    monkeypatch.setattr(role_trace, "launch_stamped", fail)
    assert name_hangs(report, target, tmp_path / "failed") == report
    assert "small: where it hangs is not known: no memory" in capsys.readouterr().err
    passed = CheckReport("small", spec, results=results[:1])
    assert name_hangs(passed, target, tmp_path) == passed


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--on", "cpu"], "--on has no effect without --trace"),
        (["--trace", "roles.png"], "name one, and a file .svg or .txt"),
        (["--trace", "roles.svg", "--l2", "warm"], "--l2 has no effect with --trace"),
        (["--trace", "roles.svg", "--on", "cpu"], "m, n, k missing"),
        (["--trace", "roles.svg", "--on", "cpu", "--shape", "m=8,n=8,k=8", "--tiling", "t1"], "small has no t1"),
    ],
)
def test_what_cannot_be_traced(options: list[str], told: str, spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", str(spec), *options]) in (1, 2)
    assert told in capsys.readouterr().err.replace("\n", " ")
