"""`explain`: the plan in words, why-not, rules and ops."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from gemm_specs import ALONE, FP8, FUSED, OFFSETS, PLAIN
from mla_specs import MLA, PAIRED

from cutegen.cli import main
from cutegen.cli.reference import all_rules
from cutegen.epilogue import OPS
from cutegen.families.registry import FAMILIES, load_spec_model
from cutegen.resolve import lock_path
from cutegen.spec.keys import key_sections

GOLDEN = Path(__file__).parents[1] / "golden" / "explain"


@pytest.fixture
def explain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def run(text: str, *options: str, code: int = 0) -> str:
        path = tmp_path / "product.yaml"
        alone = "portfolio: 1\n" if "kernel: gemm" in text and "portfolio:" not in text else ""
        path.write_text(text + alone)
        assert main(["explain", str(path), *options]) == code
        captured = capsys.readouterr()
        return captured.err if code else captured.out

    return run


@pytest.mark.parametrize(
    ("name", "text", "options"),
    [
        ("plain", PLAIN, ("--shape", "m=4096,n=4096,k=4096")),
        ("fused_pingpong", FUSED + "warpgroups: {schedule: pingpong}\n", ("--shape", "m=100,n=264,k=72")),
        ("why_not_tile", PLAIN, ("--why-not", "tile=256x256")),
        ("why_not_stages", PLAIN, ("--why-not", "stages=7", "--shape", "m=4096,n=4096,k=4096")),
        ("why_not_pingpong", FUSED, ("--why-not", "schedule=pingpong cluster=1x2")),
        ("portfolio", PLAIN + "portfolio: 4\ndims: {m: [1, 512], n: 4096, k: 4096}\n", ("--shape", "m=300")),
        ("promoted", FP8, ("--shape", "m=4096,n=4096,k=4096")),
        ("mla", MLA, ("--shape", "batch=128,heads=16,query_len=2,kv_len=8192")),
        (
            "mla_2cta",
            PAIRED + "variant: seesaw_2cta\nq: split\nlse: {base: 2, layout: bsh}\n",
            ("--shape", "batch=1,query_len=1,kv_len=100"),
        ),
        ("why_not_2cta", MLA, ("--why-not", "variant=seesaw_2cta")),
        (
            "why_not_one_part",
            PAIRED,
            ("--why-not", "variant=seesaw_2cta max_splits=1", "--shape", "batch=1,query_len=3,kv_len=100"),
        ),
    ],
)
def test_text(
    name: str, text: str, options: tuple[str, ...], explain: Callable[..., str], golden: Callable[[Path, str], None]
) -> None:
    golden(GOLDEN / f"{name}.txt", explain(text, *options))


def test_json_holds_the_same(explain: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    sections = {s["title"]: s for s in json.loads(explain(PLAIN, "--json"))}
    assert sections["Shared memory"]["table"][1] == {
        "offset": "1024", "bytes": "65536", "field": "sA", "holds": "bf16 (128, 64) x 4 stages",
    }  # fmt: skip
    assert sections["Decisions"]["table"][0]["knob"] == "device"
    assert main(["explain", "relu", "--json"]) == 0
    (section,) = json.loads(capsys.readouterr().out)
    assert section["table"][0] == {"name": "takes", "value": "one argument"}
    (section,) = json.loads(explain(PLAIN, "--why-not", "stages=3", "--json"))
    assert section["table"][0] == {"name": "pipeline.stages", "now": "4", "then": "3"}


def test_a_knob_that_is_as_wished(explain: Callable[..., str]) -> None:
    for wish in ("tile=128x256", "tile=[128, 256]", "tiling.tile=[128,256,64], stages=4"):
        assert "nothing to change: the kernel already uses these values" in explain(PLAIN, "--why-not", wish)


def test_what_a_wish_leaves_alone_of_the_core_stays_as_the_lock_has_it(
    explain: Callable[..., str], tmp_path: Path
) -> None:
    spec = tmp_path / "product.yaml"
    spec.write_text(ALONE)
    assert main(["lock", str(spec)]) == 0
    text = lock_path(spec).read_text()
    assert "tiling.split_k: {value: 1," in text
    lock_path(spec).write_text(text.replace("tiling.split_k: {value: 1,", "tiling.split_k: {value: 2,"))
    (section,) = json.loads(explain(ALONE, "--why-not", "stages=3", "--json").partition("\n")[2])
    assert [row["name"] for row in section["table"]] == ["pipeline.stages", "SMEM bytes"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--shape", "m=4096"), "the shape gives no `n`"),
        (("--shape", "m=4096,n=1,k=1,x=3"), "`x`, which is not a dim"),
        (("--shape", "m=0,n=1,k=1"), "`m=0` is not a dim and extent"),
        (("--shape", "m=99999999999999"), "an extent is at most 2^31 - 1 = 2147483647"),
        (("--shape", "m=1,m=2,n=8,k=8"), "`m` is given twice"),
        (("--shape", "m=1,n=8,k=9"), "k=9, no multiple of 8"),
        (("--why-not", "stagse=3"), "did you mean `stages`?"),
        (("--why-not", "stages"), "`stages` gives `stages` no value"),
        (("--why-not", " "), "`--why-not` names no knob"),
        (("--why-not", "tile=big"), "is not a value of `tile`"),
        (("--why-not", "tile=256,256,64"), "join the numbers with x"),
        (("--why-not", "stages=3 stages=4"), "`stages` is given twice"),
        (("--why-not", "schedule=both"), "one of cooperative, pingpong"),
    ],
)
def test_what_cannot_be_read(options: tuple[str, ...], said: str, explain: Callable[..., str]) -> None:
    assert said in explain(PLAIN, *options, code=2)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--shape", "batch=1,heads=16,query_len=1"), "the shape gives no `kv_len`"),
        (("--shape", "batch=8,kv_len=640"), "write --shape batch=8,query_len=4,heads=128,kv_len=640"),
        (("--shape", "batch=1,heads=8,query_len=1,kv_len=64"), "heads=8, but the spec says it is from 16 to 128"),
        (("--shape", "m=1"), "`m`, which is not a dim"),
        (("--why-not", "max_splits=0"), "it takes a positive integer or any"),
        (("--why-not", "tile=64x64"), "there is no knob `tile`"),
    ],
)
def test_what_cannot_be_read_for_mla(options: tuple[str, ...], said: str, explain: Callable[..., str]) -> None:
    assert said in explain(MLA, *options, code=2)


def test_the_work_of_single_key_blocks(explain: Callable[..., str]) -> None:
    out = explain(MLA, "--shape", "batch=8,heads=16,query_len=2,kv_len=1000")
    assert re.search(r"kernel +seesaw_unit_1_split_columns\n", out)
    assert "8 x 16 blocks of 64 keys, and 4 blocks' worth a request" in out
    assert "2 blocks' worth a part" in out


@pytest.mark.parametrize(
    ("unit", "ctas"),
    [(1, "4 row blocks x 16 parts x 2 halves of the columns = 128"), (2, "4 row blocks x 33 parts = 132")],
)
def test_columns_are_shared_as_the_device_counts_key_blocks(unit: int, ctas: str, explain: Callable[..., str]) -> None:
    """33 blocks for 33 parts: few enough to share columns, but for pairs, of which 17 are 34 blocks."""
    text = MLA + f"variant: seesaw\nscheduler: {{unit: {unit}, split_columns: true}}\n"
    out = explain(text, "--shape", f"batch=1,query_len=2,heads=128,kv_len={33 * 64}")
    assert re.search(rf"CTAs +{ctas} of 132 SMs\n", out)


@pytest.mark.parametrize(
    ("knobs", "share"),
    [
        ("", "1 pairs"),
        ("split_kv: 1\n", "128 pairs"),
        ("split_kv: {max: 4}\n", "32 pairs"),
        ("scheduler: {unit: 1, join_ratio: 1}\n", "23 blocks"),
    ],
)
def test_a_share_is_no_finer_than_a_request_may_be_cut(knobs: str, share: str, explain: Callable[..., str]) -> None:
    text = MLA + "variant: seesaw\n" + (knobs if "unit" in knobs else knobs + "scheduler: {unit: 2}\n")
    shown = explain(text, "--shape", "batch=1,query_len=1,heads=16,kv_len=16384")
    assert re.search(rf"even share +{share}' worth a part", shown)


def test_constant_dims_are_a_shape(explain: Callable[..., str]) -> None:
    assert "m=8, n=512, k=64 on h200" in explain(PLAIN + "dims: {m: 8, n: 512, k: 64}\n")


def test_a_shape_is_told_by_the_names_of_the_spec(explain: Callable[..., str]) -> None:
    text = """\
