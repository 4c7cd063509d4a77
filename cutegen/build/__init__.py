"""Building: kernels compiled in processes and cached, and the contract that what came out is what was planned."""

from cutegen.build.contract import Check, check_contract
from cutegen.build.facts import Facts
from cutegen.build.kernels import KernelReport, KernelStream, build_kernels

__all__ = ["Check", "Facts", "KernelReport", "KernelStream", "build_kernels", "check_contract"]
