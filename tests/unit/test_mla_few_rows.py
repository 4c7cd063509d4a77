"""keys_on_m: what follows from few rows for memory, threads, code and words, and who runs it."""

from __future__ import annotations

import pytest
from bound_winners import bound
from gemm_specs import SM90, resolve_text
from mla_specs import FEW, MLA, QUANTISED, SPARSE, bind_mla
from test_winners import mla_winner

from cutegen.families.decide import Choice
from cutegen.families.explanation import Section
from cutegen.families.mla_decode.auto import choose
from cutegen.families.mla_decode.code_plan import plan_code
from cutegen.families.mla_decode.derived import derive, few_rows, query_boxes
from cutegen.families.mla_decode.explain import explain
from cutegen.families.mla_decode.rendering import render
from cutegen.families.mla_decode.resolved import ResolvedMla
from cutegen.resolve import tuning_space

DENSE = MLA.replace("[16, 128]", "[1, 16]").replace("[1, 4]", "1") + "variant: keys_on_m\n"
DECODED = QUANTISED.replace("[1, 128]", "[1, 8]") + "variant: keys_on_m\n"


def resolved(text: str) -> ResolvedMla:
    found = resolve_text(text).resolved
    assert isinstance(found, ResolvedMla)
    return found


@pytest.mark.parametrize(("heads", "query_len", "rows"), [(1, 1, 8), (8, 1, 8), (9, 1, 16), (17, 1, 24), (8, 4, 32)])
def test_rows_are_those_of_the_largest_call(heads: int, query_len: int, rows: int) -> None:
    """A multiple of 8, as N is; Q and O have as many in shared memory, and TMA loads so many at once."""
    problem = bind_mla(DENSE.replace("[1, 16]", str(heads)).replace("query_len: 1", f"query_len: {query_len}"))
    choice = choose(problem, {"variant": "keys_on_m"}, SM90)
    assert isinstance(choice, Choice)
    d = derive(problem, choice.candidate)
    assert few_rows(problem, choice.candidate) == rows
    assert query_boxes(problem, choice.candidate) == (rows,)
    held = {region.name: region.bytes for region in d.smem}
    assert (held["sQ"], held["sO"], held["sK"]) == (rows * 1152, rows * 1024, 2 * 64 * 1152)
    assert (d.output_registers, d.score_registers) == (2 * rows, rows // 2)
    assert d.smem_bytes <= SM90.smem_bytes


@pytest.mark.parametrize(
    ("text", "heads", "variant"),
    [(DENSE, "[1, 16]", "seesaw"), (SPARSE, "[1, 16]", "keys_on_m"), (SPARSE, "17", "seesaw"),
     (SPARSE.replace("  latent: {dtype: e4m3}\n  rope: {dtype: e4m3}\n", ""), "16", "seesaw")],
)  # fmt: skip
def test_auto_takes_it_where_it_was_faster(text: str, heads: str, variant: str) -> None:
    """For sparse keys of a quantised cache, of up to 16 rows."""
    choice = choose(bind_mla(text.replace("[1, 128]", heads)), {}, SM90)
    assert isinstance(choice, Choice)
    assert {c.variant for c in choice.candidate.instances()} == {variant}


@pytest.mark.parametrize(("text", "threads", "registers"), [(DENSE, 384, (24, 240)), (DECODED, 512, (104, 152))])
def test_registers_go_to_a_second_warpgroup_that_decodes(text: str, threads: int, registers: tuple[int, int]) -> None:
    """TMA needs none, so there are no more threads for it."""
    found = resolved(text)
    for tiling in found.tilings:
        code = plan_code(found, tiling)
        assert (code.threads, code.registers) == (threads, registers)
        rows = few_rows(found.problem, tiling.candidate)
        assert [mma.opcode for mma in code.mma] == [f"HGMMA.64x{rows}x16"]
        assert {role.warps.last for role in tiling.model.roles} >= {threads // 32 - 1}


def test_it_is_explained() -> None:
    sections = explain(resolved(DENSE), {"batch": 1, "query_len": 1, "heads": 8, "kv_len": 64})
    said = "\n".join(_text(section) for section in sections)
    for part in ("S^T = K Q^T", "O^T += V^T P^T", "TMA has read sO", "behind its scores", "1 x 16, 50% of them used"):
        assert part in said
    assert "block of every pair: loads rows" in "\n".join(map(_text, explain(resolved(DECODED), None)))


def _text(section: Section) -> str:
    return "\n".join((section.title, *section.lines, *(" ".join(map(str, row)) for row in section.rows)))


@pytest.mark.parametrize("text", [DENSE, FEW, DECODED])
def test_the_dispatch_names_its_kernels(text: str) -> None:
    found = resolved(text)
    plan = render(found)["plan.py"]
    assert all(tiling.name.startswith("keys_on_m") and f'"{tiling.name}"' in plan for tiling in found.tilings)


TOGETHER = DENSE.replace("variant: keys_on_m\n", "")


@pytest.mark.parametrize("text", [TOGETHER, DECODED.replace("variant: keys_on_m\n", "")])
def test_a_tuner_tries_both_variants_where_every_call_has_few_rows(text: str) -> None:
    """Each with the registers that it needs, and whatever the default is."""
    problem = {"batch": 8, "query_len": 1, "heads": 8, "kv_len": 4096}
    proposed = list(tuning_space(resolve_text(text)).propose(problem))
    assert not any(p.refusals for p in proposed)
    registers = {(p.candidate.variant, p.candidate.consumer_registers) for p in proposed}
    assert {variant for variant, _ in registers} == {"seesaw", "keys_on_m"}
    assert len(registers) == 2
    written = tuning_space(resolve_text(text + "variant: keys_on_m\n")).propose(problem)
    assert {p.candidate.variant for p in written} == {"keys_on_m"}
    more = tuning_space(resolve_text(text.replace("[1, 16]", "[1, 33]").replace("[1, 8]", "[1, 33]"))).propose(problem)
    assert "keys_on_m" not in {p.candidate.variant for p in more}


def test_a_winner_of_the_other_variant_is_a_kernel_module_of_its_own() -> None:
    space = tuning_space(resolve_text(TOGETHER))
    proposed = space.propose({"batch": 8, "query_len": 1, "heads": 8, "kv_len": 4096})
    few = next(p for p in proposed if p.candidate.variant == "keys_on_m")
    tilings = {"few": few.knobs}
    won = [mla_winner(8, 8, 1025, 4096, "few")]
    lock = resolve_text(TOGETHER).lock.with_winners(tilings, bound(won, tilings, TOGETHER))
    resolution = resolve_text(TOGETHER, lock)
    assert not resolution.notes
    assert isinstance(resolution.resolved, ResolvedMla)
    texts = render(resolution.resolved)
    assert {"kernel.py", "kernel_keys_on_m.py"} <= texts.keys()
    assert "O^T += V^T P^T" in texts["kernel_keys_on_m.py"]
    assert "O += P V" in texts["kernel.py"]
    assert 'load_kernel(f"{__package__}.{MODULES[key]}"' in texts["plan.py"]
    assert '"kernel_keys_on_m": {' in texts["plan.py"]
