"""What a winner's figures hold for: what it computed, its tiling, and the tools that made its kernel.

A winner that is bound to something else is stale: no call runs it, `tune` measures it before others, and the lock keeps
it until somebody drops it. All of this follows from spec, lock and cutegen, never from what a machine has installed, so
a render gives equal bytes everywhere.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from cutegen.resolve.winners import Winner

# Raised by whoever changes what is rendered, or the modules it imports, so that times no longer hold.
KERNELS = 1
# The release of CuTe DSL that kernels are measured with: with another one the same source is another kernel.
DSL = "4.8"
_LENGTH = 16  # hexadecimal digits of a digest


def bind(kernel: str, arch: str, problem: object, knobs: Mapping[str, object] | None) -> str:
    """Digest of what a winner computes and how. kernel: the family. problem: in plain data, dtypes, epilogue and
    promises in it. knobs: of its tiling, as the lock has them; None for the default."""
    meaning = {"kernel": kernel, "arch": arch, "problem": problem, "knobs": dict(knobs) if knobs is not None else None}
    return hashlib.sha256(json.dumps(meaning, sort_keys=True).encode()).hexdigest()[:_LENGTH]


def staleness(winner: Winner, digest: str) -> str:
    """Why a winner is stale, or "". digest: what `bind` says today."""
    if not winner.measured:
        return "the lock does not say what was measured"
    if winner.measured != digest:
        return "what was measured is another problem or tiling: tensors, epilogue, promises or knobs have changed"
    parts = dict(part.split()[:2] for part in winner.toolchain.split(", ") if len(part.split()) > 1)
    then = parts.get("dsl", "")
    if then != DSL and not then.startswith(f"{DSL}."):
        return f"it was measured with CuTe DSL {then or 'of no known version'}; kernels are measured with {DSL} now"
    if parts.get("kernels") != str(KERNELS):
        return "the kernels that cutegen renders have changed since it was measured"
    return ""
