"""A kernel for SM100 on the PTX machine: right in every order of events, by one CTA and by pairs; and breaks of its
protocol, made in its PTX or its source, are reported."""

from __future__ import annotations

import functools
import importlib.util
import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy")
pytest.importorskip("torch")

from cutegen.machine import PtxError, Simulation
from cutegen.machine.host import missing_tool

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.thorough,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
    pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool())),
]
PAIR = {"ctas": 2, "tile_n": 256, "columns": 512}
SHAPE = (520, 264, 200)  # m, n, k: ragged; two tiles for a pair, more for CTAs alone
ARCH = "sm_100a"


@functools.cache
def compiled(settings: tuple[tuple[str, Any], ...], arch: str = ARCH) -> tuple[str, bytes]:
    """The PTX and the host function's object."""
    from mini_tcgen05 import MiniTiling, compile_kernel

    with tempfile.TemporaryDirectory() as folder:
        options = f"--gpu-arch {arch} --enable-tvm-ffi --keep-ptx --dump-dir {folder}"
        made = compile_kernel(MiniTiling(**dict(settings)), options)
        made.export_to_c(f"{folder}/kernel.o", function_name="cutegen_0123456789abcdef")
        return made.__ptx__, Path(folder, "kernel.o").read_bytes()


def told(
    settings: dict[str, Any],
    mutate: Callable[[str], str] | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    shape: tuple[int, int, int] = SHAPE,
    **options: Any,
) -> list[str]:
    """What each order reports, "" where the product is right."""
    simulation = Simulation(**{"sm_count": 4, "strict": True, "mutate": mutate, **options})
    return execute(simulation, tuple(settings.items()), seeds, shape)


def execute(
    simulation: Simulation,
    settings: tuple[tuple[str, Any], ...],
    seeds: Sequence[int] = (0,),
    shape: tuple[int, int, int] = SHAPE,
) -> list[str]:
    """As `told`, on a simulation that can be looked at afterwards."""
    import torch

    kernel = simulation.bind(*compiled(settings))
    assert simulation.lacking == []
    torch.manual_seed(0)
    m, n, k = shape
    a, b = (torch.randn(rows, k).to(torch.bfloat16) for rows in (m, n))
    expected = a.double() @ b.double().T
    found = []
    for simulation.seed in seeds:
        d = torch.full((m, n), float("nan"), dtype=torch.bfloat16)
        try:
            kernel(a, b, d, simulation.sm_count)
        except PtxError as error:
            found.append(str(error))
            continue
        error = (d.double() - expected).abs().max()
        found.append("" if error <= 2**-8 * expected.abs().max() else f"wrong: {float(error)}")
    return found


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("settings", [{}, PAIR, {"tile_n": 64}], ids=["alone", "pairs", "narrow"])
def test_it_is_right_in_five_orders(settings: dict[str, Any], strict: bool) -> None:
    assert told(settings, seeds=range(5), strict=strict) == [""] * 5


def test_each_architecture_of_the_family_gives_the_same_code() -> None:
    texts = {re.sub(r"\.target sm_\w+", "", compiled((), arch)[0]) for arch in (ARCH, "sm_103a")}
    assert len(texts) == 1


@pytest.mark.parametrize(
    ("fault", "strict", "said"),
    [
        ({"released": "before the load"}, False, "race: .*tensor memory"),
        ({"released": "before the load"}, True, "race: .*tensor memory"),
        ({"released": "before the wait"}, True, "race: .*tensor memory"),
        ({"wait_load": False}, True, "race: .*tensor memory"),
        ({"released": "before the wait"}, False, ""),
    ],
)
def test_accumulators_are_read_until_the_wait(fault: dict[str, Any], strict: bool, said: str) -> None:
    """What is right by luck of the registers is reported in strict mode alone."""
    for text in told({**PAIR, **fault}, strict=strict):
        assert re.search(said, text) if said else text == ""


def replacing(pattern: str, by: str, count: int = 0) -> Callable[[str], str]:
    def mutate(ptx: str) -> str:
        changed, n = re.subn(pattern, by, ptx, count=count)
        assert n, f"nothing in the PTX matches {pattern}"
        return changed

    return mutate


