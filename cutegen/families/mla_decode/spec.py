"""The spec of `kernel: mla_decode`. What is not written is `auto`: the first legal candidate, chosen by resolve."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, TypeAlias, get_args

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from cutegen.families.mla_decode.candidate import (
    MAX_JOIN_RATIO,
    MAX_OVERHEAD,
    MAX_PREFETCH,
    MAX_UNIT,
    Kernel,
    Variant,
)
from cutegen.families.mla_decode.problem import PIECE_KEYS, Ready
from cutegen.families.pdl import Pdl
from cutegen.families.tune_section import TuneSection
from cutegen.spec.base import Auto, Bench, Exactly, KernelSpec, Positive, Range, Section, knob
from cutegen.spec.finding import FieldError, Finding
from cutegen.spec.parse import BAD_VALUE

Unit = Annotated[int, Field(ge=1, le=MAX_UNIT)]
Overhead = Annotated[int, Field(ge=1, le=MAX_OVERHEAD)]  # a request without keys needs a place in the list of work
JoinRatio = Annotated[int, Field(ge=1, le=MAX_JOIN_RATIO)]
MAX_ROW_BYTES = 4096  # of a quantised row; those of its parts together are far fewer
ByteOffset = Annotated[int, Field(ge=0, le=MAX_ROW_BYTES)]
MAX_ROPE = 4096  # values; what a kernel takes is fewer
Prefetch = Annotated[int, Field(ge=0, le=MAX_PREFETCH)]
Arch: TypeAlias = Literal["sm_90a", "sm_100a", "sm_103a"]
# Keys of a spec that may differ by architecture.
BY_ARCH = ("split_kv", "variant", "scheduler", "pipeline", "pdl", "warpgroups", "device", "tune")
_ARCH = {"type": "string", "enum": list(get_args(Arch))}
_NAME = {"type": "string", "$comment": "name", "pattern": f"^({'|'.join(get_args(Arch))})$"}
_ARCHS = {"type": "array", "items": _NAME}
_OF_ARCH = {"type": "object", "propertyNames": {"enum": list(BY_ARCH)}}
_BY_ARCH = {"type": "object", "propertyNames": _ARCH, "additionalProperties": _OF_ARCH}


class LatentScale(Section):
    """Factors of a part's values."""

    dtype: Literal["f32", "e8m0"] = Field(
        description="Element type: f32, which the kernel rounds to bf16, or powers of two as e8m0 has them."
    )
    block: Positive = Field(description="Values that share a scale: 64, 128, 256 or 512.")
    place: Literal["row", "plane"] = Field(
        default="row",
        description="row: in the row. plane: behind the rows of a page, those of one row after the other, each filled "
        "up to a multiple of 8 bytes.",
    )
    offset: ByteOffset | None = Field(
        default=None, description="First byte in the row; by default behind the latent part."
    )


class LatentPart(Section):
    """The latent part of a quantised row, which is V as well."""

    dtype: Literal["e4m3"] = Field(description="Element type.")
    scale: LatentScale | None = Field(
        default=None, description="Its scales; by default one of the whole cache, an argument of a call."
    )
    offset: ByteOffset = Field(default=0, description="First byte in the row.")


class RopePart(Section):
    """The rotary part of a quantised row, if it has one."""

    dtype: Literal["bf16", "e4m3"] = Field(description="Element type: bf16, or e4m3 where the cache has one scale.")
    offset: ByteOffset | None = Field(default=None, description="First byte in the row; by default behind the scales.")


class KvCache(Section):
    """The paged cache: the latent part of a token first, then the rotary one; V is the first 512 values. With `latent`
    its rows are bytes, made of these parts; without, of the spec's dtype."""

    page_size: Positive = Field(
        default=64, description="Tokens of one page: 16, 32, 64 or 128, with sparse keys 1 to 1024."
    )
    page_stride: Literal["any"] = Field(
        default="any", description="Bytes from page to page: read at run time, any multiple of 16."
    )
    latent: LatentPart | None = Field(default=None, description="The latent part, where it is quantised.")
    rope: RopePart | None = Field(
        default=None, description="The rotary part next to a quantised latent part; left out with `rope_dim: 0`."
    )
    row_bytes: Annotated[int, Field(ge=1, le=MAX_ROW_BYTES)] | None = Field(
        default=None,
        description="Bytes of a quantised row, without what lies in a plane; by default where its last part ends.",
    )


class Extra(Section):
    """A second cache, whose keys each token sees too; its format is that of the first."""

    topk: Positive | Range = Field(description="Indices of a token into it: a number, or a promised range.")
    page_size: Positive = Field(default=64, description="Tokens of one page of it: 1 to 1024.")


