"""Scopes, the register pool, and try_wait that gives up, in small programs."""

from __future__ import annotations

import re

import pytest

np = pytest.importorskip("numpy")

from test_ptx_machine import execute  # noqa: E402

from cutegen.machine.parser import PtxError  # noqa: E402

# CTA 0 stores a value and raises a flag; CTA 1 polls the flag, and reads the value. rd0: value, flag, result.
HANDED_ON = """
mov.u32 %r1, %ctaid.x;
setp.ne.b32 %p1, %r1, 0;
setp.ne.b32 %p2, %r0, 0;
@%p2 bra DONE;
@%p1 bra READER;
mov.b32 %r2, 7;
st.global.b32 [%rd0], %r2;
mov.b32 %r3, 1;
{raise}
bra DONE;
READER:
{look}
setp.ne.b32 %p3, %r4, 1;
@%p3 bra READER;
{after}
ld.global.b32 %r5, [%rd0];
st.global.b32 [%rd0+8], %r5;
DONE:
"""


def hand_on(raised: str, look: str, after: str = "", seed: int = 0) -> int:
    memory = np.zeros(4, np.uint32)
    body = HANDED_ON.replace("{raise}", raised).replace("{look}", look).replace("{after}", after)
    execute(body, memory, ctas=2, seed=seed)
    return int(memory[2])


RELEASE, ACQUIRE = "st.release.gpu.global.b32 [%rd0+4], %r3;", "ld.acquire.gpu.global.b32 %r4, [%rd0+4];"
RELAXED, LOOK = "st.relaxed.gpu.global.b32 [%rd0+4], %r3;", "ld.relaxed.gpu.global.b32 %r4, [%rd0+4];"


@pytest.mark.parametrize(
    ("raised", "look", "after", "ordered"),
    [
        (RELEASE, ACQUIRE, "", True),
        (RELEASE.replace("gpu", "sys"), ACQUIRE.replace("gpu", "sys"), "", True),
        (RELEASE.replace("gpu", "cta"), ACQUIRE, "", False),
        (RELEASE.replace("gpu", "cluster"), ACQUIRE, "", False),
        (RELEASE, ACQUIRE.replace("gpu", "cta"), "", False),
        (RELAXED, ACQUIRE, "", False),
        ("fence.acq_rel.gpu; " + RELAXED, ACQUIRE, "", True),
        ("fence.acq_rel.cta; " + RELAXED, ACQUIRE, "", False),
        (RELEASE, LOOK, "fence.acq_rel.gpu;", True),
        (RELEASE, LOOK, "fence.acq_rel.cta;", False),
        (RELEASE, LOOK, "", False),
        ("red.release.gpu.global.add.u32 [%rd0+4], %r3;", ACQUIRE, "", True),
        ("red.release.cta.global.add.u32 [%rd0+4], %r3;", ACQUIRE, "", False),
        ("membar.gl; " + RELAXED, LOOK, "membar.gl;", True),
    ],
)
def test_a_release_hands_on_within_its_scope(raised: str, look: str, after: str, ordered: bool) -> None:
    """Told in every order, though the value is there in each of them."""
    for seed in range(4):
        if ordered:
            assert hand_on(raised, look, after, seed) == 7
        else:
            with pytest.raises(PtxError, match=r"race: warp 0 of CTA .1, 0, 0. .* reads .*nothing orders the two"):
                hand_on(raised, look, after, seed)


# Two warpgroups of a CTA of 512 threads, which start with 128 registers each.
POOL = """
shr.u32 %r1, %r0, 7;
setp.ge.u32 %p1, %r1, 2;
@%p1 bra WORK;
{give}
bra DONE;
WORK:
setmaxnreg.inc.sync.aligned.u32 200;
DONE:
"""


def test_registers_are_given_and_taken() -> None:
    for seed in range(6):
        execute(POOL.format(give="setmaxnreg.dec.sync.aligned.u32 56;"), warps=16, seed=seed)


@pytest.mark.parametrize("give", ["", "setmaxnreg.dec.sync.aligned.u32 64;"])
def test_registers_that_nobody_gives_up_are_a_deadlock(give: str) -> None:
    with pytest.raises(PtxError, match=r"deadlock(.*\n)+.*waits for 2304 registers, 200 a thread, of registers of CTA"):
        execute(POOL.format(give=give), warps=16)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("setmaxnreg.inc.sync.aligned.u32 40; setmaxnreg.inc.sync.aligned.u32 32;", "inc to 32 by a warp that has 40"),
        ("setmaxnreg.dec.sync.aligned.u32 40; setmaxnreg.dec.sync.aligned.u32 48;", "dec to 48 by a warp that has 40"),
        ("setmaxnreg.dec.sync.aligned.u32 41;", "a multiple of 8"),
    ],
)
def test_counts_of_registers_that_make_no_sense(text: str, told: str) -> None:
    with pytest.raises(PtxError, match=re.escape(told)):
        execute(text, warps=4)


# Warp 1 arrives late, warp 0 waits for it: once, or until it is there. rd0: the value that warp 1 stores.
WAIT = """
mov.u32 %r9, smem;
setp.ne.b32 %p4, %r0, 0;
mov.b32 %r1, 1;
@!%p4 mbarrier.init.shared.b64 [%r9], %r1;
bar.sync 0;
setp.ge.u32 %p1, %r0, 32;
@%p1 bra OTHER;
AGAIN:
mov.b32 %r2, 0;
mbarrier.try_wait.parity.shared.b64 %p2, [%r9], %r2;
{again}
ld.shared.b32 %r3, [%r9+64];
st.global.b32 [%rd0], %r3;
bra DONE;
OTHER:
setp.ne.b32 %p3, %r0, 32;
@%p3 bra DONE;
mov.b32 %r4, 5;
st.shared.b32 [%r9+64], %r4;
mbarrier.arrive.shared.b64 %rd5, [%r9];
DONE:
"""


def test_a_wait_may_give_up() -> None:
    """A loop waits on; who asks once and goes on is reported, in orders where it answers no."""
    for seed in range(12):
        memory = np.zeros(4, np.uint32)
        execute(WAIT.format(again="@!%p2 bra AGAIN;"), memory, warps=2, seed=seed)
        assert memory[0] == 5
    told = 0
    for seed in range(2, 40):
        try:
            execute(WAIT.format(again=""), np.zeros(4, np.uint32), warps=2, seed=seed)
        except PtxError as error:
            told += "race: " in str(error)
    assert told
