"""MLA decode of sm_100a: what is planned, what is refused and where."""

from __future__ import annotations

from typing import Any

import pytest
from gemm_specs import resolve_text
from mla_specs import MLA, QUANTISED, SPARSE

from cutegen.diagnostics import SpecError
from cutegen.families.mla_decode.explain import explain
from cutegen.families.mla_decode.lowering import plan_code
from cutegen.families.mla_decode.tuning import MlaSpace
from cutegen.render import render_package
from cutegen.render.names_table import resolve_probe
from cutegen.spec import load_text, parse_spec

SM100 = MLA.replace("sm_90a", "sm_100a")
E4M3 = "kv_cache: {page_size: 64, latent: {dtype: e4m3}, rope: {dtype: e4m3}}\n"


def resolved(more: str = "", text: str = SM100) -> Any:
    return resolve_text(text + more).resolved


@pytest.mark.parametrize("page_size", [16, 32, 64, 128])
def test_shared_memory_is_full(page_size: int) -> None:
    (tiling,) = resolved(f"kv_cache: {{page_size: {page_size}}}\n").tilings
    numbers = tiling.numbers
    assert (tiling.name, numbers.cluster, numbers.unit, numbers.threads) == ("pair", 2, 2, 352)
    assert (numbers.stages, numbers.smem_bytes) == (15, 232448)  # as many slots as CUTLASS's kernel has
    assert (numbers.producer_registers, numbers.consumer_registers) == (0, 0)


@pytest.mark.parametrize("page_size", [16, 128])
def test_a_quantised_cache_has_as_many_slots_of_twice_the_keys(page_size: int) -> None:
    made = resolved(E4M3.replace("64", str(page_size)))
    (tiling,) = made.tilings
    assert (tiling.numbers.stages, tiling.numbers.smem_bytes) == (15, 232448)
    held = {region.name: (region.field.element.name, region.field.bytes) for region in tiling.model.smem}
    assert held["sQ"] == ("Float8E4M3FN", 2 * 64 * 576)  # two values each
    assert held["sP"] == ("Float8E4M3FN", 2 * 2 * 64 * 128)
    assert held["sKV"] == ("Float8E4M3FN", 15 * 8192)
    plan = plan_code(made, tiling)
    assert [(m.opcode, m.step) for m in plan.mma] == [("UTCQMMA.2CTA", 16)]
    assert plan.tma_loads == {16: 8, 128: 2}[page_size]  # of K and V; Q passes through registers


@pytest.mark.parametrize("cache", ["", E4M3])
def test_requests_that_are_cut_by_their_own_lengths(cache: str) -> None:
    made = resolved(cache + "invariance: batch\nsplit_kv: {keys: 256}\n")
    assert made.tilings[0].numbers.max_splits == 4
    kernel = render_package(made).files["kernel.py"]
    assert "fixed_cut.find_pieces(" in kernel
    assert "PIECE = 2  # pairs of key blocks" in kernel
    assert len(kernel.splitlines()) <= 1300


def test_a_row_of_warps_has_each_role_once() -> None:
    model = resolved().tilings[0].model
    warps = [w for role in model.roles for w in range(role.warps.first, role.warps.last + 1)]
    assert warps == list(range(11))
    assert model.threads("EXCHANGED") == model.threads("HALVES") == 64
    assert model.count_mbarriers() == 42


@pytest.mark.parametrize(("page_size", "q", "loads"), [(64, "joined", 4), (128, "split", 5), (16, "joined", 9)])
def test_planned_code(page_size: int, q: str, loads: int) -> None:
    made = resolved(f"kv_cache: {{page_size: {page_size}}}\nq: {q}\n")
    plan = plan_code(made, made.tilings[0])
    assert [(m.opcode, m.step) for m in plan.mma] == [("UTCHMMA.2CTA", 8)]
    assert (plan.tma_loads, plan.registers, plan.mbarriers) == (loads, (), 42)


def test_explained_with_tensor_memory_and_a_timeline() -> None:
    made = resolved()
    text = "\n".join(line for section in explain(made, None) for line in section.lines)
    assert "columns 0..127: S, 2 blocks x 64" in text
    assert "384 of 512 columns allocated" in text
    kernel = render_package(made).files["kernel.py"]
    assert "Timeline of a launch" in kernel
    assert len(kernel.splitlines()) <= 1300


