"""The build contract: each check on facts that break it and nothing else, and the readers of the compiler's texts."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from gemm_specs import PLAIN, gathered, resolve_text

from cutegen.build import facts as facts_module
from cutegen.build.contract import Check, check_contract, holds
from cutegen.build.cubin import read_cubin
from cutegen.build.facts import Facts, disassemble, find_nvdisasm
from cutegen.diagnostics import CutegenError
from cutegen.families.code_plan import CodePlan, MmaPlan
from cutegen.families.gemm.code_plan import plan_code

PLAN = CodePlan(
    arch="sm_90a",
    threads=384,
    registers=(40, 232),
    accumulator_registers=128,
    smem_bytes=230400,
    mma=(MmaPlan("HGMMA.64x256x16", 4),),
    tma_loads=2,
    multicast=True,
    tma_stores=1,
    mbarriers=8,
)
OPCODES = {
    "HGMMA.64x256x16.F32.BF16": 8,
    "UTMALDG.3D": 1,
    "UTMALDG.3D.MULTICAST": 1,
    "UTMASTG.3D": 8,
    "SYNCS.EXCH.64": 8,
    "WARPGROUP.DEPBAR.LE": 2,
    "LDS": 3,  # begins like LDL and is none
}
FACTS = Facts(
    entry="k",
    registers=168,
    threads=(384, 1, 1),
    stack_bytes=0,
    spill_store_bytes=0,
    spill_load_bytes=0,
    instructions=900,
    code_bytes=14400,
    opcodes=OPCODES,
    set_registers=(40, 232),
    ptx_waits=2,
    warnings=(),
    early={},
)


def opcodes(**changes: int) -> dict[str, dict[str, int]]:
    """OPCODES with counts set; `_` stands for a dot in a name, and 0 takes it out."""
    merged = OPCODES | {name.replace("_", "."): count for name, count in changes.items()}
    return {"opcodes": {name: count for name, count in merged.items() if count}}


def test_what_was_planned_holds() -> None:
    assert holds(check_contract(PLAN, FACTS))


@pytest.mark.parametrize(
    ("broken", "changes"),
    [
        ("local-memory", {"stack_bytes": 1968}),
        ("local-memory", {"spill_store_bytes": 40}),
        ("local-memory", {"spill_load_bytes": 40}),
        ("local-memory", opcodes(LDL_64=1)),
        ("local-memory", opcodes(STL=1)),
        ("ptxas-warnings", {"warnings": (("C7508", "'setmaxnreg' ignored"),)}),
        ("ptxas-warnings", {"warnings": (("C7599", "something new"),)}),
        ("cta-size", {"threads": None}),
        ("cta-size", {"threads": (256, 1, 1)}),
        ("cta-size", {"threads": (128, 3, 1)}),
        ("setmaxnreg", {"set_registers": ()}),
        ("setmaxnreg", {"set_registers": (40,)}),
        ("setmaxnreg", {"set_registers": (24, 240)}),
        ("mma", opcodes(HGMMA_64x256x16_F32_BF16=0)),
        ("mma", opcodes(HGMMA_64x256x16_F32_BF16=6)),
        ("mma", opcodes(HGMMA_64x128x16_F32_BF16=4)),
        ("mma-waits", {"ptx_waits": 1}),
        ("mma-waits", {"ptx_waits": 3}),
        ("tma-load", opcodes(UTMALDG_3D=0)),
        ("tma-multicast", opcodes(UTMALDG_3D=2, UTMALDG_3D_MULTICAST=0)),
        ("tma-store", opcodes(UTMASTG_3D=0)),
        ("mbarrier", opcodes(SYNCS_EXCH_64=0)),
        ("mbarrier", opcodes(SYNCS_EXCH_64=7)),
        ("mbarrier", opcodes(SYNCS_EXCH_64=9)),
    ],
)
def test_each_break_fails_its_check_alone(broken: str, changes: dict[str, Any]) -> None:
    failed = [check for check in check_contract(PLAN, replace(FACTS, **changes)) if check.ok is False]
    assert [check.id for check in failed] == [broken]
    assert failed[0].meaning


@pytest.mark.parametrize(("broken", "opcode"), [("wide-load", "LDG.E.128"), ("wide-store", "STG.E.128.STRONG.GPU")])
def test_a_narrower_access_fails_its_check(broken: str, opcode: str) -> None:
    plan = CodePlan("sm_90a", 384, 0, registers=(40, 232), wide_loads=2, wide_stores=2)
    counts = {"LDG.E.128": 2, "STG.E.128.STRONG.GPU": 2}
    assert holds(check_contract(plan, replace(FACTS, opcodes=counts)))
    narrow = counts | {opcode: 1, f"{opcode[:5]}.64": 9}
    assert [c.id for c in check_contract(plan, replace(FACTS, opcodes=narrow)) if c.ok is False] == [broken]


def test_rows_that_l2_is_not_asked_for_fail_their_check() -> None:
    plan = CodePlan("sm_90a", 384, 0, registers=(40, 232), row_prefetches=2)
    assert holds(check_contract(plan, replace(FACTS, opcodes={"UBLKPF.L2": 2})))
    failed = [c.id for c in check_contract(plan, replace(FACTS, opcodes={"UBLKPF.L2": 1})) if c.ok is False]
    assert failed == ["row-prefetch"]


TWO = replace(PLAN, mma=(MmaPlan("HGMMA.64x256x16", 4), MmaPlan("HGMMA.64x64x16", 36)))


@pytest.mark.parametrize(
    ("wide", "narrow", "other", "ok"),
    [(16, 72, 0, True), (16, 71, 0, False), (15, 72, 0, False), (16, 0, 0, False), (16, 72, 4, False)],
)
def test_every_planned_mma_is_there_and_no_other(wide: int, narrow: int, other: int, ok: bool) -> None:
    counts = opcodes(HGMMA_64x256x16_F32_BF16=wide, HGMMA_64x64x16_F32_BF16=narrow, HGMMA_64x8x16_F32_BF16=other)
    check = next(c for c in check_contract(TWO, replace(FACTS, **counts)) if c.id == "mma")  # type: ignore[arg-type]
    assert check.ok is ok
    assert check.planned == "a multiple of 4 HGMMA.64x256x16, a multiple of 36 HGMMA.64x64x16"


def test_messages_have_the_numbers() -> None:
    spilled = replace(FACTS, stack_bytes=1968, spill_store_bytes=11548, spill_load_bytes=11036)
    check = check_contract(replace(PLAN, accumulator_registers=256), spilled)[0]
    assert check.found == "1968 B stack, 0 LDL/STL, spills 11548 B out, 11036 B in"
    assert check.meaning.endswith("alone take 256 of the 232 registers of a consumer thread; try a simpler epilogue")
    check = check_contract(replace(PLAN, fewer_registers="`a knob`"), spilled)[0]
    assert check.meaning.endswith("try `a knob`, or a simpler epilogue")
    serial = check_contract(PLAN, replace(FACTS, warnings=(("C7511", "x"), ("C7599", "a new complaint"))))[1]
    assert "C7511: every MMA waits" in serial.meaning
    assert "C7599: a new complaint" in serial.meaning


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ("", "`tiling: {tile: [128, 128, 64]}`"),
        ("warpgroups: {schedule: pingpong}\ntiling: {tile: [128, 192, 64]}\n", "`schedule: cooperative` with the same"),
        ("warpgroups: {schedule: pingpong}\ntiling: {tile: [64, 192, 64]}\n", "`tiling: {tile: [64, 96, 64]}`"),
        ("warpgroups: {consumer: {count: 1}}\ntiling: {tile: [128, 8, 64]}\n", "`tiling: {tile: [64, 8, 64]}`"),
        ("warpgroups: {consumer: {count: 1}}\ntiling: {tile: [64, 8, 64]}\n", ""),
    ],
)
def test_what_takes_fewer_registers_is_legal(knobs: str, words: str) -> None:
    resolved = resolve_text(PLAIN + knobs).resolved
    (tiling,) = resolved.tilings
    found = plan_code(resolved, tiling).fewer_registers
    assert found.startswith(words)
    assert bool(found) == bool(words)


def test_kernels_without_an_operand_have_a_remedy_of_their_own() -> None:
    text = PLAIN.replace("  d:", "  c: bf16[m, n]?\n  d:") + "epilogue: {d: acc + c}\n"
    resolved = resolve_text(text).resolved
    found = {t.omitted: plan_code(resolved, t).fewer_registers for t in resolved.instances}
    assert found == {(): "`tiling: {tile: [128, 128, 64]}`", ("c",): "`tiling: {tile: [128, 128, 64]}`"}


def test_a_copy_of_rows_is_planned_too() -> None:
    resolved = resolve_text(gathered(PLAIN, "copy")).resolved
    plan = plan_code(resolved, resolved.built[-1])
    assert (plan.threads, plan.mma, plan.pdl_wait) == (256, (), True)
    assert plan_code(resolved, resolved.default).tma_loads == 2
    assert (
        plan_code(resolve_text(gathered(PLAIN)).resolved, resolve_text(gathered(PLAIN)).resolved.default).tma_loads == 1
    )


def test_warnings_that_the_dsl_does_not_tell_are_not_passed() -> None:
    check = next(c for c in check_contract(PLAN, replace(FACTS, warnings=None)) if c.id == "ptxas-warnings")
    assert check.ok is None


def test_sums_in_a_cluster_are_as_many_stores_as_a_thread_has_vectors() -> None:
    text = PLAIN + "warpgroups: {schedule: cooperative, consumer: {count: 1}}\n"
    text += "tiling: {tile: [64, 64, 64], cluster: [1, 1], split_k: 2, split_k_sum: ordered_cluster}\n"
    for how, stores, atomics in (("ordered_cluster", 64 * 64 // 128 // 4, 0), ("ordered_parallel", 0, 1)):
        resolved = resolve_text(text.replace("ordered_cluster", how)).resolved
        plan = plan_code(resolved, resolved.default)
        assert (plan.cluster_stores, plan.atomics) == (stores, atomics)
    planned = replace(PLAN, cluster_stores=8)
    for found, ok in ((8, True), (7, False)):
        checks = {c.id: c.ok for c in check_contract(planned, replace(FACTS, **opcodes(STAS_128=found)))}  # type: ignore[arg-type]
        assert checks["cluster-sum"] is ok


def test_no_multicast_planned_none_checked() -> None:
    checks = check_contract(
        replace(PLAN, multicast=False), replace(FACTS, **opcodes(UTMALDG_3D_MULTICAST=0, UTMALDG_3D=2))
    )
    assert holds(checks)
    assert "tma-multicast" not in [check.id for check in checks]


REMARKS = """\
--- !Analysis
Args:
  - RemarkId:    1
  - Remark:      'ptxas output: ptxas info    : (C7517) warpgroup.wait is injected in around line 21 by compiler to allow use of registers in function ''k_0''