WAIT = r"LAB_WAIT:(?=\s+mbarrier\.try_wait[^}}]*\}}\s+// end inline asm\s+{})[^}}]*DONE:"
COMMIT = r"(tcgen05\.commit[^\n]*\[%r\d+\+{}\]), %rs\d+;"
# What is broken in the kernel of pairs; the PTX that is replaced, and by what; how often at most; what is reported.
BREAKS = [
    ("no fallback behind a peek", r"bra\.uni\s+LAB_WAIT;", "", 0, "race|wrong|no mbarrier|arrivals, but only"),
    ("the ring's commits are missing", COMMIT.format(24), "", 0, "deadlock"),
    ("the accumulators' commits are missing", COMMIT.format(48), "", 0, "deadlock"),
    ("a commit to one CTA of the pair", COMMIT.format(24), r"\1, 1;", 0, "deadlock"),
    ("a commit to the other CTA alone", COMMIT.format(48), r"\1, 2;", 0, "deadlock"),
    ("half of the bytes announced", r"(mbarrier\.arrive\.expect_tx[^;]*), %r\d+;", r"\1, 32768;", 0,
     "race|wrong|deadlock|outstanding"),
    ("more bytes announced", r"(mbarrier\.arrive\.expect_tx[^;]*), %r\d+;", r"\1, 65552;", 0, "deadlock"),
    ("loads signal the own CTA", r"and\.b32\s+(%r\d+), (%r\d+), -16777224;", r"mov.b32 \1, \2;", 0,
     "deadlock|arrivals, but only|outstanding"),
    ("no proxy fence", r"fence\.proxy\.async\.shared::cta;", "", 0, "without fence.proxy.async"),
    ("an output slot is reused early", r"cp\.async\.bulk\.wait_group\.read\s+0;(?=[\s\S]*bar\.sync\s+1)", "", 0,
     "race|wrong|exits"),
    ("no wait for stores at the end", r"cp\.async\.bulk\.wait_group\.read\s+0;(?![\s\S]*wait_group\.read)", "", 0,
     "exits without having waited"),
    ("no barrier before a store", r"bar\.sync\s+1, 128;", "", 0, "race|wrong|without fence"),
    ("tensor memory is not freed", r"tcgen05\.dealloc[^;]*;", "", 0, "without having freed its tensor memory"),
    ("too few columns", r"mov\.b32\s+(%r\d+), 512;(?=\s+tcgen05\.alloc)", r"mov.b32 \1, 256;", 0,
     "not one allocation"),
    ("columns that no allocation has", r"mov\.b32\s+(%r\d+), 512;(?=\s+tcgen05\.alloc)", r"mov.b32 \1, 384;", 0,
     "a power of two"),
    ("no barrier after the allocation", r"bar\.sync\s+2, 160;", "", 0, "race|columns .* are not one allocation"),
    ("allocated after the permit is given up", r"(tcgen05\.alloc\.cta_group::2)",
     r"tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned; \1", 0, "alloc after relinquish"),
    ("freed without the peer", r"mbarrier\.try_wait\.parity\.shared\.b64 P1, \[%r\d+\], 0, 10000000;",
     "setp.eq.b32 P1, 0, 0;", 0, "race|while products write|wrong|exits|exited|deadlock"),
    ("every lane issues products", r"elect\.sync\s+(%r\d+)\|(%p\d+), -1;(?=(?:(?!elect)[\s\S])*?tcgen05\.mma)",
     r"mov.b32 \1, 0; setp.eq.b32 \2, 0, 0;", 0, "issued by 32 lanes"),
    ("both CTAs of a pair issue products", r"mov\.u32\s+(%r\d+), %cluster_ctaid\.x;", r"mov.b32 \1, 0;", 1,
     "odd CTA of a pair|race|deadlock|wrong|arrivals"),
    ("no cluster barrier after the barriers' init", r"barrier\.cluster\.(arrive\.relaxed|wait);", "", 0,
     "no mbarrier is initialised"),
    ("an arrival too many expected", r"(mbarrier\.init\.shared\.b64\s+\[%r1\+64\]), %r\d+;", r"\1, 9;", 0, "deadlock"),
    ("the other parity", r"xor\.b32\s+(%r\d+), (%r\d+), 1;", r"mov.b32 \1, \2;", 0, "deadlock|race|wrong"),
    ("no fence of the barriers' init", r"fence\.mbarrier_init\.release\.cluster;", "", 0,
     "signalled by the async proxy, without fence.mbarrier_init"),
    ("a proxy fence of the barriers' init", r"fence\.mbarrier_init\.release\.cluster;", "fence.proxy.async;", 0,
     "signalled by other CTAs, without fence.mbarrier_init"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "pattern", "by", "count", "said"), BREAKS, ids=[name for name, *_ in BREAKS])
def test_each_break_is_told(name: str, pattern: str, by: str, count: int, said: str) -> None:
    found = told(PAIR, replacing(pattern, by, count), seeds=range(5))
    assert any(text and re.search(said, text) for text in found), [text[:400] for text in found]


@pytest.mark.parametrize(
    ("pattern", "by"),
    [
        (r"kind::f16", "kind::f16.ws"),
        (r"kind::f16", "kind::none"),
        (r"tcgen05\.ld\.sync\.aligned\.32x32b", "tcgen05.ld.red.sync.aligned.32x32b"),
        (r"tcgen05\.wait::ld\.sync\.aligned", "tcgen05.shift.cta_group::1.down"),
    ],
)
def test_unknown_forms_are_refused_by_name(pattern: str, by: str) -> None:
    simulation = Simulation(mutate=replacing(pattern, by))
    simulation.bind(*compiled(()))
    assert simulation.lacking
    assert all(by in text for text in simulation.lacking)
