"""What portfolios lose by the cost model on rows that choosing them does not see.

`python -m tests.portfolio_loss [N ...]` prints rows of the table of docs/dispatch.md, for at most N tilings; it takes
minutes.
"""

from __future__ import annotations

import math
import random
import sys
from pathlib import Path
from typing import Any

from cutegen.arch import ARCHS, DEVICES
from cutegen.families.gemm.cost_model import Shape, describe_work, instance_of
from cutegen.families.gemm.portfolio import MOST, _Judge
from cutegen.resolve import resolve_document
from cutegen.runtime.gemm.cost_model import spend
from cutegen.spec import load_text

LAYERS = Path(__file__).parents[1] / "docs" / "measurements" / "h100_layers"
ON = ("h200", "h100")


def draw_rows(rng: random.Random) -> list[int]:
    """16 numbers of rows of any size and 16 from 100 to 500, those that occur twice once."""
    return sorted({int(2 ** rng.uniform(0, 13)) for _ in range(16)} | {rng.randint(100, 500) for _ in range(16)})


def measure_losses(text: str, name: str, number: int, rows: list[int]) -> tuple[int, list[float]]:
    """(tilings of a portfolio, logarithms of how much slower its pick is than the model's, of each row and device)."""
    resolved: Any = resolve_document(load_text(f"{text}portfolio: {number}\n", name, f"{name}.yaml"), None).resolved
    judge = _Judge(resolved.problem, {}, ARCHS["sm_90a"], lambda c: None, coarse=False)
    instances, losses = [instance_of(t.candidate) for t in resolved.tilings], []
    for m in rows:
        for device in (DEVICES[name] for name in ON):
            shape = Shape(m, resolved.problem.n.value, resolved.problem.k.value)
            work = describe_work(resolved.problem, shape, device)
            clocks = (spend(i, work.form, work.counted, device.known_rates).clocks for i in instances)
            losses.append(math.log(min(clocks) / judge.rank(shape, device).best))
    return len(instances), losses


def main() -> None:
    numbers = [int(number) for number in sys.argv[1:]] or [MOST, 32]
    rng, specs = random.Random(5), [p for p in sorted(LAYERS.glob("layer_*.yaml")) if not p.name.endswith(".lock.yaml")]
    rows = {path: draw_rows(rng) for path in specs}
    for number in numbers:
        found = [measure_losses(p.read_text(), p.stem, number, rows[p]) for p in specs]
        losses, held = [loss for _, of in found for loss in of], [count for count, _ in found]
        mean, most = (100 * math.expm1(x) for x in (sum(losses) / len(losses), max(losses)))
        far = sum(loss > math.log(1.1) for loss in losses)
        tilings = f"{min(held)} to {max(held)}" if min(held) < max(held) else f"{held[0]}"
        print(f"| {number} | {tilings} | {mean:.1f}% | {most:.0f}% | {far} of {len(losses)} |", flush=True)


if __name__ == "__main__":
    main()
