"""How MLA decode kernels are proved and measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cutegen.arch import MOST_SMS
from cutegen.families.mla_decode.baselines import list_baselines
from cutegen.families.mla_decode.sparse_problems import ends, list_small_sparse_problems, list_sparse_problems
from cutegen.families.proving import ALL_MODES, Baseline, Mode, Problem, Proving, Roles, operand_dtype
from cutegen.runtime.mla_decode.inputs import EDGES, LATENT_DIM, Draw, Keys, Lengths
from cutegen.runtime.mla_decode.plan import MlaPlan
from cutegen.runtime.mla_decode.tiling import KEY_BLOCK, ROW_BLOCK


class MlaProving:
    given_draw = Draw("random")
    cpu_extents: Mapping[str, int] = {"batch": 5}
    guessed_inputs: Sequence[str] = ("seq_lens", "topk_length", "extra_topk_length")
    baselines_for: Mapping[str, str] = {
        **dict.fromkeys(("flash_mla", "sgl_flash_mla", "flash_attn", "fa3_fwd"), "MLA decode with `q: joined`"),
        "paged_read": "MLA decode over pages",
        "row_read": "MLA decode with sparse keys",
    }

    def name_roles(self, plan: MlaPlan) -> Roles:
        return Roles()

    def describe_work(self, plan: MlaPlan) -> Mapping[str, Sequence[str]]:
        return operand_dtype(plan)

    def list_problems(self, plan: MlaPlan) -> Iterator[Problem]:
        """One key up to thousands, lengths around every edge of blocks and pages, both ends of the promised ranges."""
        yield from list_sparse_problems(plan) if plan.sparse else self._list_dense_problems(plan)
        (low, high), (few, many) = ends(plan.heads), ends(plan.query_len)
        most = ends(plan.topk)[1] if plan.sparse else 3000
        if plan.batch_invariant:
            for name, batch, tokens, heads in (("alone and together", 40, many, low), ("of most heads", 7, few, high)):
                dims = dict(zip(plan.dims, (batch, tokens, heads, most if plan.sparse else 6 * most)))
                yield Problem(name, dims, None, ("alone",), Draw("random", peaked=True))
        elif all(t.max_splits == 1 for t in plan.tilings.values()):  # whichever tiling one and many requests run on
            dims = dict(zip(plan.dims, (40, few, high, most)))
            yield Problem("never cut", dims, None, ("alone",), Draw("long", peaked=True))
        dims = dict(zip(plan.dims, (0, few, low, min(most, KEY_BLOCK))))
        yield Problem("no requests", dims, None, ("empty",))

    def _list_dense_problems(self, plan: MlaPlan) -> Iterator[Problem]:
        low, high = ends(plan.heads)
        few, many = ends(plan.query_len)
        odd = min(high, low + 1 | 1)
        short, edges = max(EDGES), len(EDGES) + 1
        for key in plan.tilings:

            def problem(
                name: str, draw: Draw, *extents: int, modes: Sequence[Mode] = ("numerics",), key: str = key
            ) -> Problem:
                return Problem(name, dict(zip(plan.dims, extents)), key, tuple(modes), draw)

            yield problem("one key", Draw(), 1, few, low, 1)
            yield problem("one block", Draw(), 1, many, high, KEY_BLOCK)
            yield problem("edges of blocks", Draw("edges"), edges, few, odd, short, modes=ALL_MODES)
            yield problem("edges, last keys decide", Draw("edges", peaked=True), edges, many, odd, short)
            for tokens in range(few, many + 1):
                yield problem("fewer keys than tokens", Draw("edges"), 4, tokens, low, many + 1)
            yield problem("fewest rows", Draw("random"), 5, few, low, 700)
            yield problem("most rows", Draw("random", peaked=True), 5, many, high, 700)
            yield problem("edges, most heads", Draw("edges"), edges, few, high, short)
            yield problem("requests in parts, most heads", Draw("random"), 6, few, high, 5000)
            yield problem("one request, many parts", Draw(), 1, few, low, 16 * MOST_SMS * KEY_BLOCK // 10 + 5)
            yield problem("one request, last keys decide", Draw(peaked=True), 1, many, high, 4099)
            yield problem("long tail", Draw("long", peaked=True), 40, many, low, 9001, modes=ALL_MODES)
            yield problem("more requests than SMs", Draw("random"), 2 * MOST_SMS + 5, few, low, 200)
            yield problem("a few full blocks each", Draw(), 64, few, odd, 4 * KEY_BLOCK)
            yield problem("no keys at all", Draw("empty"), 4, many, low, KEY_BLOCK)
            yield problem("pages of a pool of layers", Draw("random", pitch=True), 7, many, odd, 500)

    def list_small_problems(self, plan: MlaPlan, sms: int) -> Iterator[Problem]:
        if plan.batch_invariant:
            (low, _), (few, _) = ends(plan.heads), ends(plan.query_len)
            most = plan.piece_keys + 2 * KEY_BLOCK + 1
            dims = dict(zip(plan.dims, (2, few, low, min(most, ends(plan.topk)[1]) if plan.sparse else most)))
            yield Problem("alone and together", dims, None, ("alone",), Draw("long", peaked=True))
        if plan.sparse:
            yield from list_small_sparse_problems(plan, sms)
            return
        low, high = ends(plan.heads)
        few, many = ends(plan.query_len)
        odd = min(high, low + 1 | 1)
        long = (sms + 3) * KEY_BLOCK + 5
        for key in plan.tilings:

            def problem(name: str, draw: Draw, *extents: int, modes: Sequence[Mode] = ("numerics",)) -> Problem:
                return Problem(name, dict(zip(plan.dims, extents)), key, tuple(modes), draw)  # noqa: B023

            yield problem("edges of blocks", Draw("edges"), sms + 3, few, odd, 2 * KEY_BLOCK + 1)
            yield problem("requests in parts", Draw("random", peaked=True), sms + 1, few, odd, long)
            yield problem("one request, many parts", Draw(peaked=True), 1, many, low, long, modes=("strides",))
            yield problem("pages of a pool of layers", Draw("random", pitch=True), 2, few, high, 2 * KEY_BLOCK + 9)
            yield problem("fewer keys than tokens", Draw("edges"), 2, many, low, many + 1)
            yield problem("no keys at all", Draw("empty"), 2, few, low, KEY_BLOCK)

    def draw_as(self, plan: MlaPlan, lengths: str, keys: str) -> Draw | None:
        return None if keys and not plan.sparse else Draw(_LENGTHS[lengths], keys=_KEYS[keys])

    def late_rows(self, plan: MlaPlan, inputs: Sequence[Any]) -> Mapping[str, Any]:
        """Of the cache, all but the keys before the new tokens; with sparse keys nothing is ready."""
        if plan.sparse:
            return {}
        held = {argument.name: value for argument, value in zip(plan.inputs, inputs)}
        cache, tokens = held["kv_cache"], inputs[0].shape[1]
        if cache.dim() == 2:  # of whole pages
            return {"kv_cache": cache.new_ones(len(cache)).bool()}
        late, page_size = cache.new_ones(cache.shape[:2]).bool(), cache.shape[1]
        for row, length in zip(held["block_table"].tolist(), held["seq_lens"].tolist()):
            for first in range(0, length - tokens, page_size):
                late[row[first // page_size], : length - tokens - first] = False
        return {"kv_cache": late}

    def name_axes(self, plan: MlaPlan, output: int) -> Sequence[str]:
        return [_AXES[dim] for dim in plan.outputs[output].dims]

    def locate(self, plan: MlaPlan, output: int, shape: Sequence[int], index: Sequence[int], tiling: Any) -> str:
        """Row block and row; for the output also the warpgroup, each of which owns half of the columns."""
        names = self.name_axes(plan, output)
        at, heads = dict(zip(names, index)), dict(zip(names, shape))["head"]
        row = at["head"] if plan.sparse else at["token"] * heads + at["head"]
        token = f"token {at['token']}, " if plan.sparse else ""
        text = f"request {at['batch']}, {token}row block {row // ROW_BLOCK}, row {row % ROW_BLOCK} of it"
        if "column" in at:
            half = LATENT_DIM // 2
            text += f"; warpgroup {at['column'] // half}, column {at['column'] % half} of it"
        return text

    def list_baselines(self, plan: MlaPlan) -> Iterator[Baseline]:
        return list_baselines(plan)

    def bench_dims(self, plan: MlaPlan) -> Iterator[Mapping[str, int]]:
        """The bandwidth-bound, the compute-bound and the latency-bound ends of serving."""
        (low, high), (few, _) = ends(plan.heads), ends(plan.query_len)
        for batch, heads, kv_len in ((128, low, 8192), (128, high, 8192), (8, high, 4096), (1, low, 4096)):
            length = ends(plan.topk)[1] if plan.sparse else kv_len
            yield dict(zip(plan.dims, (batch, few, heads, length)))


# What words of a suite are as a draw.
_LENGTHS: Mapping[str, Lengths] = {"": "equal", "ragged": "spread", "gaps": "gaps"}
_KEYS: Mapping[str, Keys] = {"": "distinct", "some": "holes", "none": "none"}
_AXES = {"batch": "batch", "query_len": "token", "heads": "head", "value_dim": "column"}
PROVING: Proving = MlaProving()
