"""`pin` writes decisions into a spec and changes nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gemm_specs import ALONE, resolve_text, values
from mla_specs import MLA

from cutegen.cli import main
from cutegen.diagnostics import CutegenError
from cutegen.resolve import lock_path, pin_decisions, read_lock, resolve_file, save_lock

SPEC = """\
# A product.
cutegen: 1
kernel: gemm   # the family
arch: sm_90a
portfolio: 1

tensors:
  a:    "bf16[m, k]"
  b:    'bf16[n, k]'   # K-major
  d: bf16[m, n]

tiling:
  cluster: auto     # open
  raster:
    # groups come later
    order: along_n  # measured
pipeline:

warpgroups: {consumer: {count: 2,
                        registers: auto,  # open
                       }}
bench: {shapes: [{m: 8, n: 8, k: 8}]}
# the end
"""
PINNED = """\
# A product.
cutegen: 1
kernel: gemm   # the family
arch: sm_90a
portfolio: 1

tensors:
  a:    "bf16[m, k]"
  b:    'bf16[n, k]'   # K-major
  d: bf16[m, n]

tiling:
  cluster: [2, 1]     # open
  raster:
    # groups come later
    order: along_n  # measured
    group: 8
  tile: [128, 256, 64]
  split_k: 1
  swap_ab: false
pipeline: {stages: 4, epilogue_stages: 4}

warpgroups: {consumer: {count: 2,
                        registers: 232,  # open
                       }, schedule: cooperative, producer: {registers: 40}}
