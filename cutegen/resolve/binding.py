"""What a winner's figures hold for: what it computed, its tiling, and the tools that made its kernel.

A winner that is bound to something else is stale: no call runs it, `tune` measures it before others, and the lock keeps
it until somebody drops it. All of this follows from spec, lock and cutegen, never from what a machine has installed, so
a render gives equal bytes everywhere; notes report what is installed (`toolchain`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from cutegen.resolve.winners import Winner

# Raised by whoever changes what is rendered, or the modules it imports, so that times no longer hold.
KERNELS = 1
_LENGTH = 16  # hexadecimal digits of a digest


def bind(kernel: str, arch: str, problem: object, knobs: Mapping[str, object] | None) -> str:
    """Digest of what a winner computes and how. kernel: the family. problem: in plain data, dtypes, epilogue and
    promises in it. knobs: of its tiling, as the lock has them; None for the default."""
    meaning = {"kernel": kernel, "arch": arch, "problem": problem, "knobs": dict(knobs) if knobs is not None else None}
    return hashlib.sha256(json.dumps(meaning, sort_keys=True).encode()).hexdigest()[:_LENGTH]


def dsl_series(toolchain: str) -> str:
    """The release of CuTe DSL in a toolchain's words, such as 4.8; "" where they do not tell. Within one, the same
    source is taken to give the same kernel."""
    return ".".join(read_tools(toolchain).get("dsl", "").split(".")[:2])


def staleness(winner: Winner, digest: str, dsl: str) -> str:
    """Why a winner is stale, or "". digest: what `bind` says today. dsl: the release that the lock was last tuned with,
    "" for any."""
    if not winner.measured:
        return "the lock does not say what was measured"
    if winner.measured != digest:
        return "what was measured is another problem or tiling: tensors, epilogue, promises or knobs have changed"
    if dsl and (then := dsl_series(winner.toolchain)) != dsl:
        return f"it was measured with CuTe DSL {then or 'of no known release'}, and the lock was tuned with {dsl} since"
    if read_tools(winner.toolchain).get("kernels") != str(KERNELS):
        return "the kernels that cutegen renders have changed since it was measured"
    return ""


def read_tools(toolchain: str) -> dict[str, str]:
    """Versions by name, of a line such as `dsl 4.8.1 cu13, driver 580.65.06, kernels 1`."""
    words = (part.split() for part in toolchain.split(", "))
    return {part[0]: part[1] for part in words if len(part) > 1}
