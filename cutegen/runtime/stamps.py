"""Where a traced kernel puts its stamps; `device/trace.py` writes them, and `run/role_trace.py` reads them.

Each warp has a region of a buffer, by its number in the CTA and that of the CTA in the grid: RECORDS of 16 bytes.

    record        bytes 0..7      8..11                           12..15
    0             the last stamp, so that a kernel that hangs says where it waits
    1             %globaltimer    %smid                           warps of a CTA
    2, 3, ..      stamps in the order of time, as many as there is room for:
                  %clock64        2 * the number of the place,    address of the mbarrier in shared memory,
                                  1 more where its wait begins    or number of the named barrier
"""

from __future__ import annotations

from typing import NamedTuple

RECORD = 16  # bytes
FIRST = 2  # record of those in the order of time
MBARRIER, BARRIER = "mbarrier", "named barrier"


class WaitPlace(NamedTuple):
    """A line of a kernel module that waits. at: MBARRIER, BARRIER, or "" for what is neither. function: that waits.
    roles: methods of the kernel that lead to the line, the one of the role first."""

    at: str
    function: str
    roles: tuple[str, ...]
    line: int
