"""Blackwell's instructions other than tcgen05, in small programs. Needs numpy and neither CuTe DSL nor a GPU."""

from __future__ import annotations

import struct
from typing import Any

import pytest

np = pytest.importorskip("numpy")

from test_ptx_machine import LANES, execute  # noqa: E402

from cutegen.machine.assembler import Assembler  # noqa: E402
from cutegen.machine.floats import from_bits, to_bits  # noqa: E402
from cutegen.machine.machine import Launch, Machine  # noqa: E402
from cutegen.machine.memory import GlobalMemory, Region  # noqa: E402
from cutegen.machine.parser import PtxError, parse  # noqa: E402

RANDOM = np.random.default_rng(7)


def pairs(instruction: str, *sources: Any) -> Any:
    """(lanes, 2) f32 of an instruction on %rd5, %rd6, %rd7, each a pair of f32."""
    out = np.zeros((LANES, 2), np.float32)
    arrays = [np.ascontiguousarray(s, np.float32) for s in (*sources, out)]
    loads = "mul.wide.u32 %rd10, %r0, 8;\n"
    for i in range(len(sources)):
        loads += f"add.s64 %rd11, %rd{i}, %rd10; ld.global.b64 %rd{5 + i}, [%rd11];\n"
    body = f"{loads}{instruction}\nadd.s64 %rd11, %rd{len(sources)}, %rd10; st.global.b64 [%rd11], %rd20;"
    execute(body, *arrays)
    return arrays[-1]


def test_pairs_of_f32() -> None:
    a, b, c = RANDOM.normal(size=(3, LANES, 2)).astype(np.float32)
    assert (pairs("add.rn.f32x2 %rd20, %rd5, %rd6;", a, b) == a + b).all()
    assert (pairs("mul.rn.f32x2 %rd20, %rd5, %rd6;", a, b) == a * b).all()
    exact = (a.astype(np.float64) * b + c).astype(np.float32)
    assert (pairs("fma.rn.f32x2 %rd20, %rd5, %rd6, %rd7;", a, b, c) == exact).all()


@pytest.mark.parametrize(
    ("name", "function"), [("max", np.fmax), ("min", np.fmin), ("max.NaN", np.maximum), ("min.NaN", np.minimum)]
)
def test_the_largest_of_three(name: str, function: Any) -> None:
    a, b, c = RANDOM.normal(size=(3, LANES)).astype(np.float32)
    a[3] = b[5] = c[7] = np.nan
    out = np.zeros(LANES, np.float32)
    loads = "".join(f"add.s64 %rd11, %rd{i}, %rd10; ld.global.b32 %r{i + 1}, [%rd11];\n" for i in range(3))
    execute(
        f"{loads}{name}.f32 %r5, %r1, %r2, %r3;\nadd.s64 %rd11, %rd3, %rd10; st.global.b32 [%rd11], %r5;", a, b, c, out
    )
    assert np.array_equal(out, function(function(a, b), c), equal_nan=True)


def test_moves_of_128_bits_keep_both_halves_of_active_lanes() -> None:
    out = np.zeros((LANES, 2), np.uint64)
    body = """
.reg .b128 %rq<4>;
cvt.u64.u32 %rd5, %r0; add.s64 %rd6, %rd5, 100;
mov.b128 %rq1, {%rd5, %rd6};
setp.lt.u32 %p1, %r0, 16;
mov.b64 %rd7, 7;
@%p1 mov.b128 %rq1, {%rd7, %rd7};
mov.b128 %rq2, %rq1;
mov.b128 {%rd8, %rd9}, %rq2;
mul.wide.u32 %rd11, %r0, 16; add.s64 %rd11, %rd0, %rd11;
st.global.v2.b64 [%rd11], {%rd8, %rd9};
"""
    execute(body, out)
    lane = np.arange(LANES)
    assert out[:, 0].tolist() == np.where(lane < 16, 7, lane).tolist()
    assert out[:, 1].tolist() == np.where(lane < 16, 7, lane + 100).tolist()


