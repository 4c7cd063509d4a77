"""Instructions of the PTX machine, in small programs of their own. Needs numpy and neither CuTe DSL nor a GPU."""

from __future__ import annotations

import struct
from typing import Any

import pytest

np = pytest.importorskip("numpy")

from cutegen.machine.assembler import Assembler  # noqa: E402
from cutegen.machine.floats import from_bits, to_bits  # noqa: E402
from cutegen.machine.machine import Launch, Machine  # noqa: E402
from cutegen.machine.memory import GlobalMemory, Region  # noqa: E402
from cutegen.machine.parser import PtxError, parse  # noqa: E402
from cutegen.machine.tensor_map import TensorMap  # noqa: E402

LANES = 32


def execute(body: str, *arrays: Any, warps: int = 1, ctas: int = 1, seed: int = 0) -> Machine:
    """Runs a kernel whose parameters are pointers to the arrays, in %rd0, %rd1, ...; %r0 is the thread's index, and
    %rd10 four times that."""
    pointers = ", ".join(f".param .u64 p{i}" for i in range(len(arrays)))
    loads = "".join(f"ld.param.b64 %rd{i}, [p{i}];\n" for i in range(len(arrays)))
    program = parse(
        ".extern .shared .align 1024 .b8 smem[];\n"
        f".visible .entry kernel({pointers})\n.reqntid {LANES * warps}\n{{\n"
        ".reg .pred %p<10>; .reg .b16 %rs<20>; .reg .b32 %r<40>; .reg .b64 %rd<40>;\n"
        f"{loads}mov.u32 %r0, %tid.x;\nmul.wide.u32 %rd10, %r0, 4;\n{body}\nret;\n}}\n"
    )
    regions = [Region(f"array {i}", a.ctypes.data, a.nbytes, a.itemsize) for i, a in enumerate(arrays)]
    parameters = b"".join(struct.pack("Q", a.ctypes.data) for a in arrays)
    launch = Launch((ctas, 1, 1), (1, 1, 1), (LANES * warps, 1, 1), 4096, parameters)
    machine = Machine(Assembler(program, launch.shared_bytes), launch, GlobalMemory(regions), seed)
    machine.run()
    return machine


def compute(instruction: str, *sources: Any, result: Any = None) -> Any:
    """%r5 (or %rd5 for 8-byte results) of an instruction on %r1, %r2, %r3, in all lanes."""
    arrays = [np.ascontiguousarray(s).view(np.uint32) for s in sources]
    out = np.zeros(LANES, result or np.uint32)
    load = "".join(f"add.s64 %rd11, %rd{i}, %rd10; ld.global.b32 %r{i + 1}, [%rd11];\n" for i in range(len(arrays)))
    wide = out.itemsize == 8
    store = f"mad.wide.u32 %rd12, %r0, {out.itemsize}, %rd{len(arrays)}; "
    store += "st.global.b64 [%rd12], %rd5;" if wide else "st.global.b32 [%rd12], %r5;"
    execute(f"{load}{instruction}\n{store}", *arrays, out)
    return out


RANDOM = np.random.default_rng(5)
A, B, C = (RANDOM.integers(-(2**31), 2**31, LANES).astype(np.int32) for _ in range(3))
SMALL = RANDOM.integers(0, 40, LANES).astype(np.int32)  # shifts, some of which are too far
X, Y, Z = (RANDOM.normal(size=LANES).astype(np.float32) for _ in range(3))
NAN = np.where(np.arange(LANES) % 3 == 0, np.nan, X).astype(np.float32)


def exactly(function: Any, *values: Any) -> list[int]:
    """Python's unbounded integers, lane by lane, to 32 bits."""
    return [function(*map(int, v)) & 0xFFFFFFFF for v in zip(*values)]


