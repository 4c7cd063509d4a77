"""`python -m cutegen.run.ncu_reading REPORT METRIC...`: a report of Nsight Compute as JSON, read by its own module.

A process of its own, since `ncu_report` brings a library that need not go with those of the caller; PYTHONPATH has its
folder. Prints a list, an object for each kernel that was profiled: name; metrics: values by name, those that the report
has; instructions: [address, file and line of its source ("" and 0: not known), samples by stall reason].
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

STALL = "smsp__pcsamp_warps_issue_stalled_"  # Nsight Compute's names of samples by reason
NOT_ISSUED = "_not_issued"  # a second count of the same, of cycles in which no warp issued
EVERY = "inst_executed"  # has an instance for each instruction


def read_report(path: str, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    import ncu_report

    context = ncu_report.load_report(path)
    for i in range(context.num_ranges()):
        actions = context.range_by_idx(i)
        for j in range(actions.num_actions()):
            yield _read_kernel(actions.action_by_idx(j), names)


def _read_kernel(kernel: Any, names: Sequence[str]) -> dict[str, Any]:
    held = set(kernel.metric_names())
    metrics = {name: kernel.metric_by_name(name).as_double() for name in names if name in held}
    samples: dict[int, dict[str, int]] = {}
    if EVERY in held:
        samples = {address: {} for address, _ in _instances(kernel.metric_by_name(EVERY))}
    for name in held:
        if name.startswith(STALL) and not name.endswith(NOT_ISSUED):
            for address, count in _instances(kernel.metric_by_name(name)):
                if count:
                    samples.setdefault(address, {})[name.removeprefix(STALL)] = count
    instructions = []
    for address, counts in sorted(samples.items()):
        source = kernel.source_info(address)
        place = (source.file_name(), source.line()) if source else ("", 0)
        instructions.append((address, *place, counts))
    return {"name": kernel.name(), "metrics": metrics, "instructions": instructions}


def _instances(metric: Any) -> Iterator[tuple[int, int]]:
    """Address of an instruction and value of each instance."""
    if metric.num_instances():
        addresses = metric.correlation_ids()
        for i in range(metric.num_instances()):
            yield addresses.as_uint64(i), metric.as_uint64(i)


if __name__ == "__main__":
    print(json.dumps(list(read_report(sys.argv[1], sys.argv[2:]))))