def fragments(rows: int, k: int, per: int) -> Any:
    """Places of a matrix (rows, k) in fragments: (registers, lanes, elements of a register) of (row, column)."""
    lane, e = np.arange(LANES)[None, :, None], np.arange(per)[None, None, :]
    i = np.arange(rows // 8 * k // (4 * per))[:, None, None]
    half, part = (i % 2, i // 2) if rows == 16 else (0 * i, i)
    return lane // 4 + 8 * half + 0 * e, part * 4 * per + lane % 4 * per + e


def multiply(opcode: str, a: Any, b: Any, per: int, tail: str = "", more: str = "") -> Any:
    """d = a b^T of bit patterns (16, k) and (8, k), by an mma.sync whose sum starts at 1."""
    k = a.shape[1]
    words = []
    for matrix, rows in ((a, 16), (b, 8)):
        row, column = fragments(rows, k, per)
        bits = matrix[row, column].astype(np.uint32) << (np.arange(per) * (32 // per)).astype(np.uint32)
        words.append(np.bitwise_or.reduce(bits.astype(np.uint32), 2))
    out = np.zeros((4, LANES), np.float32)
    names = [[f"%r{start + i}" for i in range(len(w))] for start, w in zip((10, 14), words)]
    loads = "".join(
        f"add.s64 %rd11, %rd{m}, %rd10; ld.global.b32 {name}, [%rd11+{i * 128}];\n"
        for m in range(2)
        for i, name in enumerate(names[m])
    )
    one = "".join(f"mov.b32 %r{20 + i}, 0f3F800000;\n" for i in range(4))
    sums = ", ".join(f"%r{20 + i}" for i in range(4))
    body = f"{loads}{one}{more}mma.sync.aligned.{opcode} {{{sums}}}, {{{', '.join(names[0])}}}, "
    body += f"{{{', '.join(names[1])}}}, {{{sums}}}{tail};\n"
    body += "".join(f"add.s64 %rd11, %rd2, %rd10; st.global.b32 [%rd11+{i * 128}], %r{20 + i};\n" for i in range(4))
    execute(body, *map(np.ascontiguousarray, words), out)
    lane, i = np.arange(LANES)[None, :], np.arange(4)[:, None]
    found = np.zeros((16, 8), np.float32)
    found[lane // 4 + 8 * (i // 2), lane % 4 * 2 + i % 2] = out
    return found


@pytest.mark.parametrize("kind", ["bf16", "f16"])
def test_products_of_a_warp(kind: str) -> None:
    a, b = (to_bits(RANDOM.normal(size=(rows, 16)).astype(np.float32), kind) for rows in (16, 8))
    found = multiply(f"m16n8k16.row.col.f32.{kind}.{kind}.f32", a, b, 2)
    assert np.allclose(found, 1 + from_bits(a, kind) @ from_bits(b, kind).T, atol=1e-5)


def test_products_with_a_scale_for_each_row() -> None:
    """e4m3 with one scale of 32 elements: 2^1 for A, 2^-1 for B, in the byte and the threads that are selected."""
    a, b = (to_bits(RANDOM.normal(size=(rows, 32)).astype(np.float32), "e4m3") for rows in (16, 8))
    opcode = "kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e4m3.e4m3.f32.ue8m0"
    more = "mov.b32 %r30, 0x00008000; mov.b32 %r31, 0x007F007E; mov.b16 %rs1, 1; mov.b16 %rs2, 0;\n"
    found = multiply(opcode, a, b, 4, ", {%r30}, {%rs1, %rs2}, {%r31}, {%rs2, %rs2}", more)
    assert np.allclose(found, 1 + from_bits(a, "e4m3") @ from_bits(b, "e4m3").T, atol=1e-5)


@pytest.mark.parametrize("kind", ["bf16", "f16"])
def test_f32_sums_with_operands_of_16_bits(kind: str) -> None:
    a, b = to_bits(RANDOM.normal(size=(2, LANES)).astype(np.float32), kind)
    c = RANDOM.normal(size=LANES).astype(np.float32)
    x, y = (from_bits(v, kind).astype(np.float32) for v in (a, b))
    for instruction, expected in (
        (f"add.f32.{kind} %r20, %rs1, %r9;", x + c),
        (f"sub.rn.f32.{kind} %r20, %rs1, %r9;", x - c),
        (f"fma.rn.f32.{kind} %r20, %rs1, %rs2, %r9;", (x.astype(np.float64) * y + c).astype(np.float32)),
    ):
        out = np.zeros(LANES, np.float32)
        body = f"""mul.wide.u32 %rd10, %r0, 2; mul.wide.u32 %rd11, %r0, 4;
            add.s64 %rd12, %rd0, %rd10; ld.global.b16 %rs1, [%rd12];
            add.s64 %rd12, %rd1, %rd10; ld.global.b16 %rs2, [%rd12];
            add.s64 %rd12, %rd2, %rd11; ld.global.b32 %r9, [%rd12];
            {instruction}
            add.s64 %rd12, %rd3, %rd11; st.global.b32 [%rd12], %r20;"""
        execute(body, a, b, c, out)
        assert (out == expected).all(), instruction


# A CTA asks for another's work until nothing is left, and counts for each CTA that it works for. smem: answer, barrier.
STEAL = """
.reg .b128 %rq<4>;
mov.u32 %r9, smem;
setp.ne.b32 %p4, %r0, 0;
mov.b32 %r1, 1;
@!%p4 mbarrier.init.shared.b64 [%r9+32], %r1;
fence.mbarrier_init.release.cluster;
mov.u32 %r2, %ctaid.x;
mov.b32 %r8, 0;
bar.sync 0;
NEXT:
@%p4 bra WAIT;
mul.wide.u32 %rd5, %r2, 4; add.s64 %rd5, %rd0, %rd5;
red.relaxed.gpu.global.add.u32 [%rd5], %r1;
mov.b32 %r3, 16;
mbarrier.arrive.expect_tx.shared.b64 %rd6, [%r9+32], %r3;
clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%r9], [%r9+32];
WAIT:
mbarrier.try_wait.parity.shared.b64 %p2, [%r9+32], %r8;
@!%p2 bra WAIT;
xor.b32 %r8, %r8, 1;
ld.shared.v2.b64 {%rd7, %rd8}, [%r9];
mov.b128 %rq1, {%rd7, %rd8};
clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p3, %rq1;
clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %r2, %rq1;
bar.sync 0;
@%p3 bra NEXT;
AGAIN
"""


def steal(ctas: int, resident: int, seed: int, more: str = "") -> list[int]:
    done = np.zeros(ctas, np.uint32)
    program = parse(
        ".extern .shared .align 1024 .b8 smem[];\n.visible .entry kernel(.param .u64 p0)\n.reqntid 64\n{\n"
        ".reg .pred %p<10>; .reg .b32 %r<40>; .reg .b64 %rd<40>;\n"
        f"ld.param.b64 %rd0, [p0];\nmov.u32 %r0, %tid.x;\n{STEAL.replace('AGAIN', more)}\nret;\n}}\n"
    )
    launch = Launch((ctas, 1, 1), (1, 1, 1), (64, 1, 1), 4096, struct.pack("Q", done.ctypes.data))
    memory = GlobalMemory([Region("done", done.ctypes.data, done.nbytes, 4)])
    Machine(Assembler(program, 4096), launch, memory, seed, resident).run()
    return done.tolist()


def test_work_of_clusters_that_were_not_launched_is_done_once() -> None:
    for seed in range(8):
        assert steal(9, 2, seed) == [1] * 9


def test_who_was_refused_asks_no_more() -> None:
    more = """@%p4 bra OUT; mbarrier.arrive.expect_tx.shared.b64 %rd6, [%r9+32], %r3;
clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%r9], [%r9+32];
OUT:"""
    with pytest.raises(PtxError, match="try_cancel after an answer that nothing was left"):
        steal(2, 2, 0, more)


def test_a_cta_that_leaves_before_its_answer_comes() -> None:
    body = STEAL.replace("WAIT:", "bra OUT;\nWAIT:").replace("AGAIN", "OUT:").replace("@%p4 bra WAIT;", "@%p4 bra OUT;")
    program = parse(
        ".extern .shared .align 1024 .b8 smem[];\n.visible .entry kernel(.param .u64 p0)\n.reqntid 64\n{\n"
        ".reg .pred %p<10>; .reg .b32 %r<40>; .reg .b64 %rd<40>;\n"
        f"ld.param.b64 %rd0, [p0];\nmov.u32 %r0, %tid.x;\n{body}\nret;\n}}\n"
    )
    done = np.zeros(4, np.uint32)
    launch = Launch((1, 1, 1), (1, 1, 1), (64, 1, 1), 4096, struct.pack("Q", done.ctypes.data))
    memory = GlobalMemory([Region("done", done.ctypes.data, done.nbytes, 4)])
    with pytest.raises(PtxError, match="exits while its shared memory is in use: try_cancel"):
        Machine(Assembler(program, 4096), launch, memory, 0).run()


def test_cvt_to_4_bits_is_what_a_byte_of_torch_has() -> None:
    """Ties go to even, what is too large and NaN to 6; the second source is in the lower four bits."""
    torch = pytest.importorskip("torch")
    from cutegen.runtime.four_bits import encode_e2m1

    ties = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 7.0, np.inf, 0.0], np.float32)
    values = np.concatenate([ties, -ties, [np.nan], RANDOM.normal(size=43) * 3]).astype(np.float32)
    high, low = values[:LANES], values[LANES:]
    body = """shl.b32 %r1, %r0, 2; cvt.u64.u32 %rd1, %r1; add.s64 %rd2, %rd0, %rd1; ld.global.b32 %r2, [%rd2];
ld.global.b32 %r3, [%rd2+128]; .reg .b8 b0; cvt.rn.satfinite.e2m1x2.f32 b0, %r2, %r3; mov.b32 %r4, {b0, b0, b0, b0};
st.global.b32 [%rd2], %r4;"""
    out = np.concatenate([high, low]).view(np.uint32).copy()
    execute(body, out)
    pairs_of_values = torch.from_numpy(np.stack([low, high], -1))
    assert (out[:LANES] & 0xFF).tolist() == encode_e2m1(pairs_of_values).view(torch.uint8)[:, 0].tolist()
