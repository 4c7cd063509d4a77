"""What every kernel family's spec has in common, as pydantic models: one description a field, for schema and docs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator
from pydantic.config import JsonDict

from cutegen.arch import DEVICES
from cutegen.diagnostics import Rule, cut, register, suggest
from cutegen.epilogue.rules import MAX_EXPRESSION
from cutegen.spec.dims import MAX_EXTENT
from cutegen.spec.document import KeyPath
from cutegen.spec.finding import FieldError, Finding, Unworded
from cutegen.spec.names import IDENTIFIER
from cutegen.spec.tensors import TENSOR_PATTERN, TensorDecl, parse_tensor

MAX_PROBLEMS = 128  # a problem takes 15 ms to rank

EMPTY_RANGE = register(Rule(
    "empty-range", "a range is [low, high] with low <= high",
    "`m: [lo, hi]` in dims promises that every call has lo <= m <= hi.",
    "dims: {m: [4096, 1]}",
))  # fmt: skip
UNKNOWN_DIM = register(Rule(
    "unknown-dim", "dims named outside `tensors` occur in a tensor's shape",
    "A dim exists because some tensor has it. A name in `dims`, `instances` or a list of shapes that no tensor uses is "
    "a typo, and its value would steer nothing.",
    "dims: {nn: 4096}",
))  # fmt: skip
UNKNOWN_TENSOR = register(Rule(
    "unknown-tensor", "tensors named outside `tensors` are declared there",
    "A knob for a tensor needs the tensor.",
    "tma: {w: {swizzle: 128}}",
))  # fmt: skip
MISSING_DIM = register(Rule(
    "missing-dim", "a shape gives every dim that is not constant",
    "A list of shapes says which problems to run; each entry needs a value for every dim that `dims` leaves open.",
    "check: {shapes: [{m: 64}]}",
))  # fmt: skip
SHAPE_RANGE = register(Rule(
    "shape-range", "a shape keeps what `dims` promises",
    "A constant dim has one value and a ranged dim stays in its range, in `instances` and in lists of shapes, too.",
    "dims: {n: 4096}\ninstances: [{n: 8192}]",
))  # fmt: skip

LISTED_PROBLEMS = register(Rule(
    "listed-problems", f"`instances` and `m` make at most {MAX_PROBLEMS} problems",
    "Each instance is combined with each value of `m`, and every problem is ranked when the kernel is decided, and "
    "built and tuned for.",
    "instances: [{n: 8, k: 8}, {n: 16, k: 8}, ...]\nm: [1, 2, 3, ...]",
))  # fmt: skip
GIVEN_TWICE = register(Rule(
    "given-twice", "a problem has each of its extents from one place",
    "Each of `instances` is combined with all values of `m`, and each problem of a suite with all extents of `grid`; "
    "where it has an extent of its own for such a dim, the list would say something else.",
    "instances: [{m: 8, n: 6144, k: 4096}]\nm: [1, 16]",
))  # fmt: skip

DEVICE_ARCH = register(Rule(
    "device-arch", "the device that a spec names is of its architecture",
    "`device` steers the choice of a kernel by what one product offers, so it is one that runs kernels of `arch`.",
    "arch: sm_100a\ndevice: h200",
))  # fmt: skip


# Sections that steer nothing that is generated; `tune` lists candidates, it chooses none.
RUN_SECTIONS = ("check", "bench", "tune")
# Keys that change no kernel, so that decisions and winners hold whatever they say.
IDLE_KEYS = (*RUN_SECTIONS, "function")


MAX_LISTED = 20  # names in a message


def drop_absent(data: Any) -> Any:
    """A map without its keys that have no value, for maps of sections: see Section."""
    return {k: v for k, v in data.items() if v is not None} if isinstance(data, dict) else data


class Section(BaseModel):
    """A map of the spec with known keys. Frozen; unknown keys are findings; values are never converted."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def drop_empty(cls, data: Any) -> Any:
        """A key without a value counts as absent where it may be: a section whose lines are all commented out."""
        if not isinstance(data, dict):
            return data
        fields = cls.model_fields
        return {k: v for k, v in data.items() if v is not None or k not in fields or fields[k].is_required()}


def _check_range(value: tuple[int, int]) -> tuple[int, int]:
    if value[0] > value[1]:
        raise FieldError([Finding(EMPTY_RANGE.id, f"the range [{value[0]}, {value[1]}] is empty", "write [low, high]")])
    return value


def _as_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _declare(value: object) -> TensorDecl:
    if not isinstance(value, str):
        raise ValueError("not text")
    return parse_tensor(value)


def _refuse_equal(value: object) -> object:
    if isinstance(value, bool | float):
        raise ValueError("not an integer")
    return value


