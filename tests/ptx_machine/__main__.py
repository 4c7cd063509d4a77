"""Runs a kernel on the PTX machine, as `cutegen check` would on a GPU: python -m tests.ptx_machine SPEC --m 100 ..."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from cutegen.diagnostics import CutegenError
from cutegen.resolve import resolve_file
from cutegen.run.shapes import complete
from cutegen.runtime.gemm.grouped_plan import GroupedPlan
from cutegen.runtime.gemm.row_groups import KINDS, Deal
from cutegen.runtime.mla_decode.inputs import Draw
from cutegen.runtime.mla_decode.plan import MlaPlan

from .host import missing_tool
from .package import Simulation, load, promise, run


def main() -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False, prog="python -m tests.ptx_machine", description=__doc__)
    parser.add_argument("path", type=Path, help="a spec (.yaml), or the directory of a generated package")
    parser.add_argument("--sm-count", type=int, default=4, help="SMs that the launch is told of")
    parser.add_argument("--resident", type=int, help="CTAs that are live at once, if fewer than SMs")
    parser.add_argument("--seed", type=int, default=0, help="the first order of events to try; 0 is as late as can be")
    parser.add_argument("--seeds", type=int, default=1, help="how many orders to try")
    parser.add_argument("--mode", default="numerics", choices=("numerics", "strides", "alias", "repeat", "alone"))
    parser.add_argument("--tiling", help="the key of a tiling; by default what dispatch chooses")
    parser.add_argument("--lengths", default="equal", help="MLA decode: equal, random, edges, long or empty")
    parser.add_argument(
        "--rows", default="random", choices=KINDS, help="grouped GEMM: how rows are dealt out to groups"
    )
    parser.add_argument("--peaked", action="store_true", help="MLA decode: the last keys get nearly all the weight")
    parser.add_argument("--no-races", action="store_true", help="do not look for races, which takes 40%% of the time")
    parser.add_argument("--unreached", action="store_true", help="list the PTX that no seed executed")
    parser.add_argument("--ready", nargs="*", default=[], help="of a package, the arguments in the spec's `pdl.ready`")
    options, rest = parser.parse_known_args()
    try:
        shape = {rest[i].removeprefix("--"): int(rest[i + 1]) for i in range(0, len(rest), 2)}
    except (IndexError, ValueError):
        parser.error(f"extents are given as --DIM NUMBER, not {' '.join(rest)}")
    if reason := missing_tool():
        parser.error(reason)
    try:
        simulation = Simulation(options.sm_count, races=not options.no_races, resident=options.resident)
        subject = load(options.path, simulation)
        is_spec = options.path.suffix == ".yaml"
        promised = resolve_file(options.path).resolved.problem.ready if is_spec else options.ready
        promise(simulation, subject, promised)
        shape = complete(subject, shape, "shape")
    except CutegenError as error:
        parser.error(error.report().removeprefix("error: "))
    draw: Any = None
    if isinstance(subject.plan, GroupedPlan):
        draw = Deal(options.rows)
    elif isinstance(subject.plan, MlaPlan):
        draw = Draw(options.lengths, options.peaked)
        lengths = [argument.name for argument in subject.plan.inputs].index("seq_lens")
        simulation.before = lambda *values: {lengths: values[lengths]}
    wrong = 0
    for seed in range(options.seed, options.seed + options.seeds):
        simulation.seed = seed
        start = time.perf_counter()
        result = run(subject, shape, mode=options.mode, tiling=options.tiling, draw=draw, seed=seed)
        wrong += result.status != "pass"
        errors = "; ".join(f"{e.name}: max error {e.max_error:.3g}, allowed {e.allowed:.3g}" for e in result.errors)
        print(f"seed {seed}: {result.status}, {time.perf_counter() - start:.1f} s. {errors}")
        for text in result.detail:
            print(f"  {text}")
    missed = simulation.unreached()
    total = sum(len(assembler.code) for assembler in simulation.assemblers)
    print(f"{total - len(missed)} of {total} instructions were executed")
    for text in missed if options.unreached else ():
        print(f"  {text[:120]}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