class Keys(Section):
    """Sparse keys: which rows of the cache each new token sees."""

    topk: Positive | Range = Field(
        description="Indices of a token: a number, or a promised range `[low, high]`, of which each call has one."
    )
    extra: Extra | None = Field(default=None, description=Extra.__doc__)


class Lse(Section):
    """The log-sum-exp of each row's scores, f32."""

    base: Annotated[Literal["e", 2], Exactly] = Field(default="e", description="Base of the logarithm.")
    layout: Literal["bhs", "bsh"] = Field(
        default="bhs", description="Order of its dims: b batch, h heads, s query_len; bhs is FlashMLA's."
    )
    empty: Literal["+inf"] = Field(default="+inf", description="Its value for a row that sees no key; O is 0 there.")


class SplitKv(Section):
    """Into how many parts the keys of one request may be cut; the parts are joined in the same launch."""

    max: Positive | Literal["any"] | Auto = knob(
        "Most parts of one request. 1: none is ever cut, so a request's result does not depend on the others; any: "
        "what balances the SMs."
    )
    keys: Positive | None = Field(
        default=None,
        description="With `invariance: batch`, keys of a part, a multiple of 128: a request has as many parts as that "
        f"gives, up to `max`, and then longer ones. By default {PIECE_KEYS}.",
    )


class Scheduler(Section):
    """The costs by which keys are shared out evenly among the CTAs, on the device."""

    unit: Unit | Literal["any"] | Auto = knob(
        "64-key blocks that parts of a request are a multiple of: 2, or 1 for parts half as long where requests are "
        "few and short; any, with seesaw or both: what suits the rows and batch of a call."
    )
    overhead: Overhead | Auto = knob("What a request costs in addition to its keys, in pairs of 64-key blocks.")
    join_ratio: JoinRatio | Auto = knob(
        "Cost of a pair of key blocks over that of joining one more part: bounds how finely a request is cut."
    )
    split_columns: bool | Auto = knob(
        "Whether two CTAs may work on the same keys, each for half of the columns of O: the device decides it by the "
        "lengths, where requests are few and short."
    )


class Pipeline(Section):
    """How far loads run ahead; the two K buffers are fixed."""

    prefetch: Prefetch | Auto = knob(
        "Pairs of key blocks that are fetched to L2 ahead of their load; of `variant: both`, only by seesaw_2cta."
    )


class MlaPdl(Pdl):
    """Programmatic dependent launch: overlap with the kernels before and after on the stream."""

    ready: list[Ready] = Field(
        default=[],
        description="Arguments that the caller promises to have been written before the preceding kernel "
        "could start: of block_table the entries within a length, of kv_cache all but the slots of the new tokens, the "
        "last query_len of each request.",
    )
    schedule_ahead: bool | Auto = knob(
        "Find the parts of the work before the wait, and again behind it if lengths have changed by then."
    )
    load_ahead: bool | Auto = knob(
        "Load the first keys of a part before the wait, but for blocks with new tokens, where parts are found before "
        "it and `ready` names block_table and kv_cache."
    )


class Producer(Section):
    """The warpgroup that issues TMA loads."""

    registers: Positive | Auto = knob("Registers per thread, a multiple of 8 (setmaxnreg).")


class Consumer(Section):
    """The two warpgroups that run MMA and softmax."""

    registers: Positive | Auto = knob("Registers per thread, a multiple of 8 (setmaxnreg).")


class Warpgroups(Section):
    """Registers of the warpgroups of a CTA."""

    producer: Producer = Producer()
    consumer: Consumer = Consumer()


class MlaBench(Bench):
    """What `cutegen bench` runs; no effect on the kernel."""

    baselines: list[
        Literal["flash_mla", "sgl_flash_mla", "flash_attn", "fa3_fwd", "paged_read", "row_read", "torch"]
    ] = Field(  # type: ignore[assignment]
        default=[], description="What to measure against the kernel; not listed: all that fit."
    )


class Tune(TuneSection):
    """Candidates of `cutegen tune`: every combination of the listed values. Knobs that are not listed are what the spec
    writes, else the default's. Nothing listed: variants and costs around the default's."""

    variant: list[Kernel] = Field(default=[], description="Candidates for `variant`.")
    unit: list[Unit] = Field(default=[], description="Candidates for `scheduler.unit`.")
    overhead: list[Overhead] = Field(default=[], description="Candidates for `scheduler.overhead`.")
    join_ratio: list[JoinRatio] = Field(default=[], description="Candidates for `scheduler.join_ratio`.")
    split_columns: list[bool] = Field(default=[], description="Candidates for `scheduler.split_columns`.")
    prefetch: list[Prefetch] = Field(default=[], description="Candidates for `pipeline.prefetch`.")