def _integers(count: int) -> WithJsonSchema:
    """The JSON schema of a list of `count` positive integers, in words that draft-07 editors know, too."""
    item = {"type": "integer", "minimum": 1, "maximum": MAX_EXTENT}
    return WithJsonSchema({"type": "array", "items": item, "minItems": count, "maxItems": count})


Auto: TypeAlias = Literal["auto"]
Exactly = BeforeValidator(_refuse_equal)  # for a Literal of integers, which 1.0 and true would match as equals of 1
Version = Annotated[Literal[1], Exactly]
LANGUAGE: int = get_args(get_args(Version)[0])[-1]  # the version of today
Positive = Annotated[int, Field(ge=1, le=MAX_EXTENT)]
Number = Annotated[float, Field(allow_inf_nan=False)]  # with gt=0 and the like in a Field next to it
Pair = Annotated[tuple[Positive, Positive], BeforeValidator(_as_tuple), _integers(2)]
Triple = Annotated[tuple[Positive, Positive, Positive], BeforeValidator(_as_tuple), _integers(3)]
Range = Annotated[tuple[Positive, Positive], BeforeValidator(_as_tuple), AfterValidator(_check_range), _integers(2)]
Tensor = Annotated[
    TensorDecl,
    BeforeValidator(_declare),
    WithJsonSchema(
        {"type": "string", "$comment": "tensor declaration", "examples": ["bf16[m, k]"], "pattern": TENSOR_PATTERN}
    ),
]
Name = Annotated[str, Field(pattern=f"^{IDENTIFIER.pattern}$", json_schema_extra={"$comment": "name"})]
Expression = Annotated[
    str, Field(max_length=MAX_EXPRESSION, json_schema_extra={"$comment": "expression", "examples": ["relu(acc)"]})
]


def _check_product(name: str) -> str:
    if name not in DEVICES:
        raise ValueError("not in the table")
    return name


Product = Annotated[str, AfterValidator(_check_product), WithJsonSchema({"type": "string", "enum": list(DEVICES)})]


# Which keys a map from names may have; editors read it, `parse_spec` says it in words.
NAMES: JsonDict = {"propertyNames": {"pattern": f"^{IDENTIFIER.pattern}$"}}


def knob(description: str) -> Any:
    """A field that is `auto` unless it is written."""
    return Field(default="auto", description=description)


Shape: TypeAlias = dict[str, Positive]


class Check(Section):
    """What `cutegen check` runs; no effect on the kernel."""

    shapes: list[Shape] = Field(
        default=[], description="Problems to check next to the edge shapes that follow from alignment."
    )


class Bench(Section):
    """What `cutegen bench` runs; no effect on the kernel."""

    suite: Name | None = Field(default=None, description="A named list of shapes, `specs/suites/NAME.yaml`.")
    shapes: list[Shape] = Field(default=[], description="Problems to measure.")
    baselines: list[str] = Field(default=[], description="What to measure against the kernel.")


class KernelSpec(Section):
    """The keys that specs of all families share. meaning: those that say what is computed, not how. by_arch: those that
    a spec for several architectures may give each; none: the family's specs are for one. promised, no_dim: for
    messages, where specs say what is known of the dims, and what is said of a name that is none."""

    meaning: ClassVar[frozenset[str]] = frozenset()
    by_arch: ClassVar[tuple[str, ...]] = ()
    promised: ClassVar[str]
    no_dim: ClassVar[str]

    cutegen: Version = Field(description="Version of the spec language.")
    kernel: str = Field(description="The kernel family.")
    arch: str = Field(description="The architecture to generate for.")
    function: Name | None = Field(
        default=None,
        description="Name of the function that the generated package offers, with the operands as its parameters; "
        "default the name of the spec.",
    )
    device: Product | None = Field(
        default=None, description="The product whose SM count, caches and rates steer the cost model; default per arch."
    )
    check: Check = Check()
    bench: Bench = Bench()

    def shape_dims(self) -> dict[str, tuple[int, int] | None]:
        """What a shape gives an extent for: the promised (low, high), equal for a constant, or None."""
        raise NotImplementedError

    def listed_shapes(self, rows: str) -> list[Shape]:
        """The closed set of problems that the spec lists, complete or not. rows: the dim that `m` has values of."""
        return []

    def cross_check(self) -> Iterator[Finding | Unworded]:
        """Findings that need two sections at once, with paths from the root."""
        if self.device and DEVICES[self.device].arch != self.arch:
            fitting = [name for name, device in DEVICES.items() if device.arch == self.arch]
            message = f"{self.device} runs {DEVICES[self.device].arch}, the spec is for {self.arch}"
            yield Finding(DEVICE_ARCH.id, message, f"write {' or '.join(fitting)}, or leave it out", ("device",))
        dims = self.shape_dims()
        needed = [d for d, promise in dims.items() if promise is None or promise[0] != promise[1]]
        for section, shapes in (("check", self.check.shapes), ("bench", self.bench.shapes)):
            yield from self.check_shapes((section, "shapes"), shapes, dims, needed)

    def check_shapes(
        self,
        path: KeyPath,
        shapes: Iterable[Shape],
        dims: Mapping[str, tuple[int, int] | None],
        needed: Collection[str] = (),
    ) -> Iterator[Finding | Unworded]:
        """Findings about a list of shapes at `path`. dims: see `shape_dims`; needed: those that each must give."""
        for index, shape in enumerate(shapes):
            yield from self._check_shape((*path, index), shape, dims, needed)

    def _check_shape(
        self, path: KeyPath, shape: Shape, dims: Mapping[str, tuple[int, int] | None], needed: Collection[str]
    ) -> Iterator[Finding | Unworded]:
        for dim, value in shape.items():
            low, high = dims.get(dim) or (value, value)
            if dim not in dims:
                yield unknown_name(UNKNOWN_DIM.id, dim, dims, (*path, dim), self.no_dim)
            elif not low <= value <= high:
                promise = f"{low}" if low == high else f"from {low} to {high}"
                message = f"`{dim}` is {value} here, and {promise} {self.promised}"
                yield Finding(SHAPE_RANGE.id, message, path=(*path, dim))
        if not shape.keys() >= set(needed):
            message = f"this shape gives no {list_names([d for d in needed if d not in shape])}"
            yield Finding(MISSING_DIM.id, message, f"the dims of this spec are {list_names(dims)}", path)


