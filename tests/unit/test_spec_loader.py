"""YAML text to data, and data back to its place in the text."""

from __future__ import annotations

from pathlib import Path

import pytest
from gemm_specs import ALONE, PLAIN

from cutegen.diagnostics import CutegenError, SpecError
from cutegen.resolve import resolve_file
from cutegen.spec import KeyPath, SpecDocument, load_document, load_text
from cutegen.spec.names import name_problem
from cutegen.spec.text_rules import MAX_BYTES


def load(text: str) -> SpecDocument:
    return load_text(text, "x", "x.yaml")


def rules(text: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        load(text)
    return [d.rule for d in caught.value.diagnostics]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4", 4), ("-4", -4), ("+4", 4), ("007", 7), ("4.5", 4.5), ("1e3", 1000.0), (".5", 0.5), ("-1.", -1.0),
        ("true", True), ("False", False), ("null", None), ("~", None), ("", None),
        ("yes", "yes"), ("no", "no"), ("on", "on"), ("off", "off"), ("n", "n"), ("y", "y"),
        ("2001-01-01", "2001-01-01"), ("12:30:45", "12:30:45"), ("0x10", "0x10"), ("0o17", "0o17"), ("1_000", "1_000"),
        (".inf", ".inf"), (".nan", ".nan"), ("=", "="), ('"4"', "4"), ("'true'", "true"), ('""', ""),
        ("bf16[m, k]@m", "bf16[m, k]@m"), ("f32[n]?", "f32[n]?"), ("999999999999999999", 10**18 - 1),
    ],
)  # fmt: skip
def test_scalars(text: str, value: object) -> None:
    data = load(f"a: {text}\n").data
    assert data == {"a": value}
    assert type(data["a"]) is type(value)


def test_line_ends_and_byte_order_mark_mean_nothing() -> None:
    text = "a: 1\nb:\n  - x\n"
    for variant in (text.replace("\n", "\r\n"), text.replace("\n", "\r"), "\ufeff" + text, text.rstrip()):
        assert load(variant).data == {"a": 1, "b": ["x"]}


def test_document_markers_are_allowed() -> None:
    assert load("---\na: 1\n...\n").data == {"a": 1}


@pytest.mark.parametrize("text", ["[" * 200, "a: " + "{a: " * 5000, "- " * 5000 + "x", "a: " + "[" * 100 + "]" * 100])
def test_nesting_is_bounded(text: str) -> None:
    assert rules(text) == ["yaml-depth"]


def test_size_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "big.yaml"
    path.write_text("a: 1\n" + "#" * MAX_BYTES)
    with pytest.raises(SpecError) as caught:
        load_document(path)
    assert [d.rule for d in caught.value.diagnostics] == ["file-size"]
    assert rules("# " + "ö" * MAX_BYTES) == ["file-size"]


def test_endless_file_is_not_read() -> None:
    with pytest.raises(CutegenError):
        load_document(Path("/dev/zero"))


def test_all_findings_of_the_text_come_at_once() -> None:
    text = "a: &x 1\nb: *x\nc: !t 1\n<<: {d: 1}\na: 2\n3: 4\ne: 99999999999999999999\n"
    assert rules(text) == [
        "yaml-anchor", "yaml-alias", "yaml-tag", "yaml-merge", "duplicate-key", "key-type", "yaml-number"
    ]  # fmt: skip


def test_tabs() -> None:
    assert load("a: 1 # a\tcomment\nb: 'x\ty'\n").data == {"a": 1, "b": "x\ty"}
    assert rules("a:\n\tb: 1\n") == ["yaml-tab"]
    assert rules("a: \t1\n") == ["yaml-tab"]


@pytest.mark.parametrize(
    ("stem", "proposed"),
    [
        ("1gemm", "kernel_1gemm"),
        ("class", "kernel_class"),
        ("a b", "a_b"),
        ("größe", "groe"),
        ("_x", "x"),
        ("gemm.v2", "gemm_v2"),
        ("-", "kernel"),
        ("x" * 60, "x" * 41),
    ],
)
def test_file_name_is_an_identifier(stem: str, proposed: str, tmp_path: Path) -> None:
    path = tmp_path / f"{stem}.yaml"
    path.write_text("a: 1\n")
    (fault,) = load_document(path).faults
    assert (fault.rule, fault.remedy) == ("spec-name", f"rename the file, for example to {proposed}.yaml")
    assert name_problem(proposed) is None


