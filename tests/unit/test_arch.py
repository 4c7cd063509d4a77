"""Facts per arch and device, against the installed DSL where it knows them."""

from __future__ import annotations

import ast
import warnings
from pathlib import Path

import pytest

from cutegen.arch import ARCHS, DEVICES, default_device


@pytest.mark.parametrize("name", ARCHS)
def test_smem_is_what_the_dsl_reports(name: str) -> None:
    utils = pytest.importorskip("cutlass.utils")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the new name does not exist in older releases
        assert utils.get_smem_capacity_in_bytes(name.removesuffix("a")) == ARCHS[name].smem_bytes


def test_every_device_has_an_arch_and_sm_90a_a_default() -> None:
    assert {d.arch for d in DEVICES.values()} <= set(ARCHS)
    assert default_device("sm_90a") == DEVICES["h200"]
    assert default_device("sm_100a") == DEVICES["b200"]
    assert default_device("sm_103a") == DEVICES["b300"]
    assert default_device("sm_120a") == DEVICES["rtx5090"]
    assert default_device("sm_121a") == DEVICES["dgx_spark"]


def test_facts_of_devices_that_nobody_measured() -> None:
    """A vendor counts cores, 128 an SM, and memory by the width of its bus and the bits of a pin."""
    cores = {"rtx5090": 21_760, "rtx_pro_6000": 24_064, "dgx_spark": 6_144}
    pins = {"rtx5090": (512, 28.0), "rtx_pro_6000": (512, 28.0), "dgx_spark": (256, 8.533)}
    for name, count in cores.items():
        facts, (bits, rate) = DEVICES[name].facts, pins[name]
        assert facts
        assert DEVICES[name].rates is None
        assert facts.sms * 128 == count
        assert facts.memory_bytes_per_s == pytest.approx(bits * rate * 10**9 / 8, rel=0.001)


def test_the_dense_rate_is_clock_times_sms_times_4096() -> None:
    for device in (d for d in DEVICES.values() if d.rates):
        assert device.flops_16bit == pytest.approx(device.clock_hz * device.sms * 4096, rel=0.001)


@pytest.mark.parametrize(("threads", "registers"), [(256, 256), (384, 168), (512, 128)])
def test_launch_registers(threads: int, registers: int) -> None:
    assert ARCHS["sm_90a"].launch_registers(threads) == registers


def test_no_module_elsewhere_is_made_for_one_architecture() -> None:
    """Numbers of an architecture reach a module by an argument: none is looked up when it is imported."""
    root = Path(__file__).parents[2] / "cutegen"
    found = []
    for path in root.rglob("*.py"):
        if path.relative_to(root).parts[0] == "arch":
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        found += [f"{path.name}:{i.lineno}: {i.module}" for i in imports if str(i.module).startswith("cutegen.arch.sm")]
        if "ARCHS" in {alias.name for i in imports for alias in i.names}:
            found += [
                f"{path.name}:{statement.lineno}: ARCHS"
                for statement in tree.body
                if isinstance(statement, ast.Assign | ast.AnnAssign)
                and "ARCHS" in {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
            ]
    assert found == []