@pytest.mark.parametrize(
    ("instruction", "sources", "function"),
    [
        ("add.s32 %r5, %r1, %r2;", (A, B), lambda a, b: a + b),
        ("mul.lo.s32 %r5, %r1, %r2;", (A, B), lambda a, b: a * b),
        ("mul.hi.s32 %r5, %r1, %r2;", (A, B), lambda a, b: a * b >> 32),
        ("mul.hi.u32 %r5, %r1, %r2;", (A, B), lambda a, b: (a % 2**32) * (b % 2**32) >> 32),
        ("mad.lo.s32 %r5, %r1, %r2, %r3;", (A, B, C), lambda a, b, c: a * b + c),
        ("div.s32 %r5, %r1, %r2;", (A, SMALL - 20 | 1), lambda a, b: abs(a) // abs(b) * (1 if a * b >= 0 else -1)),
        ("rem.s32 %r5, %r1, %r2;", (A, SMALL + 1), lambda a, b: abs(a) % b * (1 if a >= 0 else -1)),
        ("div.u32 %r5, %r1, 7;", (A,), lambda a: a % 2**32 // 7),
        ("shl.b32 %r5, %r1, %r2;", (A, SMALL), lambda a, n: a << n),
        ("shr.u32 %r5, %r1, %r2;", (A, SMALL), lambda a, n: (a % 2**32) >> n),
        ("shr.s32 %r5, %r1, %r2;", (A, SMALL), lambda a, n: a >> n),
        ("shf.r.wrap.b32 %r5, %r1, %r2, 9;", (A, B), lambda a, b: ((b % 2**32 << 32) | a % 2**32) >> 9),
        ("min.s32 %r5, %r1, %r2;", (A, B), min),
        ("min.relu.s32 %r5, %r1, %r2;", (A, B), lambda a, b: max(min(a, b), 0)),
        ("max.u32 %r5, %r1, %r2;", (A, B), lambda a, b: max(a % 2**32, b % 2**32)),
        ("lop3.b32 %r5, %r1, %r2, %r3, 0xe8;", (A, B, C), lambda a, b, c: (a & b) | (a & c) | (b & c)),
        ("prmt.b32 %r5, %r1, %r2, 0x5410;", (A, B), lambda a, b: (a & 0xFFFF) | (b & 0xFFFF) << 16),
        ("prmt.b32 %r5, %r1, %r2, 0x8;", (A, B), lambda a, b: (a & 0xFF) * 0x1010100 | (0xFF if a & 0x80 else 0)),
        ("bfe.u32 %r5, %r1, 5, 9;", (A,), lambda a: a >> 5 & 0x1FF),
        ("bfe.s32 %r5, %r1, 5, 9;", (A,), lambda a: ((a >> 5 & 0x1FF) ^ 0x100) - 0x100),
        ("bfi.b32 %r5, %r1, %r2, 4, 8;", (A, B), lambda a, b: b & ~0xFF0 | (a & 0xFF) << 4),
        ("popc.b32 %r5, %r1;", (A,), lambda a: bin(a % 2**32).count("1")),
        ("clz.b32 %r5, %r1;", (SMALL,), lambda a: 32 - a.bit_length()),
        ("brev.b32 %r5, %r1;", (A,), lambda a: int(f"{a % 2**32:032b}"[::-1], 2)),
        ("setp.lt.s32 %p1, %r1, %r2; selp.b32 %r5, %r1, %r2, %p1;", (A, B), min),
        ("setp.gt.and.u32 %p1|%p2, %r1, 9, %p3; selp.b32 %r5, 1, 2, %p2;", (SMALL,), lambda a: 2),
        ("cvt.u16.u32 %rs1, %r1; cvt.s32.s16 %r5, %rs1;", (A,), lambda a: (a & 0xFFFF ^ 0x8000) - 0x8000),
        ("mov.b64 %rd1, {%r1, %r2}; shr.u64 %rd1, %rd1, 16; cvt.u32.u64 %r5, %rd1;", (A, B),
         lambda a, b: ((b % 2**32 << 32) | a % 2**32) >> 16),
    ],
    ids=lambda value: value.split(";")[0] if isinstance(value, str) else "",
)  # fmt: skip
def test_integers(instruction: str, sources: Any, function: Any) -> None:
    assert compute(instruction, *sources).tolist() == exactly(function, *sources)


def test_wide_products() -> None:
    assert compute("mul.wide.s32 %rd5, %r1, %r2;", A, B, result=np.int64).tolist() == [
        int(a) * int(b) for a, b in zip(A, B)
    ]


@pytest.mark.parametrize(
    ("instruction", "sources", "expected"),
    [
        ("add.f32 %r5, %r1, %r2;", (X, Y), X + Y),
        ("fma.rn.f32 %r5, %r1, %r2, %r3;", (X, Y, Z), (X.astype(float) * Y + Z).astype(np.float32)),
        ("min.f32 %r5, %r1, %r2;", (NAN, Y), np.where(np.isnan(NAN), Y, np.minimum(X, Y))),
        ("max.NaN.f32 %r5, %r1, %r2;", (NAN, Y), np.where(np.isnan(NAN), np.nan, np.maximum(X, Y))),
        ("ex2.approx.ftz.f32 %r5, %r1;", (X,), np.exp2(X)),
        ("rcp.rn.f32 %r5, %r1;", (X,), 1 / X),
        ("setp.ltu.f32 %p1, %r1, %r2; selp.f32 %r5, 0f3F800000, 0f00000000, %p1;", (NAN, Y),
         ~(NAN >= Y)),
        ("setp.nan.f32 %p1, %r1, %r2; selp.f32 %r5, 0f3F800000, 0f00000000, %p1;", (NAN, Y), np.isnan(NAN)),
        ("setp.num.f32 %p1, %r1, %r2; selp.f32 %r5, 0f3F800000, 0f00000000, %p1;", (NAN, Y), ~np.isnan(NAN)),
        ("setp.ne.f32 %p1, %r1, %r2; selp.f32 %r5, 0f3F800000, 0f00000000, %p1;", (NAN, NAN), 0 * X),
        ("cvt.rni.s32.f32 %r6, %r1; cvt.rn.f32.s32 %r5, %r6;", (100 * X,), np.rint(100 * X)),
    ],
    ids=lambda value: value.split(";")[0] if isinstance(value, str) else "",
)  # fmt: skip
def test_floats(instruction: str, sources: Any, expected: Any) -> None:
    np.testing.assert_array_equal(compute(instruction, *sources).view(np.float32), np.asarray(expected, np.float32))


@pytest.mark.parametrize(("kind", "name"), [("bf16", "bfloat16"), ("f16", "float16"), ("e4m3", "float8_e4m3fn"),
                                            ("e5m2", "float8_e5m2")])  # fmt: skip
def test_small_formats_are_torchs(kind: str, name: str) -> None:
    torch = pytest.importorskip("torch")
    dtype = getattr(torch, name)
    codes = np.arange(256 if kind[0] == "e" else 65536).astype(np.uint8 if kind[0] == "e" else np.uint16)
    values = from_bits(codes, kind)
    np.testing.assert_array_equal(values, torch.from_numpy(codes).view(dtype).float().numpy())
    limit = {"e4m3": 440.0, "e5m2": 57000.0}.get(kind, 60000.0)
    spread = np.concatenate([RANDOM.normal(size=5000) * 2.0**e for e in range(-20, 9, 3)]).astype(np.float32)
    finite = values[np.isfinite(values)]
    halves = finite[:-1] / 2 + finite[1:] / 2  # ties
    wide = np.clip(np.concatenate([spread, halves, -halves]), -limit, limit).astype(np.float32)
    found = from_bits(to_bits(wide, kind, finite=True), kind)
    np.testing.assert_array_equal(found, torch.from_numpy(wide).to(dtype).float().numpy())


def test_lanes_that_diverge_meet_again() -> None:
    out = np.zeros(LANES, np.uint32)
    body = """
        mov.b32 %r1, 0; mov.b32 %r2, 0;
    LOOP: setp.ge.u32 %p1, %r1, %r0; @%p1 bra DONE;
        add.s32 %r2, %r2, %r1; add.s32 %r1, %r1, 1; bra LOOP;
    DONE: shfl.sync.idx.b32 %r3, %r2, 31, 31, -1;
        add.s32 %r3, %r3, %r2; add.s64 %rd11, %rd0, %rd10; st.global.b32 [%rd11], %r3;"""
    execute(body, out)
    assert out.tolist() == [i * (i - 1) // 2 + 31 * 15 for i in range(LANES)]


@pytest.mark.parametrize(
    ("instruction", "expected"),
    [
        ("shfl.sync.up.b32 %r5, %r1, 2, 0, -1;", lambda v: [v[i - 2] if i >= 2 else v[i] for i in range(32)]),
        ("shfl.sync.down.b32 %r5, %r1, 4, 31, -1;", lambda v: [v[i + 4] if i < 28 else v[i] for i in range(32)]),
        ("shfl.sync.bfly.b32 %r5, %r1, 16, 31, -1;", lambda v: [v[i ^ 16] for i in range(32)]),
        ("redux.sync.max.s32 %r5, %r1, -1;", lambda v: [max(v)] * 32),
        ("setp.gt.s32 %p1, %r1, 20; vote.sync.ballot.b32 %r5, %p1, -1;",
         lambda v: [sum((x > 20) << i for i, x in enumerate(v))] * 32),
        ("elect.sync %r6|%p1, -1; selp.b32 %r5, 7, 0, %p1;", lambda v: [7] + [0] * 31),
    ],
    ids=["up", "down", "bfly", "redux", "ballot", "elect"],
)  # fmt: skip
def test_lanes_exchange(instruction: str, expected: Any) -> None:
    assert compute(instruction, SMALL).tolist() == expected(SMALL.tolist())


@pytest.mark.parametrize("transposed", [False, True])
def test_matrices_through_shared_memory(transposed: bool) -> None:
    """A lane holds (row lane / 4, columns 2 (lane % 4) and the next) of an 8 x 8 matrix of 16 bits."""
    source, out = np.arange(64, dtype=np.uint16), np.zeros(64, np.uint16)
    body = f"""
        add.s64 %rd11, %rd0, %rd10; ld.global.b32 %r1, [%rd11];
        mov.b32 %r2, smem; and.b32 %r3, %r0, 7; shl.b32 %r3, %r3, 4; add.s32 %r2, %r2, %r3;
        stmatrix.sync.aligned.m8n8.x1{".trans" * transposed}.shared.b16 [%r2], {{%r1}};
        bar.warp.sync -1;
        ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r4}}, [%r2];
        add.s64 %rd11, %rd1, %rd10; st.global.b32 [%rd11], %r4;"""
    execute(body, source, out)
    matrix = source.reshape(8, 8)
    assert (out.reshape(8, 8) == (matrix.T if transposed else matrix)).all()


def test_atomics_of_all_lanes_and_ctas() -> None:
    total, old, real = np.zeros(1, np.uint32), np.zeros(2 * LANES, np.uint32), np.zeros(1, np.float32)
    body = """
        mov.u32 %r1, %ctaid.x; atom.global.add.u32 %r2, [%rd0], 1; red.global.add.f32 [%rd2], 0f3F000000;
        mad.lo.s32 %r3, %r1, 32, %r0; mul.wide.u32 %rd11, %r3, 4; add.s64 %rd11, %rd11, %rd1;
        st.global.b32 [%rd11], %r2;"""
    execute(body, total, old, real, ctas=2)
    assert sorted(old.tolist()) == list(range(64))
    assert (total[0], real[0]) == (64, 32.0)


HANDOVER = """
    mov.b32 %r1, smem; setp.lt.u32 %p1, %r0, 32; @%p1 bra GIVE;
    {wait}
    ld.shared.b32 %r3, [%r1+64]; st.global.b32 [%rd0], %r3; bra END;
  GIVE: mov.b32 %r4, 42; st.shared.b32 [%r1+64], %r4; {arrive}
  END: bar.sync 2, 64;"""


@pytest.mark.parametrize("seed", range(4))
def test_a_named_barrier_orders(seed: int) -> None:
    out = np.zeros(1, np.uint32)
    execute(HANDOVER.format(wait="bar.sync 1, 64;", arrive="bar.arrive 1, 64;"), out, warps=2, seed=seed)
    assert out[0] == 42


@pytest.mark.parametrize("seed", range(4))
def test_a_race_is_told_in_every_order(seed: int) -> None:
    with pytest.raises(PtxError, match=r"race: warp [01] .* nothing orders the two"):
        execute(HANDOVER.format(wait="", arrive=""), np.zeros(1, np.uint32), warps=2, seed=seed)


@pytest.mark.parametrize(
    ("order", "races"),
    [(("release", "acquire"), False), (("relaxed", "acquire"), True), (("release", "relaxed"), True)],
)
def test_a_flag_in_global_memory_orders_by_release_and_acquire(order: tuple[str, str], races: bool) -> None:
    data, flag, out = np.zeros(1, np.uint32), np.zeros(1, np.uint32), np.zeros(1, np.uint32)
    body = f"""
        setp.ne.s32 %p2, %r0, 0; @%p2 bra END;
        mov.u32 %r1, %ctaid.x; setp.eq.s32 %p1, %r1, 0; @%p1 bra GIVE;
    POLL: ld.{order[1]}.gpu.global.b32 %r2, [%rd1]; setp.eq.s32 %p1, %r2, 0; @%p1 bra POLL;
        ld.global.b32 %r3, [%rd0]; st.global.b32 [%rd2], %r3; bra END;
    GIVE: mov.b32 %r4, 9; st.global.b32 [%rd0], %r4; atom.{order[0]}.gpu.global.add.u32 %r5, [%rd1], 1;
    END:"""
    if races:
        with pytest.raises(PtxError, match=r"race: .* of CTA \(1, 0, 0\) .* reads array 0"):
            execute(body, data, flag, out, ctas=2)
    else:
        execute(body, data, flag, out, ctas=2)
        assert out[0] == 9


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("st.global.b32 [%rd0+128], %r0;", "outside every tensor"),
        ("st.global.b32 [%rd0+2], %r0;", "is not a multiple of 4 bytes"),
        ("mov.b32 %r1, 1026; ld.shared.b32 %r2, [%r1];", "not a multiple of 4"),
        ("mov.b32 %r1, 65536; ld.shared.b32 %r2, [%r1];", "shared memory at 65536"),
        ("mov.b32 %r1, smem; mov.b32 %r2, 1; mbarrier.arrive.shared.b64 _, [%r1], %r2;", "no mbarrier is initialised"),
        ("bar.sync 1, 64;", "deadlock(.|\n)*waits for named barrier 1 of CTA .* of 64 threads, warps .0. came"),
        ("setp.lt.s32 %p1, %r0, 3; @%p1 bra L; bar.sync 0; L: bar.warp.sync -1;", "diverged for good at a .sync"),
        ("POLL: ld.acquire.gpu.global.b32 %r2, [%rd0]; setp.eq.s32 %p1, %r2, 0; @%p1 bra POLL;", "what never comes"),
        ("frobnicate.b32 %r1, %r2;", "does not know this instruction"),
        ("trap;", "trapped"),
    ],
)
def test_what_cannot_be_is_told(body: str, told: str) -> None:
    with pytest.raises(PtxError, match=told):
        execute(body, np.zeros(LANES, np.uint32))


def test_a_launch_without_ctas_is_refused_as_by_cuda() -> None:
    with pytest.raises(PtxError, match=r"a grid of \(0, 1, 1\): CUDA refuses it; are there as many SMs"):
        execute("", ctas=0)


def test_mbarrier_phases() -> None:
    """Two warps arrive at a barrier of two twice; each waits for both phases in turn."""
    out = np.zeros(2, np.uint32)
    body = """
        mov.b32 %r1, smem; shr.u32 %r6, %r0, 5; mov.b32 %r2, 2; setp.ne.s32 %p1, %r0, 0; @%p1 bra SET;
        mbarrier.init.shared.b64 [%r1], %r2;
    SET: bar.sync 0; elect.sync %r3|%p2, -1; mov.b32 %r4, 0;
    NEXT: @%p2 mbarrier.arrive.shared.b64 %rd20, [%r1];
    WAIT: mbarrier.try_wait.parity.shared.b64 %p3, [%r1], %r4; @!%p3 bra WAIT;
        add.s32 %r4, %r4, 1; setp.lt.s32 %p4, %r4, 2; @%p4 bra NEXT;
        mul.wide.u32 %rd11, %r6, 4; add.s64 %rd11, %rd11, %rd0; @%p2 st.global.b32 [%rd11], %r4;"""
    machine = execute(body, out, warps=2)
    assert out.tolist() == [2, 2]
    assert not machine.ctas


def test_a_box_in_shared_memory_is_swizzled_by_address() -> None:
    for bits, span in ((0, 128), (1, 32), (2, 64), (3, 128)):
        box = TensorMap(0, 2, "bf16", (64, 64), (2, 128), (span // 2, 16), bits)
        places = box.chunks(2048) * 16
        for i, place in enumerate(places.tolist()):
            plain = 2048 + 16 * i
            assert place == plain ^ (((plain >> 7) & ((1 << bits) - 1)) << 4)
        assert sorted(places.tolist()) == list(range(2048, 2048 + 16 * span, 16))
