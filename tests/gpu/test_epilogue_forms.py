"""What an epilogue may read and write, in every mode of `check`: in place, added by TMA, optional, in blocks."""

from __future__ import annotations

from pathlib import Path

import pytest
from gemm_specs import PLAIN, resolve_text
from op_packages import install, on_path

from cutegen.render import render_package, write_package
from cutegen.run.check import check_kernel

pytestmark = pytest.mark.gpu

OPERANDS = PLAIN.partition("  d: ")[0]
SPECS = {
    "in_place": """\
  beta: f32
  h: f32[n, m]
  d: bf16[m, n]
epilogue:
  h: acc + beta * h
  d: d + relu(h)
""",
    "in_place_gated": """\
  h: bf16[m, n]
  d: bf16[m, n/2]
epilogue:
  h: h + acc
  d: d + silu(h[:, :n/2]) * h[:, n/2:]
""",
    "aliased": """\
  c: bf16[m, n]
  bias: f32[n]
  d: bf16[m, n]
epilogue: {d: gelu_tanh(acc + bias) + c}
alias: {d: c}
""",
    "added_by_tma": """\
  bias: f32[n]
  d: bf16[m, n]
  h: f32[n, m]
  e: f16[m, n]
epilogue: {d: d + acc, h: h - acc, e: acc + bias + e}
tma: {d: {store: reduce_add}, h: {store: reduce_add}, e: {store: reduce_add}}
""",
    "added_by_tma_split": """\
  d: f32[m, n]
epilogue: {d: d + acc}
tma: {d: {store: reduce_add}}
tiling: {split_k: 4, tile: [128, 128, 64]}
""",
    "optional": """\
  bias: f32[n]?
  c: bf16[m, n]?
  beta: f32
  d: bf16[m, n]
epilogue: {d: gelu_tanh(acc + bias) + beta * c}
""",
    "blocks": """\
  s: f32[m, n/128]
  w: f32[ceil(n/48), ceil(m/128)]
  z: bf16[ceil(m/8), n]
  v: f32[ceil(m/16)]
  d: bf16[m, n]
epilogue: {d: acc * s + w * z - v}
""",
    "blocks_transposed": """\
  s: f32[m, n/128]
  d: bf16[m, n]
epilogue: {d: acc * s}
tiling: {swap_ab: true, tile: [128, 32, 64]}
""",
}


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("schedule", ["cooperative", "pingpong"])
def test_form(name: str, schedule: str, tmp_path: Path) -> None:
    text = OPERANDS + SPECS[name] + f"warpgroups: {{schedule: {schedule}}}\n"
    check(text, tmp_path)


def test_an_op_of_an_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    with on_path(tmp_path):
        check(OPERANDS + "  d: bf16[m, n]\nepilogue: {d: 'softsign(acc) + blend(acc, relu(acc), 0.25)'}\n", tmp_path)


def check(text: str, folder: Path) -> None:
    resolved = resolve_text(text).resolved
    write_package(render_package(resolved), folder)
    report = check_kernel(folder / resolved.name)
    assert report.ok, "\n".join((report.summary(), *report.findings()))
    passed = {r.case.mode for r in report.results if r.status == "pass"}
    assert passed >= {"numerics", "strides", "stream", "graph", "repeat"} | ({"alias"} if "alias:" in text else set())
    assert not [r for r in report.results if r.status in ("skipped", "refused")]
