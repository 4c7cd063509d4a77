"""What a family says of the C entry of a plan, of which `cutegen bundle` makes a header and code.

Extents of a call are `e` in C, of the dims that are not constant, in the order of `CEntry.extents`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from cutegen.runtime.arguments import Argument, Extent, TensorArg
from cutegen.runtime.tensor_plan import TensorPlan

SMS = "count"  # in C: the SMs that a launch may use
# Rows by device, as the driver names it, and extents that decide, each up to an extent of one more dim; those of one
# device and point are together, and ascend. key: -1 where nobody measured.
WINNERS = """\
typedef struct { const char *device; num point[4]; num last; int key; } winner;

/* The tiling that was measured fastest for such calls; -1: none was. */
static int find_winner(const winner *rows, int count, const char *device, const num *point, num extent) {
  for (int i = 0; i < count; i++)
    if (extent <= rows[i].last && !memcmp(rows[i].point, point, sizeof rows[i].point) &&
        !strcmp(rows[i].device, device))
      return rows[i].key;
  return -1;
}
"""


NO_CHECK = "static int check_ENTRY(const BUNDLE_args_ENTRY *args, const num *e) { return 0; }\n"


class Translator(Protocol):
    """See build/c_translation.py."""

    def function(self, function: Callable[..., Any], name: str = "") -> str: ...

    def text(self, value: str) -> int: ...

    def struct(self, kind: type[Any]) -> str: ...

    def data(self, value: Any) -> str: ...


@dataclass(frozen=True, slots=True)
class CopiedRows:
    """A launch before that of the kernel of some tilings, which copies rows that an index names to scratch: called with
    the arguments, the index, their copies and the number of CTAs; the kernel gets copies for arguments and no index.

    key: of the copy among kernels. when: whether tiling `key` has one, an expression in C. index: the argument. copies:
    by argument, the name of its scratch tensor, and shape and strides of the copy as expressions in C. ctas: an
    expression in C, of all that have rows.
    """

    key: str
    when: str
    index: str
    copies: Mapping[str, tuple[str, tuple[str, ...], tuple[str, ...]]]
    ctas: str


@dataclass(frozen=True, slots=True)
class CEntry:
    """extents: of the dims of a call, a constant or a range each. args: what a caller passes. order: what the compiled
    kernel is called with: names of arguments, "scratch" for the scratch tensors that a call takes, and expressions in C
    of integers, which may read `count` (SMs), `key`, `e` and `call`. needed: dims whose extent must not be 0; with any
    other that is, a call does nothing, unless `fills` says that it would have to fill an output. keys: of tilings, by
    their number in C; endings: (number of the argument, ending) of optional arguments whose lack another kernel takes.
    least_sms: of each tiling.

    helpers: C that several entries share; code: C of this entry's functions, with the name of the entry in place of
    ENTRY:
        static int pick_ENTRY(const BUNDLE_device *device, num sms, const num *e);
            the number of the tiling; sms: of the launch, 0 for all; -1 after fail(...)
        static int size_ENTRY(int key, num count, const num *e, num *sizes);
            elements of each scratch tensor, 0 for one that is not passed; -1 after fail(...)
        static int check_ENTRY(const BUNDLE_args_ENTRY *args, const num *e);
            -1 after fail(...): the kernel would not find what is wrong with the arguments
    """

    extents: Mapping[str, Extent]
    args: tuple[Argument, ...]
    outputs: tuple[str, ...]
    order: tuple[str, ...]
    keys: tuple[str, ...]
    least_sms: tuple[int, ...]
    code: str
    helpers: tuple[str, ...] = ()
    scratch: tuple[TensorArg, ...] = ()
    endings: tuple[tuple[int, str], ...] = ()
    needed: tuple[str, ...] = ()
    fills: bool = False
    copied: CopiedRows | None = None

    @property
    def free(self) -> tuple[str, ...]:
        """The dims that a caller gives the extents of."""
        return tuple(dim for dim, extent in self.extents.items() if not isinstance(extent, int))


def in_c(extents: Mapping[str, Extent], dim: str) -> str:
    """The extent of a dim as an expression in C."""
    if isinstance(extent := extents[dim], int):
        return str(extent)
    return f"e[{[d for d, e in extents.items() if not isinstance(e, int)].index(dim)}]"


def winner_rows(
    winners: Mapping[str, Mapping[tuple[int, ...], Sequence[tuple[int, str]]]], keys: Sequence[str]
) -> list[str]:
    """Initialisers of `winner`s."""
    return [
        f'{{"{device}", {{{", ".join(map(str, point)) or 0}}}, {last}, {keys.index(key) if key else -1}}}'
        for device, table in winners.items()
        for point, rows in table.items()
        for last, key in rows
    ]


def c_entry(plan: Any, translate: Translator) -> CEntry | str:
    """Of a plan with one tiling over its tensors (runtime/tensor_plan.py); why there is none of another."""
    if not isinstance(plan, TensorPlan) or len(plan.tilings) > 1 or plan.scratch:
        return "its family has none"
    return tensor_entry(
        plan, "static int pick_ENTRY(const BUNDLE_device *device, num sms, const num *e) { return 0; }\n"
    )


NO_SCRATCH = "static int size_ENTRY(int key, num count, const num *e, num *sizes) { return 0; }\n"


def tensor_entry(plan: TensorPlan, pick: str, sms: str = SMS, size: str = NO_SCRATCH) -> CEntry:
    """Of a plan over its tensors. pick, size: C of `pick_ENTRY` and `size_ENTRY`. sms: what the kernel is passed for
    them."""
    args, keys = (*plan.inputs, *plan.fresh_outputs), plan.whole_keys
    return CEntry(
        extents=plan.dims,
        args=args,
        outputs=tuple(o.name for o in plan.outputs),
        order=(*(a.name for a in args), *(("scratch",) if plan.scratch else ()), sms),
        keys=keys,
        least_sms=tuple(plan.least_sms(key) for key in keys),
        code=pick + size + NO_CHECK,
        scratch=plan.scratch,
        endings=plan.optional_endings,
        fills=bool(plan.scratch),
    )