bench: {shapes: [{m: 8, n: 8, k: 8}]}
device: h200
tma: {a: {multicast: 1, swizzle: 128}, b: {multicast: 2, swizzle: 128}}
scheduler: static_persistent
pdl: {wait: true, trigger: last_tile}
# the end
"""


def test_everything_pinned_reads_like_this_and_means_the_same() -> None:
    before = resolve_text(SPEC)
    text, after = pin_decisions(before, ())
    assert text == PINNED
    assert after.resolved.digest == before.resolved.digest
    assert {d.origin for d in after.resolved.decisions} == {"spec"}
    assert not after.lock.decisions
    assert values(resolve_text(PINNED)) == values(before)
    assert pin_decisions(after, ())[0] == PINNED


def test_one_key_changes_one_line() -> None:
    text, after = pin_decisions(resolve_text(SPEC), ["tiling.cluster"])
    changed = [(a, b) for a, b in zip(SPEC.splitlines(), text.splitlines()) if a != b]
    assert changed == [("  cluster: auto     # open", "  cluster: [2, 1]     # open")]
    assert "tiling.cluster" not in after.lock.decisions
    assert "tiling.tile" in after.lock.decisions


def test_with_a_portfolio_the_default_is_pinned_and_the_portfolio_with_it() -> None:
    """What is written in is one tiling; a single key that tilings of the portfolio have otherwise is not."""
    open_spec = SPEC.replace("portfolio: 1\n", "").replace("  cluster: auto     # open\n", "") + "m: [1, 64]\n"
    before = resolve_text(open_spec, portfolio=True)
    assert before.lock.portfolio
    assert len(before.resolved.picks) > 1
    text, after = pin_decisions(before, ())
    assert "\nportfolio: 1\n" in text
    assert after.lock.portfolio is None
    assert len(after.resolved.picks) == 1
    assert after.resolved.default.candidate == before.resolved.default.candidate
    with pytest.raises(CutegenError) as caught:
        pin_decisions(before, ["tiling.tile"])
    assert "\\n" not in caught.value.message
    said, *lost = caught.value.message.splitlines()
    assert said.endswith("would not resolve to the same kernel with these decisions written in:")
    assert lost[0].startswith("  portfolio: tiling 1 is dropped: tiling.tile: the spec now says [")
    assert len(lost) <= 11  # a line each, and one for the rest
    assert "write `portfolio: 1` first" in caught.value.remedy


@pytest.mark.parametrize(
    "tail",
    [
        "epilogue:\n  d: |\n    acc\n\n\n",
        "epilogue:\n  d: >-\n    acc",
        "tiling: {}",
        "tiling: {\n}",
        "tiling: {raster: {}}\n",
        "tiling:\n    raster:\n        order:\n",
        "check:\n  shapes:\n  - m: 8\n    n: 8\n    k: 8\n  - {m: 16,\n     n: 16, k: 16}\n",
        "pipeline: {stages: }\n",
        "pipeline: # stages: 4\n",
        "pipeline: {stages, epilogue_stages: 2}\n",
        "tma: {a, b: {swizzle: 128}}\n",
        "tma: {a: , b: {swizzle: 128}}\n",
        "tma: {a: # swizzle: 128\n      , b: {swizzle: 128}}\n",
        "tma: {a # swizzle: 128\n      , b: {swizzle: 128}}\n",
        "tma: {b: {swizzle: 128}, a: # swizzle: 128\n }\n",
        "tma: {b: {swizzle: 128}, a # swizzle: 128\n }\n",
        "tma: {b: {swizzle: 128}, a}\ncheck:\n",
        "pipeline: {stages: 4, epilogue_stages: ,}\ntiling: {raster: {group, }, }\n",
        "tune: {tile: [[128, 256, 64]]}",
    ],
)
def test_any_layout_survives(tail: str) -> None:
    before = resolve_text(SPEC.split("tiling:")[0] + tail)
    text, after = pin_decisions(before, ())
    assert after.resolved.digest == before.resolved.digest
    assert not after.lock.decisions
    assert text.startswith(SPEC.split("tiling:")[0])
    assert {d.origin for d in after.resolved.decisions} == {"spec"}


def test_a_value_that_no_text_can_be_put_behind_is_named() -> None:
    text = SPEC.split("tiling:")[0] + "pipeline:\n  ? stages\n"
    with pytest.raises(CutegenError, match=r"product.yaml:13:5: `pipeline.stages` cannot be written") as caught:
        pin_decisions(resolve_text(text), ())
    assert "`key: value`" in caught.value.remedy


def test_what_tune_lists_other_values_for_stays_open(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "product.yaml"
    tuned = ALONE + "tune: {cluster: [[1, 1], [2, 1]], stages: [4]}\n"
    path.write_text(tuned)
    digest = resolve_file(path).resolved.digest
    assert main(["pin", str(path), "--key", "tiling.cluster"]) == 2
    assert "`tiling.cluster` cannot be pinned: `tune` lists other values" in capsys.readouterr().err
    assert path.read_text() == tuned
    assert main(["pin", str(path)]) == 0
    assert "note: tiling.cluster: left open: `tune` lists other values for it" in capsys.readouterr().err
    after = resolve_file(path)
    assert after.resolved.digest == digest
    assert [d.key for d in after.resolved.decisions if d.origin != "spec"] == ["tiling.cluster"]
    assert after.spec.pipeline.stages == 4
    assert main(["pin", "--json", str(path)]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["pinned"] == []
    assert result["notes"] == ["tiling.cluster: left open: `tune` lists other values for it"]


def test_the_tune_section_of_an_mla_decode_keeps_its_say() -> None:
    text, after = pin_decisions(resolve_text(MLA + "tune: {overhead: [2, 8]}\n"), ())
    assert [d.key for d in after.resolved.decisions if d.origin != "spec"] == ["scheduler.overhead"]
    assert "tune: {overhead: [2, 8]}" in text


@pytest.mark.parametrize(
    ("key", "said", "remedy"),
    [
        ("tiling.raster.order", "is written in the spec already", ""),
        ("tiling.cluser", "is not a decision", "did you mean `tiling.cluster`?"),
        (
            "registers",
            "is not a decision",
            "did you mean `warpgroups.producer.registers` or `warpgroups.consumer.registers`?",
        ),
        ("pipeline.load_stages", "is not a decision", ""),
    ],
)
def test_only_open_decisions_can_be_pinned(key: str, said: str, remedy: str) -> None:
    with pytest.raises(CutegenError, match=said) as caught:
        pin_decisions(resolve_text(SPEC), [key])
    assert remedy in caught.value.remedy
    assert caught.value.exit_code == 2


def test_the_command_moves_decisions_from_lock_to_spec(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "product.yaml"
    path.write_text(SPEC)
    save_lock(resolve_file(path), path)
    lock_path(path).write_text(lock_path(path).read_text().replace("[128, 256, 64]", "[256, 128, 64]"))
    digest = resolve_file(path, locked=True).resolved.digest
    assert main(["pin", str(path), "--key", "tiling.tile"]) == 0
    assert "  tile: [256, 128, 64]\n" in path.read_text()
    assert "tiling.tile" not in read_lock(lock_path(path)).decisions
    assert resolve_file(path, locked=True).resolved.digest == digest
    assert main(["pin", str(path)]) == 0
    assert main(["pin", str(path)]) == 0
    assert "nothing to pin" in capsys.readouterr().out
    assert main(["pin", "--json", str(path)]) == 0
    assert json.loads(capsys.readouterr().out)["pinned"] == []
    assert resolve_file(path, locked=True).resolved.digest == digest


def test_windows_line_ends_stay(tmp_path: Path) -> None:
    spec = tmp_path / "product.yaml"
    spec.write_bytes(b"\xef\xbb\xbf" + SPEC.replace("\n", "\r\n").encode())
    assert main(["pin", str(spec)]) == 0
    (tmp_path / "plain.yaml").write_text(SPEC)
    assert main(["pin", str(tmp_path / "plain.yaml")]) == 0
    expected = (tmp_path / "plain.yaml").read_text().replace("\n", "\r\n")
    assert spec.read_bytes() == b"\xef\xbb\xbf" + expected.encode()
