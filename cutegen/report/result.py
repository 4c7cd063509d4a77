"""A result of `cutegen bench` as it is kept in a file; tables, pages and comparisons are made from it alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    InstanceOf,
    ValidationError,
    model_validator,
)

from cutegen.defaults import Behind
from cutegen.diagnostics import CutegenError, printable_data
from cutegen.report.stored import unpack
from cutegen.roots import read_file
from cutegen.run.measured import FORMAT, STORED_VERSION, VERSION
from cutegen.run.shapes import problem_title, shape_text

MAX_BYTES = 256 << 20
MAX_WATTS = 1_000_000
# What reading a stored result of the wrong form ends with.
_DAMAGED = (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError)
REMEDY = "measure again: cutegen bench SPEC... -o FILE"

Number = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]


class Part(BaseModel):
    """Frozen; fields that a later version adds are passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class IntervalResult(Part):
    """A median and the order statistics around it; seconds, or a ratio of speeds."""

    median: Number
    low: Number
    high: Number
    coverage: Annotated[float, Field(ge=0, le=1)]


class SpeedResult(IntervalResult):
    against: str


class CandidateResult(Part):
    """One kernel or baseline on one problem."""

    name: str
    baseline: bool
    library: str
    does: str
    tiling: str
    numbers: InstanceOf[dict[str, Any]] | None  # as they are: candidates share those of one tiling
    digest: str | None
    sets: Count
    flops: Count | None
    bytes: Count | None
    seconds: IntervalResult
    tflops: Number | None
    terabytes_per_second: Number | None
    speed: IntervalResult | None
    speeds: dict[str, SpeedResult]
    share_of_floor: Number | None
    host_seconds: Number
    step_seconds: Number | None
    sm_mhz: list[Number]
    watts: list[Number]
    right: bool | None
    samples: list[Annotated[float, Field(gt=0, allow_inf_nan=False)]] = Field(min_length=1)


class _Problem(Part):
    """name: "" where the suite gives none, or there is no suite."""

    shape: dict[str, Count]
    name: str

    @property
    def dims(self) -> str:
        return shape_text(self.shape)

    @property
    def title(self) -> str:
        return problem_title(self.name, self.shape)


class ProblemResult(_Problem):
    """One problem. skipped: candidate -> reason. first: what was measured before it was repeated; it does not count."""

    source: str
    dtype: str
    epilogue: str
    against: str
    candidates: list[CandidateResult] = Field(min_length=1)
    skipped: dict[str, str]
    first: list[CandidateResult] = []

    @model_validator(mode="after")
    def check_rounds(self) -> ProblemResult:
        """Ratios are of samples of one round, so every candidate has one of each."""
        for candidates in (self.candidates, self.first):
            counts = sorted({len(c.samples) for c in candidates})
            if len(counts) > 1:
                said = " and ".join(map(str, counts))
                raise ValueError(f"candidates have {said} samples, and each has one of every round")
        return self

    @property
    def rounds(self) -> int:
        return len(self.candidates[0].samples)

    def kernels(self) -> Iterator[CandidateResult]:
        return (c for c in self.candidates if not c.baseline)

    def find(self, name: str) -> CandidateResult | None:
        return next((c for c in self.candidates if c.name == name), None)


class LeftOutResult(_Problem):
    """A problem that was not measured. reasons: by kernel; older results have "" for all of them."""

    reasons: dict[str, str]


class RatesResult(Part):
    """What the device sustained in this run: bytes and FLOPs per second."""

    copy_: Number = Field(alias="copy")
    read: Number
    matmul: Number
    dtype: str


class SummaryResult(Part):
    """Of one kernel against one library, over the problems that have both. below_one: on how many its speed is below 1;
    older results call it `behind`."""

    problems: Count
    geomean: IntervalResult
    least: Number
    most: Number
    below_one: Count = Field(validation_alias=AliasChoices("below_one", "behind"))


def _environment(data: dict[str, Any]) -> dict[str, Any]:
    """`gpu` is the only entry that anything is read from."""
    gpu = data.get("gpu")
    if not isinstance(gpu, dict | None):
        raise ValueError("gpu is not a map")
    if isinstance(watts := (gpu or {}).get("power_limit_watts"), int | float) and not 0 <= watts < MAX_WATTS:
        raise ValueError(f"a power limit is from 0 to {MAX_WATTS} W")
    return data


