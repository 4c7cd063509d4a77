"""Wrong calls of plans: each is refused by the plan, by name, before anything is launched."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from gemm_specs import BLOCKS, LABELS, PLAIN, ROW_SCALES, gathered, gathered_scales, resolve_text

from cutegen.render import render_package, write_package
from cutegen.run.subject import load_subject

SPECS = {
    "plain": (PLAIN, {"m": 24, "n": 16, "k": 32}),
    "copied": (gathered(PLAIN, "copy"), {"t": 5, "m": 40, "n": 16, "k": 8}),
    "copied_scales": (gathered_scales(BLOCKS, how="copy"), {"t": 5, "m": 40, "n": 16, "k": 256}),
    "scaled": (ROW_SCALES, {"m": 24, "n": 16, "k": 32}),
    "labels": (gathered(LABELS, "copy"), {"t": 50, "m": 40, "n": 16, "k": 8, "g": 3}),
}
Change = Callable[[random.Random, list[Any], int], None]


def _replace(make: Callable[[random.Random, Any], Any]) -> Change:
    def change(draw: random.Random, values: list[Any], at: int) -> None:
        values[at] = make(draw, values[at])

    return change


def _swap(draw: random.Random, values: list[Any], at: int) -> None:
    """The last argument, an output, in the place of another, or another in the place of it."""
    values[at] = values[-1] if at < len(values) - 1 else values[0]


CHANGES: tuple[Change, ...] = (
    _replace(lambda draw, value: None),
    _replace(lambda draw, value: draw.choice(["x", 3, [1], object()])),
    _replace(lambda draw, value: value.to(torch.float64)),
    _replace(lambda draw, value: value[None]),
    _replace(lambda draw, value: value[..., None]),
    _replace(lambda draw, value: value.to("meta")),
    _replace(lambda draw, value: value.repeat_interleave(2, -1)[..., ::2]),
    lambda draw, values, at: values.pop(at),
    lambda draw, values, at: values.append(draw.choice([values[at], 5, None, "x"])),
    lambda draw, values, at: values.extend([values[-1]] * draw.choice([2, 3])),
    _swap,
)


def attack(count: int, seed: int) -> Iterator[str]:
    """A line for each call that was launched, or was refused in other words."""
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        plans = [_load(name, text, Path(folder)) for name, (text, _) in SPECS.items()]
        calls = [_arguments(plan, dims) for plan, (_, dims) in zip(plans, SPECS.values())]
        for number in range(count):
            at = draw.randrange(len(plans))
            plan, values = plans[at], list(calls[at])
            position = draw.randrange(len(values))
            while not torch.is_tensor(values[position]):
                position = draw.randrange(len(values))
            change = draw.randrange(len(CHANGES))
            CHANGES[change](draw, values, position)
            plan.launched.clear()
            try:
                plan.launch_fn(*values)
                said = "was launched"
            except (TypeError, ValueError) as error:
                said = "" if str(error).startswith(f"{plan.name}: ") else f"was refused as {error}"
            except Exception as error:
                said = f"raised {type(error).__name__}: {error}"
            if plan.launched and said != "was launched":
                said = f"was refused after a launch of {plan.launched}"
            # What a stand-in takes and a compiled kernel does not is not the plan's fault, once all of it was checked.
            if said and not (said == "was launched" and not plan.copied_tilings and change not in (7, 8, 9, 10)):
                yield f"{number}: {plan.name}, change {change} of argument {position}: {said}"


def _load(name: str, text: str, folder: Path) -> Any:
    resolved = resolve_text(text, name=name).resolved
    write_package(render_package(resolved), folder)
    plan: Any = load_subject(folder / name).plan
    plan.device, plan.launched = "cpu", []  # type: ignore[misc]
    plan.compile = lambda key: lambda *values: plan.launched.append(key)
    plan.compile_copy = lambda: lambda *values: plan.launched.append("copy")
    plan._sm_counts[-1] = 4
    return plan


def _arguments(plan: Any, dims: dict[str, int]) -> tuple[Any, ...]:
    inputs = plan.prepare_inputs(**dims)
    return (*inputs, *plan.allocate_outputs(*inputs))
