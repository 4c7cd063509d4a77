"""Parts of an MLA decode launch in plain Python: what finds them and what reads the result is the device source itself.

`run_ctas` gives what each CTA does of some lengths: its pieces of requests, and with whom it joins which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from device_source import device_functions, run_warp

from cutegen.runtime.mla_decode.tiling import KEY_BLOCK

ROOT = Path(__file__).parents[1]
DEVICE = ROOT / "cutegen" / "device" / "mla_decode"


class Part:
    """What one part does; stands for the kernel's `self`, `o` and split_join where its functions name them."""

    def __init__(self, lengths: Sequence[int], work: Work, unit: int, halves: int) -> None:
        self.seq_lens, self.work, self.tiling = lengths, work, SimpleNamespace(unit=unit)
        self.block_table = SimpleNamespace(shape=(len(lengths), ROOM // KERNEL["PAGE"]))
        self.columns = KERNEL["HALF"] // halves
        self.number = KERNEL["part"](self, self.columns)
        self.shared = Shared()
        self.started: list[tuple[int, int]] = []  # counter, parts that share the request
        self.published: list[int] = []  # counters
        self.awaited: list[int] = []
        self.joined: list[tuple[int, int, int]] = []  # request, first and last part
        first, end = KERNEL["requests"](self, work)
        self.pieces = [(request, *KERNEL["span"](self, self, work, request)[1:]) for request in range(first, end)]
        for _, lo, hi in self.pieces:
            self.check_steps(lo, hi)

    def check_steps(self, lo: int, hi: int) -> None:
        """Steps take every block once, and none past the end."""
        blocks = []
        for single, first, end in KERNEL["steps"](self, lo, hi):
            for step in range(first, end):
                blocks += [lo + 2 * step + i for i in range(1 if single else 2)]
        assert blocks == list(range(lo, hi))

    def most(self, o: Part) -> int:
        return int(KERNEL["most"](self, o))

    def part(self, columns: int) -> int:
        return int(KERNEL["part"](self, columns))

    def column_block(self, columns: int) -> int:
        return int(KERNEL["column_block"](self, columns))

    def counter(self, o: Part, columns: int, first: int) -> int:
        return int(KERNEL["counter"](self, SimpleNamespace(semaphores=SEMAPHORES), columns, first))

    def join_request(self, o: Part, columns: int, turn: int, thread: int) -> None:
        if thread == turn:
            request, lo, splits, _ = self.shared[None, turn]
            self.joined.append((request, lo, lo + splits - 1))
            self.awaited.append(self.counter(o, columns, lo))


class Shared:
    """Fields of a first and of a last request, in shared memory: one of them, or all as a column."""

    def __init__(self) -> None:
        self.columns: list[list[int]] = [[], []]

    def __getitem__(self, at: tuple[int | None, int]) -> Any:
        field, turn = at
        return self.columns[turn] if field is None else self.columns[turn][field]


class Work(dict[int, int]):
    """Words in shared memory: reading one that was not written fails, and so do two lanes that write the same one."""

    def __init__(self) -> None:
        super().__init__()
        self.again = {SCHEDULE[name] for name in ("FIRST", "START", "LAST", "END")}  # written over once

    def __getitem__(self, key: Any) -> Any:
        return self if isinstance(key, tuple) else super().__getitem__(key)  # of two columns either

    def __setitem__(self, key: int, value: int) -> None:
        assert key not in self or key in self.again
        if key in self:
            self.again.discard(key)
        super().__setitem__(key, value)


class Lengths(list[int]):
    layout = None

    @property
    def shape(self) -> tuple[int]:
        return (len(self),)

    @property
    def iterator(self) -> Lengths:
        return self

    def __add__(self, request: int) -> Callable[[], int]:  # type: ignore[override]
        return lambda: self[request]


class Registers(list[int]):
    @property
    def shape(self) -> int:
        return len(self)

    def fill(self, value: int) -> None:
        self[:] = [value] * len(self)


now = SimpleNamespace(cta=0, lane=0, part=None)
SEMAPHORES = SimpleNamespace(iterator=0, layout=None)
CUTE = SimpleNamespace(
    make_rmem_tensor=lambda size, dtype: Registers([0] * size),
    size=len,
    crd2idx=lambda request, layout: request,
    arch=SimpleNamespace(load=lambda pointer, dtype, **_: pointer()),
)
READ = ("within", "most_kept", "read_length", "count_requests", "length_of", "load_lengths", "keep_lengths")
LENGTHS = device_functions(DEVICE / "request_lengths.py", READ, warp=False, cute=CUTE, KEY_BLOCK=KEY_BLOCK)
HELD = {name: LENGTHS[name] for name in (*READ, "FEW", "HELD")}
UNITS = device_functions(DEVICE / "unit_sums.py", ("units_of", "ceil_div"), warp=False)
WARPS = device_functions(DEVICE / "unit_sums.py", ("prefix_sums", "sum_costs"), warp=True, cute=CUTE, **HELD)
SUMS = {name: (UNITS | WARPS)[name] for name in ("units_of", "ceil_div", "prefix_sums", "sum_costs")}
SCHEDULE = device_functions(DEVICE / "split_schedule.py", warp=True, cute=CUTE, **HELD, **SUMS)
FIELDS = {name: value for name, value in SCHEDULE.items() if isinstance(value, int)}
CUTS = device_functions(DEVICE / "fixed_cut.py", ("cut_of", "_cost_of"), warp=False, **SUMS)
GIVEN = (
    FIELDS
    | HELD
    | SUMS
    | {"cut_of": CUTS["cut_of"], "_cost_of": CUTS["_cost_of"], "take_nothing": SCHEDULE["take_nothing"]}
)
FIXED_CUT = device_functions(DEVICE / "fixed_cut.py", ("find_pieces", "_find_pieces"), warp=True, cute=CUTE, **GIVEN)
ROOM = 2**20  # keys that a block table has room for
JOIN = device_functions(DEVICE / "split_join.py", ("slot_of", "_begins"), warp=False)
KERNEL = device_functions(
    ROOT / "generated" / "mla_decode_bf16_sm90a" / "kernel.py",
    ("requests", "span", "steps", "meet", "join", "part", "column_block", "counter", "most"),
    warp=False,
    KEY_BLOCK=KEY_BLOCK,
    KEY_SHIFT=KEY_BLOCK.bit_length() - 1,
    cute=SimpleNamespace(
        arch=SimpleNamespace(
            block_idx=lambda: (0, now.cta, 0), barrier=lambda **_: None, barrier_arrive=lambda **_: None,
            lane_idx=lambda: now.lane, make_warp_uniform=int, sync_warp=lambda: None,
        ),
        crd2idx=lambda at, layout: at[1],  # of one row block
        make_rmem_tensor=lambda size, dtype: [0] * size,
        autovec_copy=lambda values, column: column.extend(values),
    ),
    FOUND=None,
    MET=None,
    HALF=512 // 2,
    request_lengths=SimpleNamespace(within=LENGTHS["within"]),
    split_schedule=SimpleNamespace(**{name: SCHEDULE[name] for name in SCHEDULE if name.isupper()}),
    split_join=SimpleNamespace(
        NONE=0,
        meet=lambda counter, splits: now.part.started.append((counter, splits)),
        publish=lambda counter, joins: now.part.published.append(counter),
    ),
)  # fmt: skip


Shares = Callable[[int, int, int, int], bool]


def run_ctas(
    lengths: Sequence[int],
    parts: int,
    unit: int,
    overhead: int,
    join_ratio: int,
    max_splits: int,
    rows: int = 64,
    shares: Shares | None = None,
    find: Callable[..., None] = SCHEDULE["find_part"],
    more: Sequence[object] = (),
) -> Iterator[Part]:
    for now.cta in range(parts):
        work, kept = Work(), dict[int, int]()
        run_warp(
            *(find, Lengths(lengths), ROOM, now.cta, parts, unit * KEY_BLOCK, overhead, join_ratio, max_splits),
            *(rows, shares, work, kept, *more),
        )
        if len(lengths) <= LENGTHS["most_kept"](unit * KEY_BLOCK):  # what `have_changed` compares with
            assert [kept[i] for i in range(len(lengths))] == [LENGTHS["within"](length, ROOM) for length in lengths]
        else:
            assert not kept
        part = Part(lengths, work, unit, work[SCHEDULE["COLUMN_BLOCKS"]] if shares else 1)
        now.part = part
        for now.lane in (0, 1, 2):  # those above have nothing either
            KERNEL["meet"](part, part, part.columns)
        for thread in (0, 1, 2):
            KERNEL["join"](part, part, part.columns, thread)
        yield part