def test_hyphens_of_a_file_name_are_underscores_of_the_kernels(tmp_path: Path) -> None:
    (tmp_path / "my-big-gemm.yaml").write_text("a: 1\n")
    document = load_document(tmp_path / "my-big-gemm.yaml")
    assert (document.name, document.faults) == ("my_big_gemm", ())


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("cutegen: 1\nkernel: gemm\narch: sm_90a\na: &x 1\nb: !t 2\n", ["spec-name", "yaml-tag", "yaml-anchor"]),
        (PLAIN.replace("k]", "k").replace("cutegen: 1", "cutegen: 2"), ["spec-name", "bad-value", "tensor-syntax"]),
        (PLAIN + "tiling: {tile: [64, 24, 30]}\n", ["spec-name", "tile-k"]),
        (ALONE, ["spec-name"]),
    ],
    ids=["text", "keys", "rules", "name"],
)
def test_a_wrong_file_name_is_reported_with_all_other_findings(text: str, found: list[str], tmp_path: Path) -> None:
    path = tmp_path / "gemm.v2.yaml"
    path.write_text(text)
    with pytest.raises(SpecError) as caught:
        resolve_file(path)
    rules = [d.rule for d in caught.value.diagnostics]
    assert rules[0] == "spec-name"
    assert set(found) <= set(rules)
    assert (len(found) > 1) == (len(rules) > 1)


def test_missing_file_and_folder_and_lock(tmp_path: Path) -> None:
    (tmp_path / "x.lock.yaml").write_text("a: 1\n")
    for path in (tmp_path / "none.yaml", tmp_path, tmp_path / "x.lock.yaml"):
        with pytest.raises(CutegenError) as caught:
            load_document(path)
        assert caught.value.exit_code == 2


def shown(
    doc: SpecDocument, path: tuple[str | int, ...], key: bool = False, span: tuple[int, int] | None = None
) -> str:
    """The text that a location underlines."""
    place = doc.locate(path, key=key, span=span)
    return f"{place.line}:" + doc.lines[place.line - 1][place.column - 1 : place.end_column - 1]


PLACES = """\
a: one
b: {c: [1, 'two'], d: "x"}
e:
  - f: 1
g:
h: >
  acc +
    bias
i: "a\\tb \\u0041c"
j: 'it''s here'
k: acc
  + bias
"""


@pytest.mark.parametrize(
    ("path", "key", "expected"),
    [
        (("a",), False, "1:one"), (("a",), True, "1:a"), (("b", "c", 1), False, "2:'two'"), (("b", "c"), True, "2:c"),
        (("b", "d"), False, '2:"x"'), (("e", 0, "f"), False, "4:1"), (("g",), False, "5:g"), (("b",), False, "2:b"),
        (("b", "missing"), False, "2:b"), (("b", "c", 7), False, "2:c"), (("missing", "more"), False, "1:a"),
        ((), False, "1:a"), (("e", 0, "missing"), False, "4:f"),
    ],
)  # fmt: skip
def test_locate(path: KeyPath, key: bool, expected: str) -> None:
    assert shown(load(PLACES), path, key) == expected


@pytest.mark.parametrize(
    ("path", "word", "expected"),
    [
        ("a", "ne", "1:ne"), ("h", "acc", "7:acc"), ("h", "bias", "8:bias"), ("i", "Ac", "9:\\u0041c"),
        ("i", "b", "9:b"),
        ("j", "s", "10:s"), ("j", "'s", "10:''s"), ("j", "here", "10:here"), ("k", "bias", "12:bias"),
    ],
)  # fmt: skip
def test_locate_inside_a_scalar(path: str, word: str, expected: str) -> None:
    doc = load(PLACES)
    value = doc.data[path]
    assert isinstance(value, str)
    start = value.index(word)
    assert shown(doc, (path,), span=(start, start + len(word))) == expected


def test_span_past_the_end_points_behind_the_value() -> None:
    place = load("a: acc +\n").locate(("a",), span=(5, 6))
    assert (place.line, place.column) == (1, 9)
