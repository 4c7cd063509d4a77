"""Epilogues that mention acc and do not depend on it are findings: the compiler would drop the product."""

from __future__ import annotations

import pytest
from gemm_specs import FP8, bind_text, resolve_text

from cutegen.diagnostics import SpecError


@pytest.mark.parametrize(
    "text",
    [
        "where(acc < acc, acc, 0.5)",
        "where(acc > acc, acc, 0.5)",
        "where(not acc < acc, 0.5, acc)",
        "where(acc < 0 and acc > 1, acc, 0.5)",
        "where(acc < 0 and 0 < acc, acc, 0.5)",
        "where(acc > 1 and acc == 1, acc, 0.5)",
        "where(relu(acc) < 0, acc, 0.5)",
        "where(sigmoid(acc) > 1, acc, 0.5)",
        "where(tanh(acc) != 2, 0.5, acc)",
        "where(clamp(acc, 0, 1) >= 2, acc, 0.5)",
        "where(min(acc, 3) > 3, acc, 0.5)",
        "where(-abs(acc) > 0, acc, 0.5)",
        "where(acc < acc or abs(acc) < 0, acc, 0.5)",
        "where(acc < 1, 0.5, 0.5)",
        "where(acc < 1, 2, 1 + 1) + where(acc < acc, acc, 0.5)",
    ],
)
def test_it_is_found_that_acc_is_ignored(text: str) -> None:
    for epilogue in (f"{{d: '{text}'}}", f"{{x: '{text}', d: x * 2}}"):
        with pytest.raises(SpecError, match=r"output `d` does not depend on acc") as caught:
            bind_text(FP8 + f"epilogue: {epilogue}\n")
        assert [d.rule for d in caught.value.diagnostics] == ["output-without-acc"]


@pytest.mark.parametrize(
    "text",
    [
        "where(acc < 0, acc, 0.5)",
        "where(acc <= acc, acc, 0.5)",  # false where acc is NaN
        "where(acc != acc, acc, 0.5)",
        "where(acc == acc, acc, 0.5)",
        "where(acc > 0 and acc < 1, acc, 0.5)",
        "where(acc >= 1 and acc <= 1, acc, 0.5)",
        "where(relu(acc) <= 0, acc, 0.5)",
        "where(tanh(acc) < 1, acc, 0.5)",
        "where(acc * 2 < acc + acc, acc, 0.5)",  # rounding may tell
        "clamp(acc, 0, 1)",
        "where(clamp(acc, 0, x) < 0, acc, 0.5)",  # x may lie below 0
        "where(clamp(0.5, x, 10) > 1, acc, 0.5)",
        "where(acc < acc, 0.5, acc)",
    ],
)
def test_what_depends_on_acc_is_accepted(text: str) -> None:
    spec = FP8.replace("tensors:\n", "tensors:\n  x: f32[n]\n") if "x" in text.replace("max", "") else FP8
    assert resolve_text(spec + f"epilogue: {{d: '{text}'}}\n")
