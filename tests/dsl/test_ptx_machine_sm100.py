"""GEMMs of sm_100a on the PTX machine, strict: shipped ones are right in five orders, other forms in two, and breaks
are reported."""

from __future__ import annotations

import functools
import importlib.util
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("numpy")
pytest.importorskip("torch")

from gemm_specs import resolve_text

from cutegen.machine import Simulation, assert_passes, load, load_resolution, run
from cutegen.machine.host import missing_tool
from cutegen.run.subject import Subject

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
    pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool())),
]
GENERATED = Path(__file__).parents[2] / "generated"
PAIR = GENERATED / "gemm_bf16_2cta_sm100a"
RAGGED = {"m": 264, "n": 272, "k": 480}  # more k tiles than slots, and more tiles than pairs
SHAPE = {"m": 520, "n": 272, "k": 480}
FUSED = """\
cutegen: 1
kernel: gemm
arch: sm_100a
tensors:
  a: f16[l, m, k]
  b: f16[l, n, k]
  bias: bf16[n]
  scale: f32[l, m]
  alpha: f32
  beta: f32[]
  d: f16[l, m, n]
  e: f32[l, m, n]
  q: e4m3[l, m, n]
epilogue:
  e: alpha * scale * acc
  d: gelu_tanh(acc + bias)
  q: acc * beta
"""
BYTES = """\
cutegen: 1
kernel: gemm
arch: sm_100a
tensors:
  a: {a}
  b: {b}
  sa: f32[m]
  sb: f32[n]
  d: bf16[m, n]
mainloop: (a * sa) @ (b * sb)
"""
RESIDUAL = """\
cutegen: 1
kernel: gemm
arch: sm_100a
tensors:
  a: bf16[m, k]
  b: bf16[n, k]
  c: bf16[m, n]
  d: bf16[m, n]
epilogue:
  d: acc + c
tiling: {tile: [128, 64, 64], mma_ctas: 2}
pipeline: {load_stages: 2}
"""
READS = """\
cutegen: 1
kernel: gemm
arch: sm_100a
tensors:
  a: f16[l, m, k]
  b: f16[l, n, k]
  c: f32[m, n]?
  bias: f32[n]?
  beta: f32[]
  d: f16[l, m, n]
  e: f16[l, m, n]
epilogue:
  d: relu(acc + bias) + beta * c
  e: acc
tiling: {tile: [128, 64, 64], mma_ctas: 1}
"""
GATED = """\
cutegen: 1
kernel: gemm
arch: sm_100a
tensors:
  a: bf16[m, k]
  b: BF16
  bias: f32[n]
  d: bf16[m, n/2]
  e: f16[m, n/2]
epilogue:
  d: silu(acc[:, FIRST] + bias[FIRST]) * acc[:, SECOND]
  e: acc[:, FIRST]
"""
FLAT = """\
cutegen: 1
kernel: gemm
arch: sm_100a
tensors:
  a: bf16[l, m, k]
  b: bf16[l, n, k]
  c: f16[m, n]
  bias: f32[n]
  d: bf16[l, m, n]
  q: e4m3[l, m, n]
  widest: f32[l, m]
  totals: f32[l, n]
epilogue:
  d: acc + bias + c
  q: acc
  widest: max_abs(acc, n)
  totals: sum(acc, m)
"""
FORMS = {
    "few rows, transposed": FLAT + "dims: {m: 24}\ntiling: {swap_ab: true, tile: [128, 16, 128]}\n",
    "few rows, transposed, pairs": FLAT + "dims: {m: 72}\ntiling: {swap_ab: true, tile: [128, 32, 64], mma_ctas: 2}\n",
    "few rows, 2 parts of k": FLAT.partition("  widest")[0]
    + "epilogue: {d: acc + bias + c, q: acc}\ndims: {m: 24}\n"
    + "tiling: {swap_ab: true, tile: [128, 16, 128], split_k: 2}\n",
    "3 parts of k": FUSED + "tiling: {tile: [128, 96, 32], split_k: 3}\n",
    "gated, 2 parts of k": GATED.replace("BF16", "bf16[n, k]").replace("FIRST", ":n/2").replace("SECOND", "n/2:")
    + "tiling: {tile: [128, 64, 64], split_k: 2}\n",
    "m contiguous": FLAT.replace("f16[m, n]", "f16[m, n]@m").replace("bf16[l, m, n]", "bf16[l, n, m]")
    + "dims: {m: 136}\ntiling: {tile: [128, 48, 64], mma_ctas: 1}\n",
    "fused, alone, 96 columns": FUSED + "tiling: {tile: [128, 96, 64], mma_ctas: 1}\n",
    "fused, pairs, one sum": FUSED + "tiling: {tile: [128, 256, 32], mma_ctas: 2}\npipeline: {stages: 3}\n",
    "32 columns": FUSED + "tiling: {tile: [128, 32, 128], mma_ctas: 2, raster: {order: along_n}}\n",
}


