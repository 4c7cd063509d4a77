"""The seams of a GEMM: what a feature may add, and where. Problems and candidates are in the kernel's frame, unless a
seam says otherwise."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from cutegen.arch import Arch, Device
from cutegen.families.gemm.candidate import Candidate, Core
from cutegen.families.gemm.cost_model import Shape, Work
from cutegen.families.gemm.problem import GemmProblem, ProblemDim
from cutegen.model.kernel import Pipeline, Role, Warps
from cutegen.model.smem import Element, SmemField, SmemRegion

MANY_ROWS = "rows are taken to be many"  # how reasons call that no shape is known


class Buffer(NamedTuple):
    """A scratch argument by its field in GemmTiling. elements: (in all, for each cluster tile). source: in words."""

    name: str
    elements: tuple[int, int]
    source: str


class Staged(Protocol):
    def __call__(
        self, name: str, element: Element, extents: Mapping[str, int], holds: str, align: int = 0
    ) -> SmemField:
        """A field of which each group of threads that store on their own has one. extents: by their source."""


class Settling(Protocol):
    """A candidate whose knobs get their values one after the other; see auto.py."""

    problem: GemmProblem
    c: Candidate
    arch: Arch
    shapes: Sequence[Shape]

    def settle(self, reason: str, **values: Any) -> None: ...

    def fits(self, c: Candidate) -> bool:
        """Whether there are rings for which the candidate's shared memory suffices."""


