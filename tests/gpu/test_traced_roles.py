"""Stamps of what warps wait for on a GPU: of a launch that ends, and of one that hangs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cutegen.cli import main
from cutegen.render import render_package, write_package
from cutegen.resolve import resolve_file
from cutegen.run.role_trace import TraceRequest, instrument, launch_stamped, name_hang

pytestmark = pytest.mark.gpu

SPEC = """\
cutegen: 1
kernel: gemm
arch: sm_90a
portfolio: 1
tensors: {a: 'bf16[m, k]', b: 'bf16[n, k]', bias: 'f32[n]', d: 'bf16[m, n]'}
epilogue: {d: acc + bias}
tiling: {tile: [128, 128, 64], cluster: [2, 1]}
pipeline: {stages: 4}
warpgroups: {schedule: cooperative}
"""
SHAPE = {"m": 512, "n": 256, "k": 1024}  # 8 tiles, a CTA each, of 16 k tiles


def test_a_launch_is_traced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec, file = tmp_path / "small.yaml", tmp_path / "roles.svg"
    spec.write_text(SPEC)
    problem = ",".join(f"{dim}={extent}" for dim, extent in SHAPE.items())
    assert main(["profile", str(spec), "--shape", problem, "--trace", str(file), "--json"]) == 0
    waits = {(w["role"], w["waits_for"]): w for w in json.loads(capsys.readouterr().out)["waits"]}
    assert waits["consumer 0", "ab full"]["count"] == 4 * 4 * 16  # traced CTAs, warps, k tiles
    assert waits["load warp", "ab empty"]["count"] == 4 * (16 + 4)
    assert all(w["cycles"] >= 0 and 0 <= w["share"] <= 1 for w in waits.values())
    assert waits["consumer 0", "ab full"]["cycles"] > 0
    assert "by cycles of its SM" in file.read_text()


def test_a_hang_names_roles_and_barriers(tmp_path: Path) -> None:
    spec = tmp_path / "small.yaml"
    spec.write_text(SPEC)
    resolution = resolve_file(spec)
    write_package(render_package(resolution.resolved), tmp_path / "plain")
    kernel = tmp_path / "plain" / "small" / "kernel.py"
    kernel.write_text(re.sub(r"p\.ab_pipeline\.consumer_release\(.*\)", "pass", kernel.read_text()))
    request = TraceRequest(instrument(kernel.parent, tmp_path / "stamped"), SHAPE, patience=3.0)
    found = launch_stamped(request, "gpu", tmp_path / "cache")
    assert not found.ended
    lines = name_hang(found, resolution.resolved.tilings[0].model)
    assert any(line.startswith("load warp waits for ab empty, stage 0 at kernel.py:") for line in lines)
    assert any(line.startswith("consumer 0 waits for ab full, stage 0 at kernel.py:") for line in lines)