cutegen: 1
kernel: gemm
arch: sm_90a
tensors: {a: "bf16[heads, tokens, k]", b: "bf16[heads, n, k]", d: "bf16[heads, tokens, n]"}
"""
    out = explain(text, "--shape", "heads=3,tokens=64,n=128,k=256")
    assert "tokens=64, n=128, k=256, heads=3 on h200 (data-sheet rates)\n" in out
    assert "Cost model for tokens=64, n=128, k=256, heads=3 on h200: it ranks" in out
    out = explain(text + "dims: {heads: 3, tokens: 64, n: 128, k: 256}\n")
    assert "cost model for tokens=64, n=128, k=256, heads=3: " in out


def test_a_shape_keeps_promises(explain: Callable[..., str]) -> None:
    text = PLAIN + "dims: {n: 512, k: [64, 128]}\n"
    assert "m=64, n=512, k=128 on h200" in explain(text, "--shape", "m=64,k=128")
    assert "n=8, but the spec says it is 512" in explain(text, "--shape", "m=64,n=8,k=128", code=2)
    assert "k=256, but the spec says it is from 64 to 128" in explain(text, "--shape", "m=64,k=256", code=2)


def test_what_reductions_are_over(explain: Callable[..., str]) -> None:
    out = explain("""\
cutegen: 1
kernel: gemm
arch: sm_90a
tensors:
  a: bf16[l, m, k]
  b: bf16[l, n, k]
  d: bf16[l, m, n]
  by_row: f32[l, m]
  by_column: f32[l, n]
  each: f32[l]
  whole: f32[]
