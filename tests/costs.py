"""What each test costs: `python -m pytest -p tests.costs --costs FILE` writes seconds of processor time to a file, and
`python -m tests.costs FILE` prints them.

Of a test: its process, and child processes that it waited for, in setup, call and teardown. What a fixture of a module
takes is the first test's that wants it.
"""

from __future__ import annotations

import argparse
import json
import os
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest

OPTION = "--costs"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(OPTION, type=Path, help="append the processor time of each test to this file")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, bool, bool]:
    before = sum(os.times()[:4])
    try:
        return (yield)
    finally:
        if path := item.config.getoption(OPTION):
            line = json.dumps([round(sum(os.times()[:4]) - before, 3), item.nodeid])
            with open(path, "a", encoding="utf-8") as file:
                file.write(line + "\n")  # one write in one piece: workers share the file


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.costs", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--most", type=int, default=50, help="how many of each to print")
    options = parser.parse_args()
    tests = [json.loads(line) for line in options.file.read_text(encoding="utf-8").splitlines()]
    groups: dict[str, Counter[str]] = {"folder": Counter(), "file": Counter(), "test": Counter()}
    for seconds, name in tests:
        file = name.partition("::")[0]
        for group, key in zip(groups.values(), (str(Path(file).parent), file, name)):
            group[key] += seconds
    for title, group in groups.items():
        print(f"{title}: {len(group)}, {sum(group.values()):.0f} s")
        for key, seconds in group.most_common(options.most):
            print(f"{seconds:8.1f}  {key}")


if __name__ == "__main__":
    main()
