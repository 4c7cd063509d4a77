"""Rendering of findings, and the registry of rules."""

from __future__ import annotations

import time

import pytest

from cutegen.diagnostics import RULES, CutegenError, Diagnostic, Location, Rule, SpecError, register, suggest


def finding(column: int, end: int, source: str, line: int = 3, message: str = "wrong") -> Diagnostic:
    return Diagnostic("yaml-syntax", message, Location("x.yaml", line, column, end), "mend it", source)


def test_caret_spans_the_token() -> None:
    assert finding(4, 7, "ab: def").render() == (
        "x.yaml:3:4: error[yaml-syntax]: wrong\n 3 | ab: def\n   |    ^^^\n  = help: mend it"
    )


def test_long_line_is_cut_around_the_caret() -> None:
    shown = finding(5001, 5004, "x" * 5000 + "abc" + "y" * 5000).render().splitlines()
    at = shown[2].index("^")
    assert max(map(len, shown)) < 200
    assert shown[1][at : at + 3] == "abc"


def test_control_characters_do_not_reach_the_terminal() -> None:
    shown = finding(1, 2, "\x1b[31m\tred", message="`\x1b[2J\n`").render()
    assert "\x1b" not in shown
    assert len(shown.splitlines()) == 4
    assert "`\\x1b[2J\\n`" in shown


def test_findings_are_in_source_order_and_once() -> None:
    late, early = finding(1, 2, "a", line=9), finding(1, 2, "a", line=2)
    assert SpecError([late, early, late]).diagnostics == (early, late)


def test_a_flood_of_findings_is_cut() -> None:
    error = SpecError(finding(1, 2, "a", line=i) for i in range(1, 90))
    assert len(error.diagnostics) == 89
    assert str(error).endswith("... and 39 more findings")


def test_a_line_of_any_length_ends() -> None:
    error = CutegenError("a" * 5000, "b" * 5000, details=["c" * 5000] * 500)
    assert len(str(error)) < 60_000
    assert str(error).count("\n") == 52
    assert "... and 450 more" in str(error)
    assert len(finding(1, 2, "a", message="`" + "&" * 250_000).render()) < 1200


def test_json_has_every_part() -> None:
    assert finding(4, 7, "ab: def").to_json() == {
        "rule": "yaml-syntax", "message": "wrong", "file": "x.yaml", "line": 3, "column": 4, "end_column": 7,
        "remedy": "mend it",
    }  # fmt: skip


def test_error_text_ends_with_the_remedy() -> None:
    assert str(CutegenError("no disk", "free some")) == "no disk\n  = help: free some"
    assert CutegenError("no disk").report() == "error: no disk"


def test_diagnostics_need_a_registered_rule() -> None:
    with pytest.raises(AssertionError):
        Diagnostic("no-such-rule", "x", None)


def test_rule_ids_are_kebab_case_and_unique() -> None:
    with pytest.raises(AssertionError):
        register(Rule("Not_Kebab", "", ""))
    with pytest.raises(AssertionError):
        register(Rule("yaml-syntax", "another", "meaning"))
    assert RULES["yaml-syntax"].summary


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("stags", "did you mean `stages`?"), ("STAGES", "did you mean `stages`?"), ("zzz", ""), ("", ""),
        ("gelu", "did you mean `gelu_erf` or `gelu_tanh`?"),
    ],
)  # fmt: skip
def test_suggest(word: str, expected: str) -> None:
    assert suggest(word, ["stages", "tile", "relu", "gelu_erf", "gelu_tanh"]) == expected


def test_suggesting_takes_little_time_whatever_the_words() -> None:
    names = [f"{'source' * 9}{i:04d}" for i in range(5000)]
    begin = time.process_time()
    assert [suggest(f"{name[1:]}x", names) for name in names[:100]] == [f"did you mean `{n}`?" for n in names[:100]]
    assert suggest("x" * 100_000, names) == ""
    assert time.process_time() - begin < 3