class Result(Part):
    """A whole run. sms: the most that kernels ran on; None: all. behind: what preceded each launch, timed with
    it. Older results tell neither: their kernels ran on all, back to back. floor: a problem with a lower end under it
    was repeated; None: none was."""

    format: Literal["cutegen bench"]
    version: int
    complete: bool
    ok: bool
    command: str
    suite: str
    environment: Annotated[dict[str, Any], AfterValidator(_environment)]
    rates: RatesResult
    rounds: Count
    slice_seconds: Number
    sms: Count | None = None
    behind: Behind = "nothing"
    floor: Number | None = None
    notes: list[str]
    summaries: dict[str, dict[str, SummaryResult]]
    problems: list[ProblemResult]
    left_out: list[LeftOutResult]

    def libraries(self) -> list[str]:
        """Those that any kernel is compared with, in the order in which they occur."""
        kernels = [c for p in self.problems for c in p.kernels()]
        return list(dict.fromkeys(library for c in kernels for library in c.speeds))

    def device(self) -> str:
        gpu = self.environment.get("gpu") or {}
        watts = gpu.get("power_limit_watts")
        return str(gpu.get("name") or "no GPU") + (f", {watts:.0f} W" if isinstance(watts, (int, float)) else "")


def parse_result(data: object) -> Result:
    """ValidationError: it is none."""
    return Result.model_validate(data)


def read_json(path: Path) -> object:
    """The data in a file, each text a line. CutegenError (exit 2): it cannot be read, or is torn."""
    try:
        raw = read_file(path, MAX_BYTES)
        text = raw.decode("utf-8")
    except OSError as error:
        raise CutegenError(f"{path}: {error.strerror or error}", REMEDY, exit_code=2) from error
    except UnicodeDecodeError as error:
        raise CutegenError(
            f"{path} is not text, so it is not a result of `cutegen bench`", REMEDY, exit_code=2
        ) from error
    if len(raw) > MAX_BYTES:
        raise CutegenError(f"{path} is larger than {MAX_BYTES >> 20} MiB, so it is not a result", REMEDY, exit_code=2)
    try:
        return printable_data(json.loads(text, parse_constant=_refuse_constant))
    except (ValueError, RecursionError) as error:
        why = f"line {error.lineno}: {error.msg}" if isinstance(error, json.JSONDecodeError) else str(error)
        raise CutegenError(f"{path} is torn or no JSON ({why})", REMEDY, exit_code=2) from error


def is_tuned(data: object) -> bool:
    """Whether this is what `cutegen tune --json` prints."""
    return isinstance(data, dict) and data.get("format") != FORMAT and {"spec", "problems"} <= data.keys()


def load_result(path: Path) -> Result:
    """The result in a file. CutegenError (exit 2): it cannot be read, is torn, or is something else."""
    data = load_data(path)
    try:
        return parse_result(data)
    except ValidationError as error:
        raise CutegenError(f"{path} is damaged: {describe_fault(error)}", REMEDY, exit_code=2) from error


def load_data(path: Path) -> dict[str, Any]:
    """The same as plain data, with all that follows from the samples; whether fields are right is not looked at."""
    data = read_json(path)
    if is_tuned(data):
        remedy = f"`cutegen report {path} --model SPEC` scores the cost model by it; for times {REMEDY}"
        raise CutegenError(f"{path} is what `cutegen tune --json` prints", remedy, exit_code=2)
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        said = "was written by something else" if not _is_old(data) else "was written before results had a version"
        raise CutegenError(f"{path} {said}: no result of this cutegen's `bench -o`", REMEDY, exit_code=2)
    if (version := data.get("version")) not in (VERSION, STORED_VERSION):
        said = f"this cutegen reads versions {VERSION} and {STORED_VERSION}"
        raise CutegenError(f"{path} is a result of version {version!r}; {said}", REMEDY, exit_code=2)
    try:
        return unpack(data) if version == STORED_VERSION else data
    except _DAMAGED as error:
        raise CutegenError(f"{path} is damaged: {_describe(error)}", REMEDY, exit_code=2) from error


def _describe(error: Exception) -> str:
    return f"`{error.args[0]}` is missing" if isinstance(error, KeyError) and error.args else str(error)


def describe_fault(error: ValidationError) -> str:
    """The first finding, and how many there are."""
    first = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']} ({error.error_count()} such findings)"


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a time")


def _is_old(data: object) -> bool:
    return isinstance(data, dict) and {"rates", "problems", "summaries"} <= data.keys()
