"""What commands do where nobody says. By itself, so that showing their options imports nothing of what they run."""

from typing import Literal, TypeAlias

KERNEL_SECONDS = 300  # to compile one kernel: it takes about 2 s; one that spills much, 20 s
CASE_SECONDS = 60  # for a case of `check`
ORDERS = 5  # of events, in which `check --on cpu` executes each case
ROUNDS, LEAST_ROUNDS, MOST_ROUNDS = 9, 5, 10_000  # of `bench`, over all candidates
AGAIN_ROUNDS = 15  # the same on a problem that is repeated because a speed reached under `--floor`
SLICE_MS = 60  # that each candidate gets in a round
Behind: TypeAlias = Literal["nothing", "plain", "itself"]  # what precedes a launch of `bench`: run/preceding.py
PATIENCE_SECONDS = 120  # for a baseline to get ready on one problem
MAX_CANDIDATES = 60  # that `tune` tries on a problem
FEW_CANDIDATES = 8  # the same between problems, beside the kernels that win around it
TRACEBACK = "CUTEGEN_TRACEBACK"  # 1: what ends a command is raised, and shows where it comes from
