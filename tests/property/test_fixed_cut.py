"""Where bits may not depend on the batch, requests are cut by their own lengths alone, and parts take what is cut.

The device source itself runs, by schedule_parts.
"""

from __future__ import annotations

from device_source import run_warp
from hypothesis import example, given, settings
from hypothesis import strategies as st
from schedule_parts import FIXED_CUT, ROOM, SCHEDULE, Lengths, Work

from cutegen.runtime.mla_decode.tiling import KEY_BLOCK

SHORT = st.integers(0, 700)
LENGTHS = st.one_of(
    st.lists(SHORT | st.integers(0, 40_000) | st.sampled_from((-2_000, -1, 0, 1, 128, 129)), min_size=1, max_size=40),
    st.tuples(st.lists(SHORT, min_size=1, max_size=7), st.integers(1, 50)).map(lambda drawn: drawn[0] * drawn[1]),
)


@settings(max_examples=40)
@given(
    LENGTHS,
    st.integers(1, 24),
    st.integers(1, 64),
    st.sampled_from((1, 2, 4, 32)),
    st.sampled_from((1, 2, 8, 255)),
)
@example([4096] * 32, 66, 2, 4, 8)
@example([1024] * 32, 132, 2, 4, 8)  # pieces longer than an even share: some parts between others would have none
@example([40_000], 24, 2, 4, 8)  # fewer pieces than parts: some have none
@example([0, 300] * 100, 9, 2, 1, 8)
@example([2**31 - 1, 9_000, -(2**31)], 7, 2, 4, 8)
def test_pieces_follow_from_the_length_alone(
    lengths: list[int], parts: int, overhead: int, piece: int, most: int
) -> None:
    """Of any batch: each request is cut as it would be alone, every piece is of one part, and the parts that share a
    request know of each other."""
    taken: list[list[tuple[int, int]]] = [[] for _ in lengths]  # of each request, the part and the end of a run
    told: list[set[tuple[int, int]]] = [set() for _ in lengths]  # who shares it, by what each part of it says
    costs: list[int] = []
    pieces = [cut_of(length, piece, most) for length in lengths]
    for part in range(parts):
        work, kept = Work(), dict[int, int]()
        run_warp(
            *(FIXED_CUT["find_pieces"], Lengths(lengths), ROOM, part, parts, 2 * KEY_BLOCK, overhead, piece, most),
            *(work, kept),
        )
        first, start, last, end = (dict.__getitem__(work, SCHEDULE[name]) for name in ("FIRST", "START", "LAST", "END"))
        cost = 0
        for request in range(first, last + (end > 0)):
            count, size = pieces[request]
            low = start if request == first else 0
            high = end if request == last else count * size
            assert low % size == high % size == 0
            assert low < high <= count * size
            assert low == (taken[request][-1][1] if taken[request] else 0)
            taken[request].append((part, high))
            cost += (high - low) // size * (size + overhead)
            if request == first:
                told[request].add((work[SCHEDULE["FIRST_LO"]], work[SCHEDULE["FIRST_HI"]]))
                assert work[SCHEDULE["LENGTH"]] == min(max(lengths[request], 0), ROOM)
            elif request == last:
                told[request].add((part, work[SCHEDULE["LAST_HI"]]))
        costs.append(cost)
    for (count, size), runs, shares in zip(pieces, taken, told):
        assert runs[-1][1] == count * size
        assert shares <= {(runs[0][0], runs[-1][0])}
        assert [part for part, _ in runs] == [*range(runs[0][0], runs[-1][0] + 1)]  # each of whom the others wait for
    total = sum(count * (size + overhead) for count, size in pieces)
    assert sum(costs) == total
    longest = max(size + overhead for _, size in pieces)
    assert max(costs) <= max(-(-total // parts), longest) + longest


def cut_of(length: int, piece: int, most: int) -> tuple[int, int]:
    """Pieces of a request, and pairs of each but the last, by what split_kv says of them."""
    pairs = -(-min(max(length, 0), ROOM) // (2 * KEY_BLOCK))
    count = min(max(-(-pairs // piece), 1), most)
    size = max(-(-pairs // count), 1)
    return max(-(-pairs // size), 1), size
