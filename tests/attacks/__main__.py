"""`python -m tests.attacks NAME --count 5000 --seed 7`: runs an attack, prints the cases where cutegen fell short.

A module of this folder that has `attack(count, seed)`, which yields a line for each such case, is an attack.
"""

from __future__ import annotations

import argparse
import importlib
import random
import sys
import time
from pathlib import Path

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parent))


def main() -> int:
    names = sorted(path.stem for path in FOLDER.glob("*.py") if "\ndef attack(" in path.read_text(encoding="utf-8"))
    parser = argparse.ArgumentParser(prog="python -m tests.attacks", description=__doc__)
    parser.add_argument("name", choices=names)
    parser.add_argument("--count", type=int, default=1000, help="cases (default 1000)")
    parser.add_argument("--seed", type=int, default=None, help="default: another one each time")
    parser.add_argument("--only", action="append", default=[], metavar="COMMAND", help="of kills: this command")
    options = parser.parse_args()
    seed = random.randrange(2**32) if options.seed is None else options.seed
    print(f"{options.name}: {options.count} cases, seed {seed}", flush=True)
    started, failures = time.monotonic(), 0
    attack = importlib.import_module(f"attacks.{options.name}").attack
    for failure in attack(options.count, seed, *([tuple(options.only)] if options.only else [])):
        failures += 1
        print(failure, flush=True)
    print(f"{failures} of {options.count} cases fell short, in {time.monotonic() - started:.0f} s")
    return int(failures > 0)


raise SystemExit(main())