class Feature:
    """One feature, as far as it says nothing. A subclass says what it adds; feature_list.py has them all.

    register_knobs: candidate fields that `consumer_registers` depends on; smem_knobs: fields, or properties, that its
    shared memory does.
    """

    register_knobs: tuple[str, ...] = ()
    smem_knobs: tuple[str, ...] = ()

    # -- what is proposed, ranked and chosen --

    def list_forms(self, problem: GemmProblem, shapes: Sequence[Shape]) -> Sequence[Mapping[str, Any]]:
        """Knobs that all cores of a search have alike, what is likely better first. In the spec's frame."""
        return ({},)

    def as_multiplied(self, problem: GemmProblem, form: Mapping[str, Any]) -> GemmProblem:
        """The problem as kernels with the knobs of such a form have it."""
        return problem

    def propose(
        self, problem: GemmProblem, fixed: Mapping[str, Any], core: Core, works: Sequence[Work], device: Device
    ) -> Iterator[Core]:
        """Further cores for problems, next to one that does without the feature. In the spec's frame."""
        return iter(())

    def propose_in_portfolio(
        self, problem: GemmProblem, fixed: Mapping[str, Any], core: Core, shape: Shape, device: Device
    ) -> Iterator[Core]:
        """The same for one shape of a portfolio."""
        return iter(())

    def propose_unrated(self, problem: GemmProblem, core: Core, shape: Shape, sms: int) -> Iterator[tuple[Core, str]]:
        """The same for one shape on a device whose rates nobody measured, best first, and what each gains in words."""
        return iter(())

    def fixed_where_open(self, problem: GemmProblem) -> Mapping[str, Any]:
        """Knobs that are not chosen where extents are taken to be what nobody knows. In the spec's frame."""
        return {}

    def sketch(self, problem: GemmProblem, c: Candidate, arch: Arch) -> Candidate:
        """The candidate as the cost model judges it, before all of its knobs are settled."""
        return c

    def sketch_smem(self, core: Core) -> int:
        """Bytes of shared memory, about, next to the ring of A and B."""
        return 0

    def handicap(self, c: Candidate) -> int:
        """Percent of time by which a candidate has to be faster than others."""
        return 0

    def ctas_per_tile(self, c: Candidate | Core) -> int:
        """CTAs that compute one tile."""
        return 1

    def settle(self, settling: Settling) -> None:
        """Values and reasons of the feature's knobs, once the core is settled, and before rings and registers are."""

    def why_static(self, c: Candidate) -> str:
        """Why CTAs have to get their tiles by position; "" where they need not."""
        return ""

    def settle_last(self, settling: Settling) -> None:
        """The same of knobs that depend on rings, and on how CTAs get their tiles."""

    def kind(self, c: Candidate) -> object:
        """What makes candidates ones of several kinds to a search."""
        return None

    def vary(self, problem: GemmProblem, c: Candidate, arch: Arch, unordered: bool) -> Iterator[dict[str, Any]]:
        """Knobs in which a candidate may be better otherwise without the cost model knowing it. unordered: those with
        which sums may differ from run to run among them. In the spec's frame."""
        return iter(())

    def refuse_listed(self, problem: GemmProblem, field: str, value: object) -> tuple[str, str, str] | None:
        """(rule, reason, remedy) of what refuses a value that `tune` lists for a knob, whatever the others are. In the
        spec's frame."""
        return None

    def without_operands(self, rest: GemmProblem, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """The instances of a kernel as they are for what is left of the problem without optional operands. In the
        spec's frame."""
        return candidates

    def adapt_baselines(self, plan: Any, baselines: Iterator[Any]) -> Iterator[Any]:
        """What a plan is measured against, for operands as its calls have them."""
        return baselines

    # -- what a kernel has --

    def consumer_registers(self, problem: GemmProblem, c: Candidate) -> int:
        """Registers that a consumer thread needs on top of accumulators."""
        return 0

    def producer_registers(self, problem: GemmProblem, c: Candidate) -> int:
        """Registers that a thread of the producer warpgroup needs."""
        return 0

    def list_roles(self, problem: GemmProblem, c: Candidate) -> Iterator[Role]:
        """Roles of the last warps of the producer warpgroup."""
        return iter(())

    def queue_readers(self, problem: GemmProblem, c: Candidate) -> tuple[int, str]:
        """Further warps that read each tile index of a dynamic schedule, and " + ..." as a source."""
        return 0, ""

    def list_barriers(self, c: Candidate) -> Iterator[SmemField]:
        """Mbarriers behind those of A and B in shared memory."""
        return iter(())

    def list_tables(self, problem: GemmProblem) -> Iterator[SmemField]:
        """Fields of shared memory behind all mbarriers but those of a dynamic schedule."""
        return iter(())

    def list_staging(self, problem: GemmProblem, c: Candidate, staged: Staged) -> Iterator[SmemField]:
        """Fields between the vectors of the epilogue and the rings."""
        return iter(())

    def list_buffers(self, problem: GemmProblem, c: Candidate) -> Iterator[SmemField]:
        """Fields of shared memory behind the rings."""
        return iter(())

    def list_pipelines(
        self, problem: GemmProblem, c: Candidate, smem: Sequence[SmemRegion], consumers: str, warps: tuple[Warps, ...]
    ) -> Iterator[Pipeline]:
        """Pipelines before that of stores. consumers: what the warps are called that have the sums; warps: those."""
        return iter(())

    def loads(self, problem: GemmProblem, c: Candidate) -> str:
        """What else the load warp loads: ", ...", or ""."""
        return ""

    def finishes(self, c: Candidate) -> str:
        """Of what a consumer runs the epilogue, where it is not the tile: " of ...", or ""."""
        return ""

    def numbers(self, problem: GemmProblem, c: Candidate) -> Mapping[str, tuple[Any, str]]:
        """Fields of GemmTiling: value, and where it comes from."""
        return {}

    def scratch(self, problem: GemmProblem, c: Candidate) -> Iterator[Buffer]:
        """Scratch in global memory; what several features have of one name adds up. In sources, `{NAME}` stands for
        what `terms` has."""
        return iter(())

    def index_tensors(self, problem: GemmProblem) -> Iterator[tuple[str, ProblemDim]]:
        """Arguments with an i32 for each element of a dim."""
        return iter(())

    def call_scratch(self, problem: GemmProblem, c: Candidate, shape: Shape) -> Iterator[tuple[str, int]]:
        """Scratch of any contents besides that of the kernel: its name and bytes. In the spec's frame."""
        return iter(())

    def terms(self, problem: GemmProblem, c: Candidate) -> Mapping[str, tuple[object, str]]:
        """What stands in braces in sources: its value here, and what it is in every tiling."""
        return {}

    def loads_before_wait(self, c: Candidate) -> int:
        """Operands that the code loads before the wait for the preceding kernel."""
        return 0

    def atomics(self, problem: GemmProblem, c: Candidate) -> int:
        """Atomic operations in the code."""
        return 0

    def cluster_stores(self, problem: GemmProblem, c: Candidate) -> int:
        """Stores of 16 bytes to the shared memory of other CTAs in the code."""
        return 0

    # -- what is said of it --

    def overview(self, problem: GemmProblem) -> tuple[str, ...]:
        """Lines of the docstring of a kernel module."""
        return ()

    def describe_operands(self, problem: GemmProblem) -> Iterator[tuple[str, str, str]]:
        """Name, dtype and meaning of tensors that belong to the mainloop. In the spec's frame."""
        return iter(())

    def describe_results(self, problem: GemmProblem) -> Iterator[tuple[str, str, str]]:
        """The same of tensors behind the outputs."""
        return iter(())

    def explain_product(self, problem: GemmProblem, tilings: Mapping[str, Candidate]) -> Iterator[str]:
        """Lines on what is multiplied. tilings: candidates by name. In the spec's frame."""
        return iter(())

    def describe(self, c: Candidate) -> str:
        """In a few words, "" where the candidate does without it."""
        return ""

    def explain(self, c: Candidate) -> tuple[str, ...]:
        """How CTAs share out work by it."""
        return ()

    def rank_columns(self, c: Candidate) -> Mapping[str, str]:
        """Columns of the table of candidates."""
        return {}

    def note_ranking(self, shown: Sequence[Candidate], written: Collection[str]) -> tuple[str, ...]:
        """Lines above that table. written: fields that the spec writes."""
        return ()


def of_each_batch(problem: GemmProblem, batched: bool) -> str:
    """What there is one of for each batch index, or for each group of rows."""
    return f", one for each {problem.batch.name}" if problem.batch and batched else ""