ptxas info    : (C7517) warpgroup.wait is injected in around line 99 by compiler to allow use of registers in function ''k_0''
ptxas info    : (C7508) Potential Performance Loss: ''setmaxnreg'' ignored; unable to determine register count at entry.
ptxas         .     1968 bytes stack frame, 11548 bytes spill stores, 11036 bytes spill loads
'
...
"""  # noqa: E501
SASS = """\
\t.headerflags\t@"EF_CUDA_SM90"
.text.k_0:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/               @P1 BRA `(.L_x_0) ;
        /*0390*/                   USETMAXREG.DEALLOC.CTAPOOL 0x28 ;
.L_x_0:
        /*1940*/                   USETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0xe8 ;
        /*22e0*/                   HGMMA.64x256x16.F32.BF16 R24, gdesc[UR12], RZ, !UPT ;
        /*2330*/              @!P0 SYNCS.ARRIVE.TRANS64.ART0 RZ, [R8+URZ+0x20], R9 ;
        /*10e40*/             @UP0 UTMASTG.3D [UR24], [UR14], desc[URZ] ;
"""


def read(monkeypatch: pytest.MonkeyPatch, remarks: str | None) -> Facts:
    from cutegen.build.cubin import CubinKernel

    monkeypatch.setattr(facts_module, "read_cubin", lambda data: (CubinKernel("k_0", 168, 0, None, bytes(128)),))
    ptx = "wgmma.wait_group.sync.aligned \t1;\n\twgmma.wait_group.sync.aligned 0;\nwgmma.commit_group.sync.aligned;"
    return facts_module.read_facts(b"", SASS, ptx, remarks)


def test_texts_of_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = read(monkeypatch, REMARKS * 2)
    assert facts.opcodes == {
        "BRA": 1,
        "HGMMA.64x256x16.F32.BF16": 1,
        "LDC": 1,
        "SYNCS.ARRIVE.TRANS64.ART0": 1,
        "USETMAXREG.DEALLOC.CTAPOOL": 1,
        "USETMAXREG.TRY_ALLOC.CTAPOOL": 1,
        "UTMASTG.3D": 1,
    }
    assert (facts.instructions, facts.set_registers, facts.ptx_waits) == (7, (40, 232), 2)
    assert (facts.spill_store_bytes, facts.spill_load_bytes) == (11548, 11036)
    assert facts.warnings == (
        ("C7517", "warpgroup.wait is injected by compiler to allow use of registers"),
        ("C7508", "Potential Performance Loss: 'setmaxnreg' ignored; unable to determine register count at entry."),
    )


def test_no_remarks_is_not_no_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = read(monkeypatch, None)
    assert (facts.warnings, facts.spill_store_bytes) == (None, None)


def test_remarks_without_the_report_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="ptxas's report"):
        read(monkeypatch, "--- !Missed\nPass: ptxas\n...\n")


def test_facts_survive_json() -> None:
    for facts in (FACTS, replace(FACTS, threads=None, warnings=(("C7508", "x"),)), replace(FACTS, warnings=None)):
        assert Facts.from_json(json.loads(json.dumps(facts.to_json()))) == facts


@pytest.mark.parametrize("held", [None, "", [], {}, {"format": 1}, {"format": 2}, {"format": 2, "warnings": 3}])
def test_other_facts_are_refused(held: object) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        Facts.from_json(held)


@pytest.mark.parametrize(
    "data", [b"", b"\x7fELF\x02", b"\x7fELF\x02" + b"\0" * 60, b"\x7fELF\x02" + b"\xff" * 200, b"MZ" * 99]
)
def test_what_is_no_cubin_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a readable cubin"):
        read_cubin(data)


def test_without_a_disassembler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts_module, "find_nvdisasm", lambda: None)
    with pytest.raises(CutegenError, match="nvidia-cuda-nvdisasm"):
        disassemble(b"")
    monkeypatch.setattr(facts_module, "find_nvdisasm", lambda: "/bin/false")
    with pytest.raises(CutegenError, match="cannot read the cubin"):
        disassemble(b"")


def test_disassembler_is_looked_for_on_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    def missing(name: str) -> None:
        raise facts_module.importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(facts_module.importlib.metadata, "files", missing)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_nvdisasm() is None
    tool = tmp_path / "nvdisasm"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    assert find_nvdisasm() == str(tool)


@pytest.mark.parametrize(("check", "opcode"), [("pdl-wait", "ACQBULK"), ("pdl-trigger", "PREEXIT")])
def test_dependent_launch_is_there_when_and_only_when_it_is_planned(check: str, opcode: str) -> None:
    planned = replace(PLAN, **{check.replace("-", "_"): True})
    found = replace(FACTS, **opcodes(**{opcode: 1}))
    assert check not in [c.id for c in check_contract(PLAN, FACTS)]
    assert holds(check_contract(planned, found))
    for plan, facts in ((planned, FACTS), (PLAN, found)):
        assert [c.id for c in check_contract(plan, facts) if c.ok is False] == [check]


def test_nothing_is_accessed_before_the_wait_but_what_the_spec_says() -> None:
    waiting = replace(PLAN, pdl_wait=True)
    facts = replace(FACTS, **opcodes(ACQBULK=1))  # type: ignore[arg-type]
    assert "pdl-order" in [c.id for c in check_contract(waiting, facts)]
    assert holds(check_contract(waiting, facts))
    early = replace(facts, early={"LDG.E": 2})
    (broken,) = [c for c in check_contract(waiting, early) if c.ok is False]
    assert (broken.id, broken.found) == ("pdl-order", "2 LDG.E")
    assert holds(check_contract(replace(waiting, pdl_early=True), early))


@pytest.mark.parametrize(
    ("early", "kept"),
    [({"UTMALDG.2D": 1}, True), ({"UTMALDG.2D": 2}, True), ({}, False), ({"LDG.E": 1, "UTMALDG.2D": 1}, False)],
)
def test_operands_that_are_loaded_ahead_come_before_the_wait(early: dict[str, int], kept: bool) -> None:
    facts = replace(FACTS, early=early, **opcodes(ACQBULK=1))  # type: ignore[arg-type]
    checks = check_contract(replace(PLAN, pdl_wait=True, pdl_loads=1), facts)
    assert [c.id for c in checks if c.ok is False] == ["pdl-order"] * (not kept)


LINE = "/*{:04x}*/   {} ;\n"


@pytest.mark.parametrize(
    ("code", "early"),
    [
        (["UTMACCTL.PF [UR4]", "STS [R2], R3", "ACQBULK", "LDG.E R0, [R2]", "PREEXIT"], {}),
        (["@!P0 LDG.E.64 R0, [R2]", "ACQBULK", "LDG.E R0, [R2]"], {"LDG.E.64": 1}),
        (["UTMALDG.2D [UR8], [UR4]", "@P1 RED.E.ADD [R2], R3", "PREEXIT", "ACQBULK"],
         {"PREEXIT": 1, "RED.E.ADD": 1, "UTMALDG.2D": 1}),
        (["LDG.E R0, [R2]", "EXIT"], {}),
    ],
)  # fmt: skip
def test_accesses_before_the_wait_are_read_from_the_code(
    code: list[str], early: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = SimpleNamespace(name="k", registers=168, threads=(384, 1, 1), stack_bytes=0, code=bytes(64))
    monkeypatch.setattr(facts_module, "read_cubin", lambda data: [kernel])
    sass = "".join(LINE.format(16 * i, text) for i, text in enumerate(code))
    facts = facts_module.read_facts(b"", sass, "", None)
    assert facts.early == early
    assert Facts.from_json(json.loads(json.dumps(facts.to_json()))) == facts


@pytest.mark.parametrize(("ok", "held"), [(True, True), (None, True), (False, False)])
def test_what_a_toolchain_does_not_tell_breaks_no_contract(ok: bool | None, held: bool) -> None:
    assert holds((Check("a", "0", "0", True), Check("b", "none", "-", ok))) is held