def test_the_kernel_of_sm_103a_is_that_of_sm_100a() -> None:
    kernels = [
        render_package(resolved(text=SM100.replace("sm_100a", arch))).files["kernel.py"]
        for arch in ("sm_100a", "sm_103a")
    ]
    first, second = (kernel.split("\n", 3)[3] for kernel in kernels)
    assert first == second.replace("sm_103a", "sm_100a")


SEVERAL = MLA.replace("sm_90a", "[sm_90a, sm_100a]")


def parts_of(text: str) -> tuple[Any, ...]:
    return tuple(resolution.resolved for resolution in resolve_probe(text))


def test_one_package_for_several_architectures() -> None:
    hopper, blackwell = parts_of(SEVERAL + "for: {sm_90a: {variant: seesaw}, sm_100a: {split_kv: {max: 4}}}\n")
    assert [hopper.variant, blackwell.variant] == ["seesaw", "pair"]
    assert blackwell.tilings[0].numbers.max_splits == 4
    files = render_package(hopper, blackwell).files
    assert {"kernel_sm_90a.py", "kernel_sm_100a.py", "plan_sm_90a.py", "plan_sm_100a.py"} < files.keys()
    assert "class Plan(PlanByArch)" in files["plan.py"]
    assert "kernel_sm_100a" in files["plan_sm_100a.py"]
    assert "seesaw" not in files["plan_sm_100a.py"]


def test_one_package_for_two_architectures_over_a_quantised_cache() -> None:
    hopper, blackwell = parts_of(SEVERAL + E4M3)
    files = render_package(hopper, blackwell).files
    assert "two_terms" not in files["kernel_sm_90a.py"]
    assert "two_terms.split" in files["kernel_sm_100a.py"]
    assert "CacheFormat(" in files["plan.py"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("warpgroups: {producer: {registers: 24}}\n", "write it under `for: {sm_90a: ...}`"),
        ("for: {sm_100a: {variant: seesaw}}\n", "leave it `auto`"),
        ("for: {sm_90a: {pdl: {ready: [block_table]}}}\n", "what is promised"),
    ],
)
def test_what_several_architectures_cannot_have(more: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        parts_of(SEVERAL + more)
    assert said in caught.value.report()


@pytest.mark.parametrize(
    ("text", "key", "said"),
    [
        (QUANTISED, "scale", "a cache with scales in its rows on sm_100a"),
        (
            MLA + E4M3.replace("e4m3}", "e4m3, offset: 64}", 1).replace("e4m3}}", "e4m3, offset: 0}}"),
            "offset",
            "a rotary part before the latent one on sm_100a",
        ),
        (SPARSE, "keys", "a choice of keys by indices on sm_100a"),
        (MLA + "pdl: {ready: [block_table]}\n", "ready", "what is loaded ahead of the wait on sm_100a"),
        (MLA + "warpgroups: {producer: {registers: 24}}\n", "warpgroups", "a choice of registers on sm_100a"),
    ],
)
def test_what_is_not_there_yet_is_refused_where_it_stands(text: str, key: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        resolve_text(text.replace("sm_90a", "sm_100a"))
    (found,) = [d for d in caught.value.diagnostics if said in d.message]
    assert found.rule == "mla-sm100-spec"
    assert f"{key}:" in found.source_line


@pytest.mark.parametrize(
    ("text", "variant", "remedy"),
    [
        (SM100, "seesaw", "leave it `auto`"),
        (SM100, "both", "leave it"),
        (MLA, "pair", "use seesaw, seesaw_2cta, keys_on_m or both"),
    ],
)
def test_a_variant_of_another_architecture(text: str, variant: str, remedy: str) -> None:
    with pytest.raises(SpecError) as caught:
        resolve_text(text + f"variant: {variant}\n")
    (found,) = caught.value.diagnostics
    assert found.rule == "variant-arch"
    assert remedy in f"{found.remedy}"


def test_what_tune_may_try() -> None:
    spec = parse_spec(load_text(SM100, "tuned", "tuned.yaml"))
    proposals = list(MlaSpace(spec, resolved()).propose({"batch": 8, "query_len": 1, "heads": 128, "kv_len": 900}))  # type: ignore[arg-type]
    assert len(proposals) == 6
    assert not any(p.refusals for p in proposals)