def found(
    make: Callable[[Simulation], Subject], shape: dict[str, int], orders: int, **options: object
) -> Iterator[str]:
    """What each order reports, "" where results are right."""
    simulation = Simulation(**{"sm_count": 4, "strict": True, **options})  # type: ignore[arg-type]
    subject = make(simulation)
    assert simulation.unknown() == []
    for simulation.seed in range(orders):
        result = run(subject, shape, seed=1)
        text = "\n".join(result.detail)
        assert (result.status == "pass") == (not text)
        yield text


def assert_reported(said: str, texts: Iterable[str]) -> None:
    """Looks no further than the first order that reports it."""
    seen = []
    for text in texts:
        if re.search(said, text):
            return
        seen.append(text[:400])
    pytest.fail(f"{said} is not among {seen}")


@pytest.mark.parametrize("name", sorted(path.name for path in GENERATED.glob("gemm_*_sm100a")))
@pytest.mark.parametrize("shape", [RAGGED, {"m": 1, "n": 16, "k": 32}], ids=["ragged", "least"])
def test_shipped_kernels_are_right_in_five_orders(name: str, shape: dict[str, int]) -> None:
    if "quant" in name:  # blocks of 32 columns, of one output two of n
        shape = shape | {"n": -(-shape["n"] // 64) * 64}
    assert list(found(functools.partial(load, GENERATED / name), shape, 5)) == [""] * 5


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_other_forms_are_right_in_two_orders(form: str) -> None:
    resolution = resolve_text(form)
    problem = resolution.resolved.problem
    shape = {"l": 2, "m": problem.m.value or 200, "n": 112, "k": 264}
    shape = {name: extent for name, extent in shape.items() if problem.batch or name != "l"}
    assert list(found(lambda s: load_resolution(resolution, s), shape, 2)) == [""] * 2


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("a", "b", "more"),
    [
        ("i8[m, k]", "i8[n, k]", ""),
        ("e5m2[m, k]", "e4m3[n, k]", "tiling: {tile: [128, 64, 128], mma_ctas: 1}\n"),
        ("e4m3[k, m]", "e4m3[k, n]", ""),
        ("bf16[k, m]", "bf16[n, k]", "tiling: {tile: [128, 128, 64], mma_ctas: 1}\n"),
        ("f16[m, k]", "f16[k, n]", ""),
        ("bf16[m, k]", "bf16[n, k]", "tiling: {cluster: [2, 2], tile: [128, 128, 64]}\n"),
        ("bf16[k, m]", "bf16[k, n]", "tiling: {cluster: [4, 1], tile: [128, 256, 64]}\n"),
        ("e4m3[m, k]", "e4m3[n, k]", "tiling: {cluster: [1, 2], tile: [128, 64, 128]}\n"),
        ("bf16[m, k]", "bf16[n, k]", "tiling: {cluster: [2, 2], tile: [128, 64, 64], mma_ctas: 1}\n"),
    ],
    ids=[
        "i8",
        "e5m2 by e4m3",
        "e4m3, m and n contiguous",
        "bf16, m contiguous",
        "f16, n contiguous",
        "2 pairs along n",
        "2 pairs along m",
        "2 along n",
        "4 alone",
    ],
)
def test_operands_are_right_in_two_orders(a: str, b: str, more: str) -> None:
    resolution = resolve_text(BYTES.format(a=a, b=b) + more)
    assert list(found(lambda s: load_resolution(resolution, s), {"m": 272, "n": 272, "k": 336}, 2)) == [""] * 2


def test_tiles_that_the_epilogue_reads() -> None:
    """With and without optional operands; with a scalar of 0, where no tile is read."""
    simulation = Simulation(sm_count=4, strict=True)
    subject = load_resolution(resolve_text(READS), simulation)
    first = next(iter(subject.tilings))
    for tiling in (first, *(f"{first}_without_{left_out}" for left_out in ("c", "bias", "c_without_bias"))):
        for simulation.seed in range(2):
            assert_passes(subject, {"l": 2, "m": 136, "n": 112, "k": 136}, tiling=tiling)
        assert_passes(subject, {"l": 2, "m": 136, "n": 112, "k": 136}, tiling=tiling, mode="zeroed")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("halves", "b", "more"),
    [
        ((":n/2", "n/2:"), "bf16[n, k]", "tiling: {tile: [128, 128, 64], mma_ctas: 2}\n"),
        ((":n/2", "n/2:"), "bf16[k, n]", "tiling: {tile: [128, 128, 64], mma_ctas: 2}\n"),
        ((":n/2", "n/2:"), "bf16[n, k]", "tiling: {tile: [128, 128, 64], cluster: [4, 1]}\n"),
        (("0::2", "1::2"), "bf16[n, k]", "tiling: {tile: [128, 64, 64], mma_ctas: 1}\n"),
    ],
    ids=["pairs", "pairs, n contiguous", "2 pairs along m", "alone, interleaved"],
)
def test_gated_products_are_right_in_two_orders(halves: tuple[str, str], b: str, more: str) -> None:
    text = GATED.replace("FIRST", halves[0]).replace("SECOND", halves[1]).replace("BF16", b)
    resolution = resolve_text(text + more)
    assert list(found(lambda s: load_resolution(resolution, s), {"m": 272, "n": 272, "k": 336}, 2)) == [""] * 2