epilogue:
  d: acc
  by_row: sum(acc, n)
  by_column: max(acc, m)
  each: max_abs(acc, m, n)
  whole: sum(acc, l, m, n)
""")
    said = {"by_row": "n, one for each l", "by_column": "m, one for each l", "each": "m and n, one for each l"}
    said |= {"whole": "m and n and l"}
    for name, over in said.items():
        assert re.search(rf"{name} +f32 +one value for all {over}\n", out), name


def test_what_groups_and_blocks_have_values_for(explain: Callable[..., str]) -> None:
    out = explain("""\
cutegen: 1
kernel: gemm
arch: sm_90a
tensors:
  a: bf16[m, k]
  b: bf16[experts, n, k]
  label: i32[m]
  q: e4m3[m, n/2]
  s: f32[m, n/256]
groups: {labels: label}
epilogue:
  h: silu(acc[:, :n/2]) * acc[:, n/2:]
  s: max(max_abs(h, n, 128), 1e-4) / 448
  q: h / s
""")
    assert re.search(r"a +bf16 +\(m, k\), K-major\n", out)
    assert re.search(r"b +bf16 +\(n, k\), K-major, one for each experts\n", out)
    assert re.search(r"s +f32 +one value for each row and 256 columns of the product, N-major\n", out)


def test_groups_without_rows_are_neither_tiles_nor_read(explain: Callable[..., str]) -> None:
    """Of 1024 groups, three rows are in three at most: 64 x 64 elements of b for each."""
    out = explain(OFFSETS + "tiling: {cluster: [1, 1]}\n", "--shape", "m=3,n=64,k=64,g=1024")
    assert re.search(r"\n  tiles +3 of ", out)
    assert "0.02534 MB" in out


def test_little_scratch_is_told_in_bytes(explain: Callable[..., str]) -> None:
    out = explain(PLAIN + "tiling: {tile: [64, 64, 64], cluster: [1, 1], split_k: 3}\n", "--shape", "m=64,n=64,k=512")
    assert re.search(r"scratch, workspace +32 KiB, f32", out)
    assert re.search(r"scratch, semaphores +4 bytes, i32", out)


def test_parts_of_k_are_told_of_with_and_without_scratch(explain: Callable[..., str]) -> None:
    split = "tiling: {cluster: [1, 1], split_k: 3, split_k_sum: "
    told = explain(PLAIN + split + "ordered_parallel}\n")
    assert "waits for those before" in told
    assert "workspace" in told
    told = explain(PLAIN + split + "ordered_cluster}\n")
    assert "k in 3 parts, ordered_cluster" in told
    assert "each CTA finishes its share" in told
    assert "workspace" not in told


def test_every_rule_and_op_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    for word in (*all_rules(), *OPS):
        assert main(["explain", word]) == 0
        out = capsys.readouterr().out
        assert word in out
        assert len(out.splitlines()) >= 2


@pytest.mark.parametrize("family", FAMILIES)
def test_every_key_of_a_spec_explains_itself(family: str, capsys: pytest.CaptureFixture[str]) -> None:
    sections = key_sections(load_spec_model(family))
    for section in sections[1:]:
        assert main(["explain", section.name]) == 0
        assert f"{section.name} of kernel: {family}\n  {section.meaning}\n" in capsys.readouterr().out
        assert main(["explain", f"{section.name}.{section.keys[-1].name}"]) == 0
        assert " ".join(section.keys[-1].meaning.split()) in capsys.readouterr().out
    assert main(["explain", family]) == 0
    assert f"`cutegen new {family} NAME` starts a spec." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("tile", "tiling.tile of kernel: gemm\n  CTA tile [m, n, k] in elements.\n"),
        ("tma.b.swizzle", "tma.<name>.swizzle of kernel: gemm\n"),
        ("tma", "tma.<name> of kernel: gemm\n"),
        ("epilogue", "epilogue of kernel: gemm\n  Expressions over `acc`"),
        ("stages", "rule stages: the A/B ring has 2 to 16 stages\n"),
        ("stages", "\n\npipeline.stages of kernel: gemm\n"),
        ("max", "op max\n"),
        ("max", "\n\nsplit_kv.max of kernel: mla_decode\n"),
    ],
)
def test_a_key_by_its_last_step_or_its_path(word: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", word]) == 0
    assert said in capsys.readouterr().out


def test_a_folder_hides_no_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("tune", "relu", "mine"):
        Path(name).mkdir()
    for word, title in (("tune", "tune of kernel: gemm\n"), ("relu", "op relu\n")):
        assert main(["explain", word]) == 0
        assert capsys.readouterr().out.startswith(title)
    assert main(["explain", "mine"]) == 2
    assert "mine is a folder" in capsys.readouterr().err


def test_unknown_words_and_files(capsys: pytest.CaptureFixture[str]) -> None:
    for word, hint in (
        ("tilin.tile", "did you mean `tiling.tile`?"),
        ("swiglu", "silu(acc[:, :n/2]) * acc[:, n/2:]"),
        (str(Path(__file__).parent), "name one spec in it"),
        ("notes.txt", "docs/spec-reference.md the keys"),
    ):
        assert main(["explain", word]) == 2
        assert hint in capsys.readouterr().err
    assert main(["explain", "smem-capacty"]) == 2
    assert "did you mean `smem-capacity`?" in capsys.readouterr().err
    assert main(["explain", "no_such.yaml"]) == 2
    assert main(["explain", "relu", "--why-not", "tile=1x1"]) == 2
    assert "go with a spec" in capsys.readouterr().err
