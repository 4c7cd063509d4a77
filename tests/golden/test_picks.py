"""Golden picks of the cost model: plain data, by which an implementation in another language can be tested as well.

picks.json holds `model`, the version; `rates`: by name, the fields of `Rates`; `sets`: each a form, by the fields of
`Form`, and instances, lists in the order of the fields of `Instance`; `picks`: (number of the set, name's number in
`rates`, m, n, k, batch, number of the picked instance, its clocks). The pick has the least clocks, then the least
from_l2, then the least busy, and then comes first. CUTEGEN_ACCEPT=1 draws the file again.
"""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

from conftest import ACCEPT
from golden_picks import FILE, UNKNOWN, read_sets

from cutegen.families.gemm.cost_model import form_of, instance_of
from cutegen.resolve import resolve_file
from cutegen.runtime.device_rates import RATES, Rates, find_rates
from cutegen.runtime.gemm.cost_model import MODEL, MODELS, Form, Instance, describe_work, spend

ROOT = Path(__file__).parents[2]
COUNT, MOST_BYTES = 10_000, 600_000
SPECS = (
    "gemm_bf16_sm90a", "gemm_bf16_batched_sm90a", "gemm_bf16_bias_residual_sm90a", "gemm_bf16_swiglu_sm90a",
    "gemm_bf16_rms_sm90a", "gemm_e4m3_block128_sm90a", "gemm_e4m3_rowcol_sm90a", "gemm_i8_sm90a",
    "grouped_gemm_bf16_sm90a", "grouped_gemm_bf16_counts_sm90a", "grouped_gemm_bf16_gather_sm90a",
    "grouped_gemm_e4m3_block128_sm90a",
)  # fmt: skip


def make_picks() -> dict[str, Any]:
    rng = random.Random(29)
    rates = {name: known for name, (_, known) in RATES.items()} | {"scaled": find_rates(UNKNOWN, "sm_90a")[0]}
    sets = []
    for spec in SPECS:
        resolved: Any = resolve_file(ROOT / "specs" / f"{spec}.yaml").resolved
        form = form_of(resolved.problem)
        own = list(dict.fromkeys(instance_of(t.candidate) for t in resolved.tilings))[:6]
        sets.append((form, own + [draw_instance(rng) for _ in range(8 - len(own))]))
    picks = []
    while len(picks) < COUNT:
        number, device = rng.randrange(len(sets)), rng.randrange(len(rates))
        form, instances = sets[number]
        batched = form.groups or any(each for *_, each in form.moved)
        extents = (draw_extent(rng, 13, 1), draw_extent(rng, 15, 8), draw_extent(rng, 14, 16))
        extents = (*extents, rng.choice((1, 2, 8, 37, 256)) if batched else 1)
        found = pick(form, instances, list(rates.values())[device], extents)
        picks.append([number, device, *extents, *found])
    return {
        "model": MODEL,
        "rates": {name: known._asdict() for name, known in rates.items()},
        "sets": [{"form": form._asdict(), "instances": instances} for form, instances in sets],
        "picks": picks,
    }


def draw_instance(rng: random.Random) -> Instance:
    """Any knobs that the formula reads, legal or not."""
    consumers, split = rng.choice((1, 2, 3)), rng.choice((1, 1, 2, 3, 8))
    sums = ("ordered_cluster", "ordered_parallel", "ordered_turnstile", "unordered_atomic")
    return Instance(
        (64 * rng.choice((1, 2, 3, 4)), 8 * rng.randint(1, 32), rng.choice((64, 128))),
        rng.choice(((1, 1), (2, 1), (1, 2), (2, 2))), rng.randint(2, 12), consumers, rng.random() < 0.5,
        rng.choice((1, 4, 8)), split, rng.random() < 0.3, rng.random() < 0.5, rng.choice(sums) if split > 1 else "none",
        rng.choice((0, 0, 4)), rng.choice(("none", "none", "cp_async", "copy")), rng.random() < 0.8,
        rng.random() < 0.2, rng.random() < 0.2,
    )  # fmt: skip


def draw_extent(rng: random.Random, bits: int, step: int) -> int:
    """Any magnitude is as likely as another."""
    return max(step, int(2 ** rng.uniform(0, bits)) // step * step)


def pick(form: Form, instances: list[Instance], rates: Rates, extents: tuple[int, ...]) -> tuple[int, int]:
    """(number, clocks), as the head of this file says it."""
    work = describe_work(form, rates, *extents)
    spent = [spend(i, form, work, rates, MODELS[MODEL]) for i in instances]
    best = min(range(len(spent)), key=lambda j: (spent[j].clocks, spent[j].from_l2, spent[j].busy, j))
    return best, spent[best].clocks


def rows(values: list[Any]) -> str:
    return "[\n" + ",\n".join(json.dumps(v, separators=(",", ":")) for v in values) + "\n]"


def write(data: dict[str, Any]) -> None:
    parts = [f'"{key}": {rows(v) if isinstance(v, list) else json.dumps(v)}' for key, v in data.items()]
    FILE.write_text("{" + ",\n".join(parts) + "}\n", encoding="utf-8")


def test_golden_picks() -> None:
    if ACCEPT:
        write(make_picks())
    data = json.loads(FILE.read_text(encoding="utf-8"))
    assert FILE.stat().st_size < MOST_BYTES
    assert len(data["picks"]) == COUNT
    sets, rates = list(read_sets(data)), [Rates(**known) for known in data["rates"].values()]
    start, wrong = time.process_time(), []
    for number, device, *extents, best, clocks in data["picks"]:
        portfolio, tilings = sets[number]
        if portfolio.rank(tilings, rates[device], tuple(extents))[0] != (clocks, str(best)):  # type: ignore[arg-type]
            wrong.append((number, device, extents))
    assert not wrong[:3]
    assert time.process_time() - start < 10  # some 2 s


def test_golden_picks_are_of_many_kinds() -> None:
    data = json.loads(FILE.read_text(encoding="utf-8"))
    forms = [s["form"] for s in data["sets"]]
    assert {f["width"] for f in forms} == {1, 2}
    assert {f["groups"] for f in forms} == {"", "rows", "each"}
    assert any(f["paired"] == 2 for f in forms)
    assert any(f["reduces"] for f in forms)
    assert any(f["gathered"] for f in forms)
    assert any(each == "batch" for f in forms if not f["groups"] for *_, each in f["moved"])
    picked = {(number, best) for number, *_, best, _ in data["picks"]}
    assert len(picked) > 0.6 * sum(len(s["instances"]) for s in data["sets"])
    assert set(data["rates"]) == {"h100", "h200", "scaled"}


def test_a_released_version_of_the_model_keeps_its_rates() -> None:
    """Golden picks are of the tables as they are now."""
    data = json.loads(FILE.read_text(encoding="utf-8"))
    assert data["model"] == MODEL
    for name, (_, known) in RATES.items():
        assert data["rates"][name] == known._asdict()
    assert data["rates"]["scaled"] == find_rates(UNKNOWN, "sm_90a")[0]._asdict()