def test_the_ptx_of_sm_103a_is_that_of_sm_100a() -> None:
    """But for its target; so what is executed of one is said of the other."""
    texts = []
    for arch in ("sm_100a", "sm_103a"):
        text = BYTES.format(a="e4m3[m, k]", b="e4m3[n, k]").replace("sm_100a", arch)
        simulation = Simulation(sm_count=2, strict=True, mutate=lambda ptx: (texts.append(ptx), ptx)[1])
        subject = load_resolution(resolve_text(text), simulation)
        assert run(subject, {"m": 272, "n": 272, "k": 160}, seed=1).status == "pass"
    own, other = (re.sub(r"\.loc [^\n]*|sm_10[03]a", "", text.partition(".file")[0]) for text in texts)
    assert own == other
    assert "tcgen05.mma" in own


def replacing(pattern: str, by: str, count: int = 0) -> Callable[[str], str]:
    """A mutation of PTX, which has to apply. count: how often at most, 0 for everywhere."""

    def mutate(ptx: str) -> str:
        changed, n = re.subn(pattern, by, ptx, count=count)
        assert n, f"nothing in the PTX matches {pattern}"
        return changed

    return mutate


COMMIT = r"(tcgen05\.commit[^\n]*\[%r\d+\+{}\]), %rs\d+;"  # behind 6 full barriers: empty ones; then those of sums
# What is broken; the PTX that is replaced, and by what; how often at most; what is reported.
BREAKS = [
    ("the ring's commits are missing", COMMIT.format(48), "", 0, "deadlock"),
    ("the sums' commits are missing", COMMIT.format(96), "", 0, "deadlock"),
    ("a commit to one CTA of the pair", COMMIT.format(48), r"\1, 1;", 0, "deadlock"),
    ("more bytes announced", r"(mbarrier\.arrive\.expect_tx[^;]*), %r\d+;", r"\1, 65552;", 0, "deadlock"),
    ("half of the bytes announced", r"(mbarrier\.arrive\.expect_tx[^;]*), %r\d+;", r"\1, 32768;", 0,
     "race|wrong|deadlock|outstanding"),
    ("no proxy fence", r"fence\.proxy\.async\.shared::cta;", "", 0, "without fence.proxy.async"),
    ("no wait for tensor memory", r"tcgen05\.wait::ld\.sync\.aligned;", "", 0, "race: .*tensor memory"),
    ("no barrier before a store", r"bar\.sync\s+1, 128;", "", 0, "race|wrong|without fence"),
    ("no barrier after the allocation", r"bar\.sync\s+2, 160;", "", 0, "race|columns .* are not one allocation"),
    ("an output slot is reused early", r"cp\.async\.bulk\.wait_group\.read\s+2;", "", 0, "race|wrong"),
    ("no wait for stores at the end", r"cp\.async\.bulk\.wait_group\.read\s+0;", "", 0, "exits without having waited"),
    ("tensor memory is not freed", r"tcgen05\.dealloc[^;]*;", "", 0, "without having freed its tensor memory"),
    ("the other parity", r"xor\.b32\s+(%r\d+), (%r\d+), 1;", r"mov.b32 \1, \2;", 0, "deadlock|race|wrong"),
    ("no fence of the barriers' init", r"fence\.mbarrier_init\.release\.cluster;", "", 0,
     "signalled by the async proxy, without fence.mbarrier_init"),
    ("no wait for the preceding kernel", r"griddepcontrol\.wait;", "", 0, "before griddepcontrol.wait"),
    ("no cluster barrier", r"barrier\.cluster\.(arrive\.relaxed|wait);", "", 0, "no mbarrier is initialised"),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "by", "count", "said"), [b[1:] for b in BREAKS], ids=[b[0] for b in BREAKS])
