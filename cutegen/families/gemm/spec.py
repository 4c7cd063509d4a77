"""The spec of `kernel: gemm`. What is not written is `auto`: the first legal candidate, chosen by resolve."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, get_args

from pydantic import Field, WithJsonSchema, field_validator

from cutegen.families.declared_knobs import extend_section
from cutegen.families.gemm.candidate import (
    FEATURE_KNOBS,
    KNOBS,
    Never,
    RasterOrder,
    Schedule,
    Scheduler,
)
from cutegen.families.pdl import Pdl
from cutegen.families.tune_section import tiling_section, tune_section
from cutegen.spec.base import (
    NAMES,
    UNKNOWN_TENSOR,
    Auto,
    Bench,
    Exactly,
    Expression,
    Name,
    Pair,
    Positive,
    Section,
    TensorSpec,
    Triple,
    drop_absent,
    knob,
    unknown_name,
)
from cutegen.spec.finding import Finding, Unworded

Arch: TypeAlias = Literal["sm_90a", "sm_100a", "sm_103a", "sm_120a", "sm_121a"]
# Keys of a spec that may differ by architecture.
BY_ARCH = ("accumulate", "tiling", "pipeline", "warpgroups", "scheduler", "tma", "pdl", "device", "portfolio")
_ARCH = {"type": "string", "enum": list(get_args(Arch))}
_NAME = {"type": "string", "$comment": "name", "pattern": f"^({'|'.join(get_args(Arch))})$"}
_ARCHS = {"type": "array", "items": _NAME}
_OF_ARCH = {"type": "object", "propertyNames": {"enum": list(BY_ARCH)}}
_BY_ARCH = {"type": "object", "propertyNames": _ARCH, "additionalProperties": _OF_ARCH}


class Accumulate(Section):
    """How the product is summed."""

    dtype: Literal["f32", "i32"] | Auto = Field(
        default="auto", description="Element type of the accumulator: i32 of i8 operands, else f32."
    )
    promote_every: Positive | Never | Auto = knob(
        "K blocks (one MMA each, 32 elements of fp8) that the tensor core sums, with some 14 bits, before they are "
        "added to f32 registers; never: it sums all of them, the fast accumulation of fp8."
    )


class Raster(Section):
    """The order in which CTAs take tiles."""

    order: RasterOrder | Auto = knob("The dim along which tiles advance first.")
    group: Positive | Auto = knob("Tiles of that dim in one band; neighbours share L2 lines.")


@extend_section("tiling", FEATURE_KNOBS)
class Tiling(Section, defer_build=True):
    """How the output is cut."""

    tile: Triple | Auto = knob("CTA tile [m, n, k] in elements.")
    cluster: Pair | Auto = knob("CTAs [m, n] of one cluster, which share loads by multicast.")
    raster: Raster = Raster()
    swap_ab: bool | Auto = knob(
        "Compute the transposed product, for few rows: the MMA's A is the second operand of `mainloop`, and m of tile, "
        "cluster and raster runs along n."
    )


@extend_section("pipeline", FEATURE_KNOBS)
class Pipeline(Section, defer_build=True):
    """The depth of the rings in shared memory."""

    stages: Positive | Auto = knob("Slots of the ring of A and B tiles.")
    epilogue_stages: Positive | Auto = knob("Slots of the ring of output tiles, per output.")
    load_stages: Positive | Auto = knob("Slots of the ring of tiles that the epilogue reads.")


class Producer(Section):
    """The warpgroup that issues TMA loads."""

    registers: Positive | Auto = knob("Registers per thread, a multiple of 8 (setmaxnreg).")


class Consumer(Section):
    """The warpgroups that run MMA and epilogue."""

    count: Positive | Auto = knob("MMA warpgroups in a CTA, 1 to 3.")
    registers: Positive | Auto = knob("Registers per thread, a multiple of 8 (setmaxnreg).")


class Warpgroups(Section):
    """Who does what in a CTA."""

    schedule: Schedule | Auto = Field(
        default="auto",
        description="cooperative: all consumers share a tile; pingpong: each has its own, epilogues overlap.",
    )
    producer: Producer = Producer()
    consumer: Consumer = Consumer()


@extend_section("tma.{a}", FEATURE_KNOBS)
class Tma(Section, defer_build=True):
    """Knobs of one tensor's bulk copies."""

    multicast: Positive | Auto = knob("CTAs that one load of this tensor feeds.")
    swizzle: Annotated[Literal[32, 64, 128], Exactly] | Auto = knob("Swizzle of the shared memory tile, in bytes.")
    store: Literal["tma", "direct", "reduce_add"] | Auto = Field(
        default="auto",
        description="How an output leaves shared memory. tma: rows of a multiple of 16 bytes, 16-byte aligned. direct: "
        "by the threads, element by element, for any extent and stride. reduce_add: TMA adds to what is there, "
        "for outputs such as `grad: grad + acc`, and the kernel reads none of it. `auto` is tma, but direct where a "
        "constant extent rules TMA out.",
    )


class GemmPdl(Pdl):
    """Programmatic dependent launch: overlap with the kernels before and after on the stream."""

    ready: list[Name] = Field(
        default=[],
        description="Operands of the mainloop, weights mostly, that the caller promises to have been written before "
        "the preceding kernel could start. Kernels may load them before they wait for that one.",
    )


