"""The DSL names that moved between 4.6 and 4.8, under one name each. Generated code imports them from here only."""

import cutlass

if hasattr(cutlass, "memory"):  # 4.8 and later; the older home warns there
    from cutlass.memory import SmemAllocator
else:
    from cutlass.utils import SmemAllocator

__all__ = ["SmemAllocator"]