def test_each_break_is_reported(pattern: str, by: str, count: int, said: str) -> None:
    assert_reported(said, found(functools.partial(load, PAIR), SHAPE, 3, mutate=replacing(pattern, by, count)))


# Of the ring of tiles that the epilogue reads; the ring of A and B of a pair is signalled by other instructions.
EXPECT = r"mbarrier\.arrive\.expect_tx\.shared\.b64 (%rd\d+), (\[%r\d+\]), %r\d+;"
OF_TILE = r"(?=(?:(?!expect_tx)[\s\S])*?shared::cta\.global)"
TILE_BREAKS = [
    ("slots are not given back", r"mbarrier\.arrive\.shared\.b64 [^;]*;", "", "deadlock"),
    ("bytes are not waited for", EXPECT + OF_TILE, r"mbarrier.arrive.shared.b64 \1, \2;", "race|wrong|outstanding"),
    ("more bytes are announced", EXPECT + OF_TILE, r"mbarrier.arrive.expect_tx.shared.b64 \1, \2, 8208;", "deadlock"),
    ("a tile is not loaded", r"cp\.async\.bulk\.tensor\.2d\.shared::cta\.global[^;]*;", "", "deadlock"),
]


@pytest.mark.parametrize(("pattern", "by", "said"), [b[1:] for b in TILE_BREAKS], ids=[b[0] for b in TILE_BREAKS])
def test_each_break_of_the_ring_of_tiles_is_reported(pattern: str, by: str, said: str) -> None:
    resolution = resolve_text(RESIDUAL)
    assert_reported(said, found(lambda s: load_resolution(resolution, s), SHAPE, 3, mutate=replacing(pattern, by)))


# Of parts of k in a cluster, which has two tiles.
SPLIT = BYTES.format(a="bf16[m, k]", b="bf16[n, k]") + "tiling: {tile: [128, 64, 64], split_k: 2}\n"
SPLIT_BREAKS = [
    ("nothing is given", r"st\.async\.shared::cluster[^;]*;", "", "deadlock"),
    ("nobody is told", r"mbarrier\.arrive\.relaxed\.cluster[^;]*;", "", "deadlock"),
    ("told too early", r"fence\.acq_rel\.cluster;", "", "race"),
    ("read too early", r"try_wait\.parity\.acquire\.cluster", "try_wait.parity.relaxed.cluster", "race"),
    ("tensor memory is not waited for", r"tcgen05\.wait::ld\.sync\.aligned;", "", "race: .*tensor memory"),
]


@pytest.mark.thorough
@pytest.mark.parametrize(("pattern", "by", "said"), [b[1:] for b in SPLIT_BREAKS], ids=[b[0] for b in SPLIT_BREAKS])
def test_each_break_of_sums_of_parts_is_reported(pattern: str, by: str, said: str) -> None:
    resolution = resolve_text(SPLIT)
    shape = {"m": 264, "n": 64, "k": 264}
    options = {"sm_count": 2, "mutate": replacing(pattern, by)}
    assert_reported(said, found(lambda s: load_resolution(resolution, s), shape, 3, **options))


# Of three slots, so that empty barriers are 24 bytes behind full ones.
SHARED = (
    BYTES.format(a="bf16[m, k]", b="bf16[n, k]")
    + "tiling: {cluster: [2, 2], tile: [128, 64, 64]}\npipeline: {stages: 3}\n"
)
SHARED_BREAKS = [
    ("a slot is given back to the own pair alone", COMMIT.format(24), r"\1, 3;", "deadlock"),
    (
        "A is sent to one CTA",
        r"(multicast::cluster[^;]*\], \[%r\d+\]), %rs\d+",
        r"\1, 1",
        "deadlock|outstanding|wrong|race",
    ),
]


@pytest.mark.parametrize(("pattern", "by", "said"), [b[1:] for b in SHARED_BREAKS], ids=[b[0] for b in SHARED_BREAKS])
def test_each_break_of_shared_loads_is_reported(pattern: str, by: str, said: str) -> None:
    resolution = resolve_text(SHARED)
    assert_reported(said, found(lambda s: load_resolution(resolution, s), SHAPE, 3, mutate=replacing(pattern, by)))
