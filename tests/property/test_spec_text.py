"""Any text at all is read or refused in words; comments, order and layout carry no meaning."""

from __future__ import annotations

import random
from io import StringIO
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from cutegen.diagnostics import CutegenError, SpecError
from cutegen.families.registry import FAMILIES
from cutegen.spec import load_document, load_text, parse_spec
from cutegen.spec.document import Data, SpecDocument

STARTER = Path(__file__).parents[2] / "cutegen" / "families" / next(iter(FAMILIES)) / "starter.yaml"
LINES = STARTER.read_text(encoding="utf-8").splitlines()

# Pieces that YAML and the spec language give a meaning to, so that random text gets past the first line.
TOKENS = st.sampled_from(
    [
        *("cutegen: 1\n", "kernel: gemm\n", "arch: sm_90a\n", "tensors:\n", "  a: ", "bf16[m, k]\n", "epilogue:\n"),
        *("  d: acc\n", "tiling: ", "tile: ", "stages: ", "auto\n", "null", "{", "}", "[", "]", ", ", ": ", "- ", "? "),
        *("'", '"', "&x ", "*x", "!!int ", "!t ", "<<: ", "#", "\\", "%YAML 1.1\n", "---\n", "...\n", "> \n", "|\n"),
        *("\n", "\n  ", "\t", "\0", "é", "\x85", "\u2028", "1e999", "9" * 40, "\\U99999999", "~", "@", "`", "%"),
    ]
)
HOSTILE = st.one_of(st.text(max_size=200), st.lists(TOKENS, max_size=30).map("".join))


def read(text: str) -> SpecDocument | None:
    try:
        return load_text(text, "x", "x.yaml")
    except SpecError as error:
        for finding in error.diagnostics:
            place = finding.location
            assert finding.render()
            assert place is None or (place.line >= 1 and place.column >= 1 and place.end_column > place.column)
        return None


@given(HOSTILE)
@example('a: "\\U99999999"')
@example("%YAML 9.9\n---\na: 1")
@example("%TAG !\n---\na: 1")
@example("a: |99\n x")
@example("\ud800")
def test_text_is_read_or_refused(text: str) -> None:
    doc = read(text)
    if doc is not None:
        try:
            parse_spec(doc)
        except SpecError as error:
            error.report()


@given(st.lists(st.tuples(st.integers(0, len(LINES) - 1), HOSTILE), max_size=4))
def test_a_damaged_spec_is_read_or_refused(damage: list[tuple[int, str]]) -> None:
    lines = list(LINES)
    for at, text in damage:
        lines[at] += text
    doc = read("\n".join(lines))
    if doc is not None:
        try:
            parse_spec(doc)
        except SpecError as error:
            error.report()


@given(st.binary(max_size=300))
def test_bytes_are_read_or_refused(tmp_path_factory: object, raw: bytes) -> None:
    path = Path(tmp_path_factory.mktemp("raw") / "x.yaml")  # type: ignore[attr-defined]
    path.write_bytes(raw)
    try:
        load_document(path)
    except CutegenError as error:
        error.report()


def leaves(data: Data, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [path, *(leaf for key, value in items for leaf in leaves(value, (*path, key)))]


@given(HOSTILE)
def test_every_value_has_a_place(text: str) -> None:
    doc = read(text)
    for path in leaves(doc.data) if doc else ():
        place = doc.locate(path)
        assert place.end_column > place.column
        assert place.column <= len(doc.lines[place.line - 1]) + 1


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Co", "Cn"]), max_size=40))
def test_columns_inside_quoted_text(value: str) -> None:
    """What a span underlines is the text of that span, whatever the quoting."""
    plain = value.replace("'", "").replace("\\", "").replace('"', "")
    for quoted in (f"'{plain}'", f'"{plain}"'):
        doc = load_text(f"a: {quoted}\n", "x")
        for i, char in enumerate(plain):
            place = doc.locate(("a",), span=(i, i + 1))
            assert doc.lines[place.line - 1][place.column - 1] == char


@given(st.randoms(use_true_random=False), st.lists(st.sampled_from(["# note", "", "   # x: 1", "#" * 90]), max_size=9))
def test_comments_and_order_do_not_change_the_data(rng: random.Random, comments: list[str]) -> None:
    data = load_text("\n".join(LINES), "x").data
    keys = list(data)
    rng.shuffle(keys)
    blocks = [dump({key: data[key]}) for key in keys]
    for comment in comments:
        blocks.insert(rng.randrange(len(blocks) + 1), comment + "\n")
    again = load_text("".join(blocks), "x")
    assert again.data == data
    assert parse_spec(again) == parse_spec(load_text("\n".join(LINES), "x"))


def dump(data: object) -> str:
    stream = StringIO()
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.dump(data, stream)
    return stream.getvalue()