class TensorSpec(KernelSpec):
    """A spec that declares its tensors, and the dims that their shapes name."""

    meaning: ClassVar[frozenset[str]] = frozenset({"dims", "tensors"})
    promised: ClassVar[str] = "in `dims`"
    no_dim: ClassVar[str] = "no tensor has dim"

    dims: dict[str, Positive | Range] = Field(
        default={},
        json_schema_extra=NAMES,
        description="What is known of the dims when the kernel is generated: an integer is a compile-time constant, "
        "`[low, high]` a promised range; a dim that is absent is dynamic.",
    )
    tensors: dict[str, Tensor] = Field(
        min_length=1,
        json_schema_extra=NAMES,
        description="The operands of a call, in order: `dtype[dims]`, dims as torch has them, the last one contiguous "
        "unless `@dim` says otherwise. `f32` is a number passed by value, `f32[]` a device tensor with one element, "
        "`?` at the end means that it may be None.",
    )
    instances: list[Shape] = Field(
        default=[],
        description="Problems that `auto` decides for and `tune` tunes, such as `{n: 28672, k: 4096}`. Other problems "
        "run as well.",
    )
    m: list[Positive] = Field(default=[], description="Values of m, the rows, that each of `instances` is taken with.")

    def dim_names(self) -> dict[str, None]:
        """Every dim that a tensor's shape names, in order of first use."""
        shapes = (t.dims for t in self.tensors.values() if t.dims)
        return {d.name: None for dims in shapes for d in dims if d.name is not None}

    def shape_dims(self) -> dict[str, tuple[int, int] | None]:
        known = {d: (v, v) if isinstance(v, int) else v for d, v in self.dims.items()}
        return {d: known.get(d) for d in self.dim_names()}

    def listed_shapes(self, rows: str) -> list[Shape]:
        listed = [{rows: extent} for extent in self.m] or [{}]
        shapes = [{**instance, **extent} for instance in self.instances or [{}] for extent in listed]
        return shapes if self.instances or self.m else []

    def cross_check(self) -> Iterator[Finding | Unworded]:
        names = self.dim_names()
        if (count := (len(self.instances) or 1) * (len(self.m) or 1)) > MAX_PROBLEMS:
            section = "instances" if len(self.instances) > len(self.m) else "m"
            message = f"`instances` and `m` make {count} problems; {MAX_PROBLEMS} is the most"
            remedy = "list those that matter; a range in `dims` promises the others"
            yield Finding(LISTED_PROBLEMS.id, message, remedy, (section,), key=True)
        yield from (
            unknown_name(UNKNOWN_DIM.id, d, names, ("dims", d), self.no_dim) for d in self.dims if d not in names
        )
        yield from self.check_shapes(("instances",), self.instances, self.shape_dims())
        yield from super().cross_check()


def unknown_name(rule: str, name: str, known: Collection[str], path: KeyPath, what: str) -> Unworded:
    """A finding about a key that names nothing, with the nearest name that exists."""

    def word() -> list[Finding]:
        remedy = suggest(name, known) or f"there are {list_names(known)}"
        return [Finding(rule, f"{what} `{cut(name)}`", remedy, path, key=True)]

    return Unworded(path, True, word)


def list_names(names: Collection[str]) -> str:
    """Names in a message, the first of many."""
    shown = [cut(name) for name in islice(names, MAX_LISTED)]
    return ", ".join(shown) + (f" and {len(names) - len(shown)} more" if len(names) > len(shown) else "")
