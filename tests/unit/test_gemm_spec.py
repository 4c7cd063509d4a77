"""The typed GEMM spec: defaults, knobs, and findings that need more than one section."""

from __future__ import annotations

import pydantic
import pytest

from cutegen.diagnostics import SpecError
from cutegen.families.gemm.spec import GemmSpec
from cutegen.spec import SchemaError, load_text, parse_spec

HEAD = "cutegen: 1\nkernel: gemm\narch: sm_90a\n"
PLAIN = HEAD + "tensors:\n  a: bf16[m, k]\n  b: bf16[n, k]\n  d: bf16[m, n]\nepilogue:\n  d: acc\n"
FULL = (
    HEAD
    + """\
dims: {n: 28672, k: 4096, m: [1, 65536]}
tensors:
  a: bf16[m, k]
  b: bf16[n, k]@n
  bias: f32[n]?
  scale: f32
  d: bf16[m, n]
mainloop: a @ b
accumulate: {dtype: f32, promote_every: 4}
epilogue: {d: gelu_tanh(acc + bias)}
tiling: {tile: [128, 256, 64], cluster: [2, 1], raster: {order: along_m, group: 8}, split_k: 1, swap_ab: false}
pipeline: {stages: auto, epilogue_stages: 2, load_stages: 1}
warpgroups: {schedule: pingpong, producer: {registers: 40}, consumer: {count: 2, registers: 232}}
scheduler: static_persistent
tma: {a: {multicast: auto, swizzle: 128}, d: {store: tma}}
pdl: {wait: true, trigger: last_tile}
instances: [{n: 28672, k: 4096}]
m: [1, 16, 4096]
device: h200
check: {shapes: [{m: 100, n: 28672, k: 4096}]}
bench: {suite: llm_gemm, shapes: [{m: 4096}], baselines: [torch]}
tune: {tile: [[128, 256, 64]], cluster: [[1, 1]], stages: [3, 4], schedule: [cooperative]}
"""
)


def parse(text: str) -> GemmSpec:
    spec = parse_spec(load_text(text, "x"))
    assert isinstance(spec, GemmSpec)
    return spec


def findings(text: str) -> list[tuple[str, int]]:
    with pytest.raises(SpecError) as caught:
        parse(text)
    return [(d.rule, d.location.line if d.location else 0) for d in caught.value.diagnostics]


def test_what_is_not_written_is_auto() -> None:
    spec = parse(PLAIN)
    assert spec.mainloop == "a @ b"
    knobs = (
        spec.tiling.tile, spec.tiling.raster.order, spec.pipeline.stages, spec.warpgroups.consumer.registers,
        spec.scheduler, spec.pdl.wait, spec.tiling.swap_ab,
    )  # fmt: skip
    assert set(knobs) == {"auto"}
    assert (spec.device, spec.m, spec.tma, spec.bench.baselines) == (None, [], {}, [])


def test_everything_can_be_written() -> None:
    spec = parse(FULL.replace(", shapes: [{m: 4096}]", ""))
    assert spec.tiling.tile == (128, 256, 64)
    assert spec.tiling.cluster == (2, 1)
    assert spec.tiling.swap_ab is False
    assert spec.dims == {"n": 28672, "k": 4096, "m": (1, 65536)}
    assert spec.tensors["b"].contiguous == "n"
    assert spec.tensors["bias"].optional
    assert spec.tensors["scale"].dims is None
    assert list(spec.tensors) == ["a", "b", "bias", "scale", "d"]
    assert list(spec.dim_names()) == ["m", "k", "n"]
    assert spec.tma["a"].swizzle == 128
    assert spec.tune.schedule == ["cooperative"]


def test_shapes_need_the_open_dims_only() -> None:
    assert parse(FULL).bench.shapes == [{"m": 4096}]
    assert findings(FULL.replace("shapes: [{m: 4096}]", "shapes: [{n: 28672}]")) == [("missing-dim", 24)]


def test_a_key_without_a_value_is_absent() -> None:
    spec = parse(PLAIN + "tiling:\n  tile:\npipeline:\ndims:\ndevice:\ntma: {a: }\n")
    assert spec == parse(PLAIN)


def test_sections_cannot_be_changed() -> None:
    spec = parse(PLAIN)
    with pytest.raises(pydantic.ValidationError):
        spec.tiling.tile = (64, 64, 64)  # type: ignore[misc]


