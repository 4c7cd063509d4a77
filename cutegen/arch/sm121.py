"""Blackwell of DGX Spark: GB10. It has the kernels of sm_120a, compiled for it.

Source: PTX ISA, mma.sync, "Target ISA Notes": what is of sm_120a is of sm_121a.
"""

from __future__ import annotations

from dataclasses import replace

from cutegen.arch.sm120 import SM_120A

SM_121A = replace(SM_120A, name="sm_121a", like=SM_120A.name)
