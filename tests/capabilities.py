"""For tests of permissions: root may read and write anything, and tests run as root in CI."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator

# linux/capability.h, linux/prctl.h
DAC_OVERRIDE, DAC_READ_SEARCH = 1, 2
VERSION_3 = 0x20080522
PR_CAPBSET_DROP = 24


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Sets(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def _call(function: str, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, function)(*arguments):
        raise OSError(ctypes.get_errno(), f"{function} failed")


@contextlib.contextmanager
def bound_by_permissions() -> Iterator[None]:
    """This thread is bound by permissions of files, whoever runs it."""
    header, sets = _Header(VERSION_3, 0), (_Sets * 2)()
    _call("capget", ctypes.byref(header), sets)
    before = sets[0].effective
    sets[0].effective = before & ~(1 << DAC_OVERRIDE | 1 << DAC_READ_SEARCH)
    _call("capset", ctypes.byref(header), sets)
    try:
        yield
    finally:
        sets[0].effective = before
        _call("capset", ctypes.byref(header), sets)


def bind_by_permissions() -> None:
    """In a child, before it executes a program: that is bound by permissions of files."""
    if os.geteuid() == 0:
        for capability in (DAC_OVERRIDE, DAC_READ_SEARCH):
            _call("prctl", PR_CAPBSET_DROP, capability, 0, 0, 0)
