"""The key blocks of MLA decode, and plainer kernels of a spec: what `check --shrink` goes by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cutegen.families.mla_decode.resolved import ResolvedMla
from cutegen.families.shrinking import NO_OVERLAP, Plainer, Shrinking, pin_decisions
from cutegen.runtime.mla_decode.plan import MlaPlan
from cutegen.runtime.mla_decode.tiling import KEY_BLOCK

if TYPE_CHECKING:
    from cutegen.families.mla_decode.spec import MlaSpec

BUFFERS = 2  # of key blocks


class MlaShrinking:
    def count_steps(self, plan: MlaPlan, dims: Mapping[str, int], key: str) -> int:
        """0 of sparse keys: rows of the cache may be those of several tokens."""
        return 0 if plan.sparse else -(-dims["kv_len"] // KEY_BLOCK)

    def keep_steps(self, plan: MlaPlan, inputs: Sequence[Any], key: str, count: int) -> tuple[Any, ...]:
        """Zeros in the rows of later keys: their scores are 0, and they add nothing to O."""
        held = {argument.name: value for argument, value in zip(plan.inputs, inputs)}
        cache = held["kv_cache"].clone()
        page = cache.shape[1]
        for row, length in zip(held["block_table"].tolist(), held["seq_lens"].tolist()):
            for first in range(0, length, page):
                kept, end = max(0, count * KEY_BLOCK - first), min(page, length - first)
                if kept < end:
                    cache[row[first // page], kept:end] = 0
        return tuple(cache if name == "kv_cache" else value for name, value in held.items())

    def describe_step(self, plan: MlaPlan, dims: Mapping[str, int], key: str, step: int) -> str:
        first, count = step * KEY_BLOCK, self.count_steps(plan, dims, key)
        text = f"key block {step} of {count} (keys {first} to {min(dims['kv_len'], first + KEY_BLOCK) - 1})"
        if plan.tilings[key].unit % BUFFERS:
            return text
        return f"{text}, K buffer {step % BUFFERS}"

    def pin(self, spec: MlaSpec, resolved: ResolvedMla, key: str, dims: Mapping[str, int]) -> Mapping[str, object]:
        """Of a cluster with the promise of these rows alone, as others may not fill it."""
        chosen = next(t.candidate for t in resolved.tilings if t.name == key)
        one: dict[str, object] = {
            "variant": chosen.variant,
            "scheduler.unit": chosen.unit,
            "pipeline.prefetch": chosen.prefetch,
        }
        one["scheduler.split_columns"] = chosen.split_columns
        if chosen.cluster > 1:
            one |= {name: dims[name] for name in ("heads", "query_len")}
        return {**dict.fromkeys(("bench", "check", "tune")), **pin_decisions(resolved), **one}

    def list_plainer(self, spec: MlaSpec, resolved: ResolvedMla) -> Iterator[Plainer]:
        yield Plainer(
            "other knobs as decided for these",
            dict.fromkeys(("warpgroups", "scheduler.overhead", "scheduler.join_ratio")),
        )
        one = {"scheduler.split_columns": None, "pipeline.prefetch": None}
        yield Plainer("no cluster", {"variant": "seesaw", "scheduler.unit": 2, **one})
        yield Plainer("requests in one part", {"split_kv": 1})
        yield Plainer("columns not shared", {"scheduler.split_columns": False})
        yield Plainer("no prefetch", {"pipeline.prefetch": 0})
        yield NO_OVERLAP


SHRINKING: Shrinking = MlaShrinking()
