"""Dims and tensor declarations."""

from __future__ import annotations

import pytest

from cutegen.spec import Dim, parse_tensor
from cutegen.spec.dims import parse_dim
from cutegen.spec.finding import FieldError


@pytest.mark.parametrize(
    ("text", "dim"),
    [
        ("m", Dim("m", "name", "m", 1)), ("8", Dim("8", "int", None, 8)), ("m*2", Dim("m*2", "mul", "m", 2)),
        (" n / 128 ", Dim("n/128", "div", "n", 128)), ("ceil(k/128)", Dim("ceil(k/128)", "ceil_div", "k", 128)),
        ("ceil ( k / 4 )", Dim("ceil(k/4)", "ceil_div", "k", 4)), ("ceil", Dim("ceil", "name", "ceil", 1)),
    ],
)  # fmt: skip
def test_dims(text: str, dim: Dim) -> None:
    assert parse_dim(text) == dim


@pytest.mark.parametrize(
    "text",
    ["", "m+1", "m*n", "2*m", "m*0", "0", "-1", "m/0", "ceil(m)", "ceil(m*2)", "m//2", "1e3", "²", "m*٣", "9" * 5000],
)
def test_bad_dims(text: str) -> None:
    assert not isinstance(parse_dim(text), Dim)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("bf16[m, k]", "bf16[m, k]"), ("bf16[ m,k ]@m", "bf16[m, k]@m"), ("f32", "f32"), ("f32[]", "f32[]"),
        ("bf16[n]?", "bf16[n]?"), ("e4m3[l, m, k]@m ?", "e4m3[l, m, k]@m?"),
        ("f32[m, ceil(k/128)]", "f32[m, ceil(k/128)]"),
    ],
)  # fmt: skip
def test_tensors(text: str, canonical: str) -> None:
    assert str(parse_tensor(text)) == canonical


def test_scalars_on_host_and_device() -> None:
    assert parse_tensor("f32").dims is None
    assert parse_tensor("f32[]").dims == ()


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("bf61[m + 1, k]@k", ["bf61", "m + 1"]), ("f32[ , ]", ["", ""]), ("bf16[m, lambda]", ["lambda"]),
        ("bf16[m, k]@n", ["n"]), ("bf16[m/2, k]@m", ["m"]),
    ],
)  # fmt: skip
def test_every_finding_of_a_declaration_has_its_span(text: str, spans: list[str]) -> None:
    with pytest.raises(FieldError) as caught:
        parse_tensor(text)
    found = [text[f.span[0] : f.span[1]].strip(" ,]") for f in caught.value.findings if f.span]
    assert found == spans


@pytest.mark.parametrize(
    ("text", "meant"),
    [("float16", "f16"), ("BFloat16", "bf16"), ("float8_e4m3fn", "e4m3"), ("float8_e4m3", "e4m3"), ("ue8m0", "e8m0")],
)
def test_names_that_others_have_for_a_dtype(text: str, meant: str) -> None:
    with pytest.raises(FieldError) as caught:
        parse_tensor(f"{text}[m, k]")
    assert [f.remedy for f in caught.value.findings] == [f"did you mean `{meant}`?"]


@pytest.mark.parametrize(
    "text", ["", "[m]", "bf16(m)", "bf16[m", "bf16 m", "bf16[m]]", "bf16[m]@", "a; import os", "bf16[m]@m@k"]
)
def test_syntax(text: str) -> None:
    with pytest.raises(FieldError) as caught:
        parse_tensor(text)
    assert [f.rule for f in caught.value.findings] == ["tensor-syntax"]
