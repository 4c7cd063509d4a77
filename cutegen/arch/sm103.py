"""Blackwell Ultra of data centers: B300, GB300. It has the kernels of sm_100a, compiled for it, but for products of i8.

Source: PTX ISA, tcgen05.mma, "Target ISA Notes": .kind::i8 is of sm_100a and sm_110a.
"""

from __future__ import annotations

from dataclasses import replace

from cutegen.arch.sm100 import SM_100A

SM_103A = replace(
    SM_100A,
    name="sm_103a",
    like=SM_100A.name,
    mmas={dtypes: mma for dtypes, mma in SM_100A.mmas.items() if dtypes != ("i8", "i8")},
)
