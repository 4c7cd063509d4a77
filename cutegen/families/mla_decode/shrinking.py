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
    keeps = True

    def count_steps(self, plan: MlaPlan, dims: Mapping[str, int], key: str) -> int:
        """0 of sparse keys: rows of the cache may be those of several tokens."""
        return 0 if plan.sparse else -(-dims["kv_len"] // KEY_BLOCK)

    def keep_steps(self, plan: MlaPlan, inputs: Sequence[Any], key: str, count: int) -> tuple[Any, ...]:
        """Lengths that end where later blocks begin: a kernel may read rows of the cache as those of other keys."""
        names = [argument.name for argument in plan.inputs]
        return tuple(
            value.clamp(max=count * KEY_BLOCK) if name == "seq_lens" else value for name, value in zip(names, inputs)
        )

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