def _refuse_bare_number(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool) and value != 1:
        message = f"`split_kv: {value}` could mean exactly or at most {value}; of numbers only 1 stands alone"
        remedy = f"write {{max: {value}}} for at most {value} parts" if value > 1 else "write 1, or {max: 8}"
        raise FieldError([Finding(BAD_VALUE.id, message, remedy)])
    return value


def _as_section(value: SplitKv | Literal[1] | Auto) -> SplitKv:
    return value if isinstance(value, SplitKv) else SplitKv(max=value)


def _ends(extent: int | tuple[int, int]) -> tuple[int, int]:
    return (extent, extent) if isinstance(extent, int) else extent


class MlaSpec(KernelSpec):
    """Multi-head latent attention of new tokens over a paged cache: O = softmax(scale Q K^T) V, split over the keys."""

    meaning: ClassVar[frozenset[str]] = frozenset(
        {"dtype", "heads", "query_len", "latent_dim", "rope_dim", "q", "mask", "kv_cache", "keys", "sink", "lse"}
        | {"invariance"}
    )
    by_arch: ClassVar[tuple[str, ...]] = BY_ARCH
    promised: ClassVar[str] = "in the spec"
    no_dim: ClassVar[str] = "no dim is named"

    kernel: Literal["mla_decode"] = Field(description="The kernel family.")
    arch: Annotated[Arch, WithJsonSchema({"anyOf": [_ARCH, _ARCHS]})] = Field(
        description="The architecture to generate for, or several in a list: one package then has kernels for each."
    )
    for_archs: Annotated[dict[str, Any], WithJsonSchema(_BY_ARCH)] = Field(
        default={},
        alias="for",
        description="Of several architectures, what differs: `for: {sm_90a: {variant: seesaw}}` takes the place of "
        f"what the rest says. It may have {', '.join(BY_ARCH[:-1])} and {BY_ARCH[-1]}.",
    )
    dtype: Literal["bf16", "f16"] = Field(description="Element type of Q, cache and O; scores and sums are f32.")
    heads: Positive | Range = Field(
        description="Query heads, which share one K and V: a number, or a promised range `[low, high]` within which "
        "every call may choose."
    )
    query_len: Positive | Range = Field(
        default=1, description="New tokens of each request, the same for all requests of a call; a number or a range."
    )
    latent_dim: Positive = Field(
        default=512, description="Values of the latent part of a cache row: 512, or 448 in a quantised one."
    )
    rope_dim: Annotated[int, Field(ge=0, le=MAX_ROPE)] = Field(
        default=64,
        description="Values of the rotary part, behind the latent one: 64, or 0 in a quantised row. O is a sum of the "
        "first 512 values of rows, with 448 latent ones of all.",
    )
    q: Literal["joined", "split"] = Field(
        default="joined", description="One tensor with latent and rotary part, or two: q_nope and q_pe."
    )
    mask: Literal["causal", "none"] = Field(
        default="causal",
        description="Which keys the new tokens see: causal, where the last token sees all and each one before it one "
        "less; or all.",
    )
    kv_cache: KvCache = KvCache()
    keys: Keys | None = Field(
        default=None, description="Sparse keys, by indices of each token; by default those of a block table."
    )
    sink: bool = Field(
        default=False,
        description="Whether a call takes an attention sink: a logit of each head that takes weight and has no value.",
    )
    lse: Lse = Lse()
    invariance: Literal["none", "batch"] = Field(
        default="none",
        description="batch: the bits of a request depend neither on the other requests of a call nor on the number of "
        "SMs, so requests are cut by their own lengths alone, at pairs of key blocks.",
    )
    split_kv: Annotated[
        SplitKv | Annotated[Literal[1], Exactly] | Auto,
        BeforeValidator(_refuse_bare_number),
        AfterValidator(_as_section),
    ] = Field(
        default="auto",
        validate_default=True,
        description="Cutting of one request's keys: `1` is short for `{max: 1}`.",
    )
    variant: Variant | Auto = knob(
        "seesaw: a CTA for 64 rows, whose two warpgroups take turns; seesaw_2cta: two such CTAs share their loads; "
        "keys_on_m: a CTA for up to 32 rows, whose products have keys on M and rows on N; both: a call takes the one "
        "of the first two that suits its rows and batch; pair, of sm_100a: two CTAs that multiply together."
    )
    scheduler: Scheduler = Scheduler()
    pipeline: Pipeline = Pipeline()
    pdl: MlaPdl = MlaPdl()
    warpgroups: Warpgroups = Warpgroups()
    bench: MlaBench = MlaBench()
    tune: Tune = Tune()

    def shape_dims(self) -> dict[str, tuple[int, int] | None]:
        heads, query_len = (_ends(v) for v in (self.heads, self.query_len))
        keys = {"kv_len": None} if self.keys is None else {"topk": _ends(self.keys.topk)}
        return {"batch": None, "query_len": query_len, "heads": heads, **keys}
