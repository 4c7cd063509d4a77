"""Forms of Blackwell's instructions that public kernels were executed right with: the table, and who is held to it."""

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy")
pytest.importorskip("torch")
pytest.importorskip("cutlass")

from calibrate import KERNELS, RESULTS, right, table_of
from test_ptx_machine_tcgen05 import PAIR, compiled, execute

from cutegen.machine import Simulation, assert_passes, load
from cutegen.machine.check import CpuReport
from cutegen.machine.forms import TABLE, calibrated_forms, form_of, product_form, uncalibrated
from cutegen.machine.host import missing_tool
from cutegen.machine.parser import parse
from cutegen.machine.worker import KernelCode
from cutegen.run.shapes import product_space

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.thorough,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
    pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool())),
]
PACKAGES = sorted(p.parent for p in (Path(__file__).parents[2] / "generated").glob("*_sm1[0-9]*/plan.py"))
SHAPE = {"m": 300, "t": 200, "n": 272, "k": 200, "g": 3, "batch": 1, "query_len": 1, "heads": 70, "kv_len": 150}
HELD = json.loads(RESULTS.read_text(encoding="utf-8"))
# What no public kernel has that runs here, as docs/blackwell.md says: tiles of 16 columns, and fp8 by mma.sync without
# scales of blocks.
UNCALIBRATED = (
    "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32",
    "tcgen05.ld.sync.aligned.32x32b.x16.b32",
    "tcgen05.mma.cta_group::1.kind::f16: M 128, N in steps of 16, bf16 x bf16 -> f32, "
    "A K-major in 128 B, B K-major in 128 B",
)


def test_the_table_is_made_of_the_results() -> None:
    assert TABLE.read_text(encoding="utf-8") == table_of(HELD)
    assert list(HELD["kernels"]) == [public.name for public in KERNELS]


def test_enough_public_kernels_are_right_in_five_orders() -> None:
    good = Counter(found["arch"] for found in HELD["kernels"].values() if right(found))
    assert HELD["orders"] >= 5
    assert good["sm_100a"] >= 24
    assert good["sm_120a"] >= 4


@pytest.mark.parametrize("settings", [{}, PAIR, {"tile_n": 64}], ids=["alone", "pairs", "narrow"])
def test_a_kernel_of_calibrated_forms(settings: dict[str, Any]) -> None:
    simulation = Simulation(sm_count=4, strict=True)
    assert execute(simulation, tuple(settings.items())) == [""]
    forms = simulation.forms()
    assert any(form.startswith("tcgen05.mma.") for form in forms)
    assert uncalibrated(forms) == ()


@pytest.mark.parametrize("package", PACKAGES, ids=lambda p: p.name)
def test_shipped_kernels_have_calibrated_forms(package: Path) -> None:
    simulation = Simulation(sm_count=2, strict=True)
    subject = load(package, simulation)
    if subject.plan is not None:
        simulation.sm_count = max(2, *map(subject.plan.least_sms, subject.tilings))
    assert_passes(subject, product_space(subject).legal(SHAPE))
    forms = simulation.forms()
    assert forms
    assert uncalibrated(forms) == tuple(form for form in UNCALIBRATED if form in forms)


def test_a_form_that_no_public_kernel_has_is_named() -> None:
    """Operands in rows of 64 B, as no kernel of the table has them."""
    opcode, flags = ("tcgen05", "mma", "cta_group::1", "kind::f16"), 1 << 4 | 1 << 7 | 1 << 10
    known, other = (product_form(opcode, 128, 64, "bf16 x bf16 -> f32", flags, a, 2 << 61) for a in (2 << 61, 4 << 61))
    assert known in calibrated_forms()
    assert uncalibrated([known, other]) == (other,)
    report = CpuReport("mine", RESULTS, code=(KernelCode("kernel", 9, (), (other,)),))
    assert [text for text in report.findings() if text.endswith(other)]


def test_hints_do_not_make_a_form() -> None:
    program = parse(compiled(tuple(PAIR.items()))[0])
    copies = {form for i in program.instructions if i.opcode[0] == "cp" and (form := form_of(i))}
    assert copies == {"cp.async.bulk.tensor.shared::cluster.global.tile.mbarrier::complete_tx::bytes.cta_group::2"}