@pytest.mark.parametrize("value", ["4.0", "'4'", "true", "[4]", "{}", "0", "-1", "4e0", "3000000000", "Auto"])
def test_values_are_never_converted(value: str) -> None:
    assert [rule for rule, _ in findings(PLAIN + f"pipeline: {{stages: {value}}}\n")] in (["wrong-type"], ["bad-value"])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("1.0", PLAIN.replace("cutegen: 1", "cutegen: VALUE")),
        ("true", PLAIN.replace("cutegen: 1", "cutegen: VALUE")),
        ("128.0", PLAIN + "tma: {a: {swizzle: VALUE}}\n"),
        ("128.0", PLAIN + "tune: {swizzle_a: [VALUE]}\n"),
    ],
)
def test_what_equals_an_integer_of_a_list_is_not_it(value: str, text: str) -> None:
    assert [rule for rule, _ in findings(text.replace("VALUE", value))] == ["wrong-type"]
    assert parse(text.replace("VALUE", "1" if "cutegen: VALUE" in text else "128"))


@pytest.mark.parametrize(
    ("line", "found", "remedy"),
    [
        ("pipeline: {stages: 4.0}", "wrong-type", "write 4"),
        ("tma: {a: {swizzle: 128.0}}", "wrong-type", "write 128"),
        ("pipeline: {stages: 0x4}", "wrong-type", "write it in decimal: 4"),
        ("tiling: {tile: [0x80, 128, 64]}", "wrong-type", "write it in decimal: 128"),
        ("dims: {m: 1_000}", "wrong-type", "write it in decimal: 1000"),
        ("epilogue: {d: max(acc, 0)}", "bad-name", "inside { } quote an expression that has commas or brackets"),
        ("epilogue: {d: clamp(acc, 0, 1)}", "key-type", "inside { } quote an expression that has commas or brackets"),
    ],
)
def test_what_is_meant_is_seen(line: str, found: str, remedy: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse(PLAIN.removesuffix("epilogue:\n  d: acc\n") + line + "\n")
    (diagnostic,) = caught.value.diagnostics
    assert (diagnostic.rule, diagnostic.remedy.startswith(remedy)) == (found, True)


def test_what_needs_two_sections_is_told_beside_a_third_that_is_wrong() -> None:
    with pytest.raises(SpecError) as caught:
        parse(PLAIN + "pipeline: {stage: 4}\ncheck: {shapes: [{q: 64, m: 64, n: 64, k: 64}]}\n")
    assert [d.rule for d in caught.value.diagnostics] == ["unknown-key", "unknown-dim"]


def test_all_findings_of_all_sections_come_at_once() -> None:
    text = PLAIN.replace("d: bf16[m, n]", "d: bf61[m, n]").replace("a: bf16", "a b: bf16")
    text += "tiling: {tile: 3, clusters: auto}\ncolour: red\ndims: {q: -4}\n"
    assert findings(text) == [
        ("bad-name", 5), ("unknown-dtype", 7), ("wrong-type", 10), ("unknown-key", 10), ("unknown-key", 11),
        ("bad-value", 12),
    ]  # fmt: skip


def test_sections_that_are_right_are_kept_for_further_findings() -> None:
    with pytest.raises(SchemaError) as caught:
        parse(PLAIN + "tiling: 4\npipeline: {stages: 3}\n")
    partial = caught.value.partial
    assert isinstance(partial, GemmSpec)
    assert (partial.pipeline.stages, partial.tiling.tile) == (3, "auto")
    with pytest.raises(SchemaError) as caught:
        parse(PLAIN + "dims: 4\n")
    assert caught.value.partial is None


@pytest.mark.parametrize("name", ["acc", "stored", "auto", "gelu_tanh", "minimum", "Float32"])
@pytest.mark.parametrize("place", ["tensor", "dim", "local"])
def test_reserved_names(name: str, place: str) -> None:
    text = {
        "tensor": PLAIN.replace("a: bf16[m, k]", f"{name}: bf16[m, k]"),
        "dim": PLAIN.replace("k]", f"{name}]"),
        "local": PLAIN + f"  {name}: acc\n",
    }[place]
    assert {rule for rule, _ in findings(text)} == {"reserved-name"}
