"""Real compiles for sm_90a: a small GEMM that keeps the contract, and one break per check. No GPU."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cutegen.build import facts as facts_module
from cutegen.build.contract import check_contract
from cutegen.build.cubin import read_cubin
from cutegen.build.facts import Facts, entry_facts, find_nvdisasm, list_facts
from cutegen.diagnostics import CutegenError
from cutegen.families.code_plan import CodePlan, MmaPlan
from cutegen.runtime.cache import KernelCache
from cutegen.runtime.compile import CUBIN, REMARKS_SINCE, compile_kernel, find_source, instance_key
from cutegen.runtime.sources import dsl_version

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
    pytest.mark.skipif(find_nvdisasm() is None, reason="nvidia-cuda-nvdisasm is not installed"),
]
PLAN = CodePlan(
    arch="sm_90a",
    threads=384,
    registers=(40, 232),
    accumulator_registers=64,
    smem_bytes=164864,
    mma=(MmaPlan("HGMMA.64x128x16", 4),),
    tma_loads=2,
    multicast=False,
    tma_stores=1,
    mbarriers=8,
)
LARGE = replace(PLAN, accumulator_registers=256, smem_bytes=197632, mma=(MmaPlan("HGMMA.64x256x16", 8),), mbarriers=2)
TELLS_WARNINGS = (dsl_version() or REMARKS_SINCE) >= REMARKS_SINCE


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> KernelCache:
    return KernelCache(tmp_path_factory.mktemp("cache"))


def compile_mini(cache: KernelCache, **switches: Any) -> Facts:
    from mini_gemm import MiniTiling

    tiling, path = MiniTiling(**switches), find_source("mini_gemm")
    key = instance_key(path.read_text(), "mini_gemm", path, tiling, "sm_90a")
    with compile_kernel(cache, key, "mini_gemm", tiling, "sm_90a") as compiled:
        assert compiled.entry is not None
        return entry_facts(cache, compiled.entry)


def failed(plan: CodePlan, facts: Facts) -> set[str]:
    return {check.id for check in check_contract(plan, facts) if check.ok is False}


def codes(facts: Facts) -> list[str]:
    return [code for code, _ in facts.warnings or ()]


def test_a_good_kernel_keeps_the_contract(cache: KernelCache) -> None:
    facts = compile_mini(cache)
    assert failed(PLAN, facts) == set()
    assert (facts.warnings == ()) if TELLS_WARNINGS else (facts.warnings is None)
    assert (facts.entry, facts.registers, facts.threads) == ("mini_gemm_0", 168, (384, 1, 1))
    assert facts.instructions > 200


@pytest.mark.parametrize(
    ("switches", "broken", "code"),
    [
        ({"dynamic_block": True}, {"cta-size", "setmaxnreg"}, "C7508"),
        ({"set_registers": False}, {"setmaxnreg"}, None),
        ({"tma_store": False}, {"tma-store"}, None),
        ({"fence": False}, set(), "C7519"),
        ({"in_flight": 1}, {"mma-waits"}, "C7517"),
        ({"stages": 3, "smem_bytes": 132096}, {"mbarrier"}, None),
    ],
)
def test_each_break_is_found(cache: KernelCache, switches: dict[str, Any], broken: set[str], code: str | None) -> None:
    facts = compile_mini(cache, **switches)
    told = {"ptxas-warnings"} if code and TELLS_WARNINGS else set()
    assert failed(PLAN, facts) == broken | told
    assert codes(facts) == ([code] if told else [])


def test_accumulators_that_do_not_fit(cache: KernelCache) -> None:
    facts = compile_mini(cache, tile=(256, 256, 64), stages=1, smem_bytes=197632)
    assert {"local-memory", "mma-waits"} <= failed(LARGE, facts) <= {"local-memory", "mma-waits", "ptxas-warnings"}
    assert facts.stack_bytes > 1000
    assert facts.count("LDL", "STL") > 100
    if TELLS_WARNINGS:
        assert codes(facts) == ["C7511"]
        assert (facts.spill_store_bytes or 0) > 1000


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        ({"mma": (MmaPlan("HGMMA.64x256x16", 4),)}, "mma"),
        ({"mma": (MmaPlan("HGMMA.64x128x16", 3),)}, "mma"),
        ({"threads": 256}, "cta-size"),
        ({"registers": (24, 240)}, "setmaxnreg"),
        ({"tma_loads": 99}, "tma-load"),
        ({"multicast": True}, "tma-multicast"),
        ({"absent": ("HGMMA.",)}, "decoding"),
    ],
)
def test_another_plan_is_not_kept(cache: KernelCache, change: dict[str, Any], broken: str) -> None:
    assert failed(replace(PLAN, **change), compile_mini(cache)) == {broken}


def test_no_operation_is_given_its_source_line(cache: KernelCache, monkeypatch: pytest.MonkeyPatch) -> None:
    """It took a third of the time of a compile; line information in the cubin, where it is asked for, needs it."""
    from cutlass._mlir_helpers import op

    lines: list[Any] = []
    find_line = op._get_caller_frame_info

    def note_line() -> Any:
        lines.append(find_line())
        return lines[-1]

    monkeypatch.setattr(op, "_get_caller_frame_info", note_line)
    compile_mini(cache, stages=3, smem_bytes=132096)
    assert not lines
    monkeypatch.setenv("CUTE_DSL_LINEINFO", "1")
    compile_mini(cache, stages=2, smem_bytes=99328)
    assert lines


def test_a_wrong_smem_plan_fails_while_tracing(cache: KernelCache) -> None:
    with pytest.raises(Exception, match="SharedStorage has 164864 bytes"):
        compile_mini(cache, smem_bytes=164865)


def test_a_torn_cubin_is_refused_and_never_crashes(cache: KernelCache) -> None:
    compile_mini(cache)
    (data, *_) = [entry.read_bytes() for entry in sorted((cache.root or Path()).glob(f"kernels/*/{CUBIN}"))]
    assert len(read_cubin(data)) == 1
    for size in range(0, len(data) // 2, 101):
        with pytest.raises(ValueError, match="not a readable cubin"):
            read_cubin(data[:size])


def test_the_exported_object_loads_without_the_compiler(cache: KernelCache, monkeypatch: pytest.MonkeyPatch) -> None:
    from mini_gemm import MiniTiling

    from cutegen.runtime import compile as compile_module

    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(cache.root))
    compile_mini(cache)

    def no_compiler(*_: object) -> None:
        raise AssertionError("compiled")

    monkeypatch.setattr(compile_module, "_compile", no_compiler)
    kernel = compile_module.load_kernel("mini_gemm", MiniTiling(), "sm_90a")
    with pytest.raises(Exception, match="Expects 3 parameters"):
        kernel()
    assert compile_module.load_kernel("mini_gemm", MiniTiling(), "sm_90a") is kernel


def test_facts_of_many_are_those_of_each(cache: KernelCache, monkeypatch: pytest.MonkeyPatch) -> None:
    """One run of nvdisasm reads the code of all; where it cannot, each is left to be read alone."""
    for switches in ({}, {"tma_store": False}, {"tile": (256, 256, 64), "stages": 1, "smem_bytes": 197632}):
        compile_mini(cache, **switches)
    keys = [path.name for path in (cache.root or Path()).glob("kernels/*")]
    each = [entry_facts(cache, entry) for key in keys if (entry := cache.find(key))]
    assert len(each) == len(keys) >= 3
    runs: list[str] = []
    run = facts_module._run_nvdisasm
    monkeypatch.setattr(facts_module, "_run_nvdisasm", lambda *args: runs.append(args[1]) or run(*args))
    noted = [entry for key in keys if (entry := cache.find(key))]
    assert list_facts(cache, noted) == each
    assert not runs
    entries = [replace(entry, notes={}) for entry in noted]
    assert list_facts(cache, entries) == each
    assert runs == ["-b"]
    monkeypatch.setattr(facts_module, "find_nvdisasm", lambda: "/bin/false")
    assert set(list_facts(cache, entries)) == {None}
    with pytest.raises(CutegenError, match="cannot read the cubin"):
        entry_facts(cache, entries[0])
