"""Work of seconds reports how far it is: on a terminal only, on a line that is gone at the end."""

from __future__ import annotations

import io

import pytest
from gemm_specs import PLAIN, resolve_text

from cutegen.cli.progress import show_line
from cutegen.progress import listen, report_progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """On stderr; not a fixture, as pytest sets stderr between those and the test."""
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    return stream


def test_choosing_a_portfolio_reports_each_problem() -> None:
    heard: list[tuple[str, int, int]] = []
    with listen(lambda *told: heard.append(told)):
        resolve_text(PLAIN + "portfolio: 3\ndims: {m: [1, 96], n: 4608, k: 4096}\n", portfolio=True)
    count = heard[0][2]
    assert heard == [("choosing tilings for problem", done, count) for done in range(count + 1)]
    assert count > 1
    report_progress("nobody listens", 0, 1)
    assert len(heard) == count + 1


def test_the_line_is_gone_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = terminal(monkeypatch)
    with show_line():
        report_progress("choosing", 1, 5)
        assert stderr.getvalue() == "\r\x1b[Kchoosing 2 of 5"
        report_progress("choosing", 5, 5)
    assert stderr.getvalue().endswith("2 of 5\r\x1b[K")


def test_what_is_left_in_the_middle_leaves_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = terminal(monkeypatch)

    def interrupted() -> None:
        with show_line():
            report_progress("choosing", 1, 5)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert stderr.getvalue().endswith("2 of 5\r\x1b[K")


def test_elsewhere_nothing_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    with show_line():
        report_progress("choosing", 1, 5)
    assert capsys.readouterr() == ("", "")
