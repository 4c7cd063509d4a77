"""Names of an accepted spec change nothing but names: what is rendered, and what the reference computes."""

from __future__ import annotations

import pytest
from attacks import names
from gemm_specs import BLOCKS, FUSED, LABELS, gathered, resolve_text
from generated_names import with_names
from hypothesis import example, given
from hypothesis import strategies as st
from op_packages import DEVICE, FILES, OPS, POINTS, install, on_path

from cutegen.diagnostics import CutegenError, SpecError
from cutegen.families.gemm import name_clashes
from cutegen.families.generated_names import tensor_stem
from cutegen.render import render_package
from cutegen.render.name_check import check_modules
from cutegen.spec.names import IDENTIFIER

NAMES = st.from_regex(IDENTIFIER, fullmatch=True)


@given(NAMES, NAMES, st.sampled_from(("_0", "_old", "_without_x")))
@example("d", "D", "_0")
@example("a", "A", "_0")
def test_two_tensors_have_two_stems(one: str, other: str, suffix: str) -> None:
    """None of them is that of an operand of the MMA, and what is made of a name begins with the name's stem."""
    assert (tensor_stem(one) == tensor_stem(other)) == (one == other)
    assert tensor_stem(one).partition("_")[0] not in ("A", "B")
    assert tensor_stem(one + suffix) == tensor_stem(one) + suffix


def test_adversarial_names() -> None:
    assert list(names.attack(30, seed=20)) == []


@pytest.mark.parametrize(
    ("form", "given"),
    [
        (FUSED, {"d": "smem_tensor", "m": "tiling", "n": "object", "bias": "result"}),
        (LABELS, {"group": "credits", "a": "plan", "k": "seed"}),
        (BLOCKS, {"sa": "kernel", "sb": "len", "m": "device"}),
    ],
)
def test_names_that_merely_occur_elsewhere_are_taken(form: str, given: dict[str, str]) -> None:
    assert names.judge(form, given) == ""


# What the table refuses, the last look at the module finds as well, where it can be seen there.
SEEN = {
    "ctas": (gathered(LABELS, "copy"), {"a": "ctas"}),
    "k_over_128_up": (BLOCKS, {"m": "k_over_128_up"}),
    "multiply_members": (LABELS, {"group": "multiply_members"}),
    "tma_atom_D": (FUSED, {"bias": "tma_atom_D"}),
}


@pytest.mark.parametrize("said", SEEN)
def test_a_module_whose_names_clash_is_not_rendered(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    form, given = SEEN[said]
    with pytest.raises(SpecError):
        resolve_text(with_names(form, given))
    monkeypatch.setattr(name_clashes, "find_clashes", lambda *_: iter(()))
    with pytest.raises(CutegenError, match=f"names of product clash in generated source: .*`{said}`"):
        render_package(resolve_text(with_names(form, given)).resolved)


def test_a_module_that_is_no_python_is_not_rendered() -> None:
    with pytest.raises(CutegenError, match=r"line 2 of plan\.py is not Python"):
        check_modules("kernel", {"plan.py": "a = 1\nb = = 2\n"}, ("a", "b"))


@pytest.mark.parametrize("device", ["cute", "Gemm", "epilogue", "kernel_fn", "acc", "Float32", "d"])
def test_functions_of_packages_hide_no_name_of_a_module(device: str, tmp_path: object) -> None:
    files = {
        **FILES,
        "acme_ops/ops.py": OPS.replace('device = "softsign"', f'device = "{device}"'),
        "acme_ops/device.py": DEVICE.replace("def softsign", f"def {device}"),
    }
    with on_path(tmp_path):  # type: ignore[arg-type]
        install(tmp_path, POINTS, files)  # type: ignore[arg-type]
        with pytest.raises(SpecError) as caught:
            resolve_text(FUSED.replace("gelu_tanh(", "softsign("))
    assert {d.rule for d in caught.value.diagnostics} <= {"op-package", "name-collision"}