class Groups(Section):
    """Rows that fall into groups, each with a matrix of its own: which of `labels`, `counts`, `offsets` says so."""

    labels: Name | None = Field(
        default=None,
        description="An `i32` tensor with the group of each row. The rows of a group lie together and begin at a "
        "multiple of `align`; a negative label is padding.",
    )
    counts: Name | None = Field(
        default=None,
        description="An `i32` tensor with the number of rows of each group; the operand of rows and the outputs have "
        "the dim of groups, and room for as many rows in each.",
    )
    offsets: Name | None = Field(
        default=None,
        description="An `i32` tensor with the end of each group's rows; groups of any length lie back to back from row "
        "0 on, so that each begins where the one before it ends.",
    )
    align: Positive | None = Field(
        default=None, description="Rows that each group begins at a multiple of, with `labels`; 128 where not written."
    )
    expected_rows: Positive | None = Field(
        default=None,
        description="Rows that a group is expected to have. It steers `auto`, where the other extents are known, and "
        "nothing else.",
    )


class GemmBench(Bench):
    """What `cutegen bench` runs; no effect on the kernel."""

    baselines: list[Literal["torch", "nvmath", "quack", "cutlass_operators", "deep_gemm"]] = Field(  # type: ignore[assignment]
        default=[], description="What to measure against the kernel; not listed: all that fit. `torch` is cuBLAS."
    )


class GemmKnobs(TensorSpec):
    """What a kernel is, and how it is made: all but what is run."""

    meaning: ClassVar[frozenset[str]] = TensorSpec.meaning | {"mainloop", "epilogue", "alias", "groups", "invariance"}
    by_arch: ClassVar[tuple[str, ...]] = BY_ARCH

    kernel: Literal["gemm"] = Field(description="The kernel family.")
    arch: Annotated[Arch, WithJsonSchema({"anyOf": [_ARCH, _ARCHS]})] = Field(
        description="The architecture to generate for, or several in a list: one package then has kernels for each."
    )
    for_archs: Annotated[dict[str, Any], WithJsonSchema(_BY_ARCH)] = Field(
        default={},
        alias="for",
        description="Of several architectures, what differs: `for: {sm_100a: {tiling: ...}}` takes the place of what "
        f"the rest says. It may have {', '.join(BY_ARCH[:-1])} and {BY_ARCH[-1]}.",
    )
    mainloop: Expression = Field(
        default="a @ b",
        description="The product; it contracts the dim that its operands share. `(a * sa) @ (b * sb)` scales operands, "
        "`a[rows] @ b` gathers the rows of the left one by an i32 index, `(a * sa)[rows]` those of its scale as well.",
    )
    groups: Groups | None = Field(default=None, description="Rows in groups, as in a mixture of experts.")
    accumulate: Accumulate = Accumulate()
    epilogue: dict[str, Expression] = Field(
        default={},
        json_schema_extra=NAMES,
        description="Expressions over `acc`, the f32 product. A key that is a tensor is an output; any other key is a "
        "local; a tensor that is only read is an input. Left out, the one tensor that `mainloop` does not read is acc.",
    )
    alias: dict[str, Name] = Field(
        default={},
        description="Outputs that a call may store where an input of the same dtype, dims and layout lies, as in "
        "`{d: c}`. An output that its own expression reads, `c: acc + c`, needs no alias: it is both.",
    )
    invariance: Literal["none", "batch"] = Field(
        default="none",
        description="batch: the bits of a row depend neither on the number of rows of a call nor on its place among "
        "them, so no kernel splits K, and all of them have one tile k and one accumulation; where columns are summed "
        "up, one tile n as well.",
    )
    tiling: Tiling = Tiling()
    pipeline: Pipeline = Pipeline()
    warpgroups: Warpgroups = Warpgroups()
    scheduler: Scheduler | Auto = knob(
        "How CTAs get their tiles: by position; or, when they are ready for one, from a counter, or by cluster launch "
        "control (clc), which cancels the launch of a cluster that has not begun and gives its tile to one that has."
    )
    tma: dict[str, Tma] = Field(default={}, description="Knobs of bulk copies, by tensor.")
    pdl: GemmPdl = GemmPdl()

    drop_empty_tma = field_validator("tma", mode="before")(drop_absent)

    def cross_check(self) -> Iterator[Finding | Unworded]:
        yield from super().cross_check()
        for name in self.tma:
            if name not in self.tensors:
                yield unknown_name(UNKNOWN_TENSOR.id, name, self.tensors, ("tma", name), "no tensor is named")
        for index, name in enumerate(self.pdl.ready):
            if name not in self.tensors:
                at = ("pdl", "ready", index)
                yield unknown_name(UNKNOWN_TENSOR.id, name, self.tensors, at, "no tensor is named")


Tune = tune_section(GemmKnobs, KNOBS)
PortfolioTiling = tiling_section(GemmKnobs, [knob for knob in KNOBS if knob.part != "apart"])


class GemmSpec(GemmKnobs):
    """A matrix product, dense or of groups of rows, with an epilogue: D = epilogue(A @ B)."""

    portfolio: Annotated[int, Field(ge=1, le=32)] | list[PortfolioTiling] | Auto = Field(  # type: ignore[valid-type]
        default="auto",
        description="The tilings that calls choose among by their extents, in addition to winners of `tune`: how many "
        "there may be, 12 where not written and 32 at most, or a list of them. `auto` picks them by the cost model, "
        "over extents that `dims`, `instances` and `m` narrow; 1 is the one that the decisions say, whatever the "
        "extents.",
    )
    bench: GemmBench = GemmBench()
    tune: Tune = Tune()  # type: ignore[valid-type]
