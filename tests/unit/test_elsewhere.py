"""What others have and cutegen has not is answered by what to do, not by the nearest spelling."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from gemm_specs import PLAIN
from mla_specs import MLA

from cutegen import elsewhere
from cutegen.cli import COMMANDS, main
from cutegen.dtypes import DTYPES
from cutegen.epilogue import CALLS, OPS
from cutegen.families.registry import FAMILIES

ROOT = Path(__file__).parents[2]
TABLES = {
    "commands": (elsewhere.COMMANDS, set(COMMANDS)),
    "families": (elsewhere.FAMILIES, set(FAMILIES)),
    "archs": (elsewhere.ARCHS, {p.name.replace("sm", "sm_") + "a" for p in (ROOT / "templates").glob("*/sm*")}),
    "dtypes": (elsewhere.DTYPES, set(DTYPES)),
    "ops": (elsewhere.OPS, {*OPS, *CALLS}),
}


@pytest.mark.parametrize("kind", TABLES)
def test_a_word_of_these_tables_names_nothing_that_is_there(kind: str) -> None:
    table, known = TABLES[kind]
    assert known, kind
    assert not known & set(table)
    assert all(word == word.lower() for word in table)  # they are asked in lower case


def test_remedies_name_what_there_is() -> None:
    values = [t for table in (elsewhere.KEYS, *elsewhere.VALUES.values()) for t in table.values()]
    texts = [text for table, _ in TABLES.values() for text in table.values()] + values
    for text in texts:
        assert set(re.findall(r"`cutegen ([a-z]+)", text)) <= {*COMMANDS, "COMMAND"}, text
        assert all((ROOT / page).is_file() for page in re.findall(r"docs/\S+\.md", text)), text
        for spec in re.findall(r"shipped spec (\w+)", text):
            assert (ROOT / "specs" / f"{spec}.yaml").is_file(), text
    said = [texts.index(t) for t in texts if re.search(r"did you mean `(\w+)`", t)]
    assert all(re.findall(r"`(\w+)`", texts[i])[0] in OPS | CALLS for i in said)


def validate(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> str:
    (tmp_path / "probe.yaml").write_text(text)
    assert main(["validate", str(tmp_path / "probe.yaml")]) == 1
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("ncu", "there is no command `ncu`; `cutegen profile SPEC --shape m=..` runs a launch under Nsight Compute"),
        ("export", "there is no command `export`; `cutegen render SPEC --standalone` writes a package"),
        ("Init", "there is no command `Init`; `cutegen new gemm NAME` starts a spec"),
        ("clean", "there is no command `clean`; `cutegen cache prune` deletes compiled kernels"),
        ("prune", "`cutegen cache prune` deletes compiled kernels"),
        ("gc", "`cutegen cache prune` deletes compiled kernels"),
        ("wheel", "`--wheel NAME==VERSION` makes a wheel of them"),
        ("load", '`cutegen.load("SPEC")`'),
        ("completion", "_CUTEGEN_COMPLETE=bash_source cutegen"),
        ("valdate", "there is no command `valdate`; did you mean `validate`?"),
    ],
)
def test_commands_of_other_tools(word: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([word]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("family", "said"),
    [
        (
            "rmsnorm",
            "unknown kernel family `rmsnorm`\n*= help: write `kernel: rowwise`, as in the shipped spec rmsnorm",
        ),
        ("softmax", "write `kernel: rowwise`, as in the shipped spec softmax_bf16_sm90a"),
        ("fmha", "there is no attention family yet, but `mla_decode`"),
        ("matmul", "write `kernel: gemm`; kernel families: gemm, mla_decode, rowwise"),
        ("gem", "did you mean `gemm`? kernel families: gemm, mla_decode, rowwise"),
        ("x" * 90, "unknown kernel family `" + "x" * 45 + "...`\n*= help: kernel families: gemm, mla_decode, rowwise"),
        ("5", "`kernel` must name a family, not 5"),
    ],
)
def test_families_of_others(family: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = validate(tmp_path, PLAIN.replace("kernel: gemm", f"kernel: {family}"), capsys)
    first, _, rest = said.partition("\n*")
    assert first in found
    assert rest in found


GENERATED_FOR = (
    "cutegen generates for sm_90a: H100, H200; GEMM and MLA decode for sm_100a: B200, and sm_103a: B300; and GEMMs for "
    "sm_120a: GeForce RTX 50 and RTX PRO, and sm_121a: DGX Spark"
)
BLACKWELL = (
    "of Blackwell's architectures there are sm_100a and sm_103a, and for `kernel: gemm` sm_120a and sm_121a; "
    f"{GENERATED_FOR}"
)


@pytest.mark.parametrize("spec", [PLAIN, MLA], ids=["gemm", "mla_decode"])
@pytest.mark.parametrize(
    ("arch", "help"),
    [
        ("sm_100", BLACKWELL),
        ("sm_120", BLACKWELL),
        ("sm_90", "write sm_90a: WGMMA and setmaxnreg are in that target only"),
        ("sm_80", f"there is no WGMMA and no TMA before Hopper; {GENERATED_FOR}"),
        ("gfx942", GENERATED_FOR),
    ],
)
def test_other_architectures(
    spec: str, arch: str, help: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = validate(tmp_path, spec.replace("arch: sm_90a", f"arch: {arch}"), capsys)
    archs = "`sm_90a`, `sm_100a`, `sm_103a` or a list of names"
    if spec == PLAIN:
        archs = "`sm_90a`, `sm_100a`, `sm_103a`, `sm_120a`, `sm_121a` or a list of names"
    assert f"`arch` must be {archs}, not `{arch}`\n" in found
    assert f"  = help: {help}\n" in found


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        ("bf16", "i4", "unknown dtype `i4`"),
        ("bf16", "int4", "operands below 8 bits would have to be dequantised in the mainloop"),
        ("bf16", "i8", "mixed input would have to be dequantised in the mainloop, which cutegen cannot do yet"),
        ("f32", "f32", "Hopper has TF32 WGMMA, and cutegen does not have it yet: store the operands as bf16 or f16"),
        ("tf32", "tf32", "Hopper has TF32 WGMMA, and cutegen does not have it yet"),
        ("bf16", "f16", "there is no product bf16 @ f16\n"),
        ("float16", "f16", "did you mean `f16`?"),
    ],
)
def test_products_of_others(a: str, b: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = PLAIN.replace("a: bf16[", f"a: {a}[").replace("b: bf16[", f"b: {b}[")
    assert said in validate(tmp_path, text, capsys)


def test_an_fp8_cache_is_not_sent_in_a_circle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = "the cache has the `dtype` of the top level, as queries, cache and output have one dtype, bf16 or f16"
    found = validate(tmp_path, MLA + "kv_cache: {dtype: e4m3}\n", capsys)
    assert "unknown key `dtype` in `kv_cache`" in found
    assert where in found
    assert "fp8 caches are not supported yet" in found
    found = validate(tmp_path, MLA.replace("dtype: bf16", "dtype: e4m3"), capsys)
    assert "`dtype` must be `bf16` or `f16`, not `e4m3`" in found
    assert "fp8 caches are not supported yet" in found


@pytest.mark.parametrize(
    ("word", "said"),
    [("sm_120f", "Blackwell"), ("tf32", "TF32 WGMMA"), ("attention", "mla_decode"), ("softmax", "r: max(d, n)"),
     ("nsys", "`cutegen profile SPEC")],
)  # fmt: skip
def test_explain_answers_for_such_words(word: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", word]) == 2
    found = capsys.readouterr().err
    assert f"`{word}` is not a spec, rule, op or key" in found
    assert said in found


def test_new_answers_for_families_of_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "rmsnorm", "probe", "-o", str(tmp_path)]) == 2
    assert "unknown kernel family `rmsnorm`\n  = help: write `kernel: rowwise`" in capsys.readouterr().err
