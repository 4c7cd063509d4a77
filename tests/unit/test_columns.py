"""Gated epilogues: slices as pairs of accumulators, in device source and in the reference."""

from __future__ import annotations

import pytest
from gemm_specs import bind_text

from cutegen.epilogue import cost, device_lines, split_pairs, torch_lines, torch_operand_lines
from cutegen.families.gemm.arguments import tensor_shapes

HEAD = "cutegen: 1\nkernel: gemm\narch: sm_90a\ntensors:\n  a: bf16[m, k]\n  b: bf16[n, k]\n"
OSS = """\
  bias: f32[n]
  scale: f32[m]
  shift: f32[n/2]
  h: bf16[m, n]
  d: bf16[m, n/2]
epilogue:
  h: acc * scale + bias
  gate: min(h[:, {first}], 7)
  up: clamp(h[:, {second}], -7, 7) + shift
  d: (up + 1) * gate * sigmoid(1.702 * gate) + stored(g2)
  g2: where(acc[:, {first}] > 0, acc[:, {second}], bias[{second}])
"""
SLICES = {"concatenated": (":n/2", "n/2:"), "interleaved": ("0::2", "1::2")}


def gated(pairing: str) -> str:
    first, second = SLICES[pairing]
    text = OSS.format(first=first, second=second)
    return HEAD + text.replace("epilogue:", "  g2: f32[m, n/2]\nepilogue:")


def test_what_has_all_columns_becomes_two_values() -> None:
    problem = bind_text(gated("concatenated"))
    program = split_pairs(problem.epilogue)
    assert program == problem.kernel_epilogue
    assert device_lines(program) == (
        "h_0 = acc_0 * scale + bias_0",
        "h_1 = acc_1 * scale + bias_1",
        "up = clamp(h_1, -7.0, 7.0) + shift",
        "gate = minimum(h_0, 7.0)",
        "g2 = where(acc_0 > 0.0, acc_1, bias_1)",
        "d = (up + 1.0) * gate * sigmoid(1.702 * gate) + g2",
    )
    assert [(o.name, o.half, o.part_of and (o.part_of.name, o.part_of.index)) for o in program.operands] == [
        ("bias_0", True, ("bias", 0)),
        ("bias_1", True, ("bias", 1)),
        ("scale", False, None),
        ("shift", True, None),
    ]
    assert [o.name for o in program.outputs] == ["h_0", "h_1", "d", "g2"]


@pytest.mark.parametrize("pairing", SLICES)
def test_device_source_and_reference_agree(pairing: str) -> None:
    torch = pytest.importorskip("torch")
    problem = bind_text(gated(pairing))
    m, n = 3, 8
    tensors = {"bias": torch.rand(n), "scale": torch.rand(m), "shift": torch.rand(n // 2)}
    acc = torch.randn(m, n)
    scope = {"torch": torch, "acc": acc.double(), **{name: t.clone() for name, t in tensors.items()}}
    exec("\n".join((*torch_operand_lines(problem.epilogue), *torch_lines(problem.epilogue))), scope)
    functions = {
        "clamp": lambda x, low, high: min(max(x, low), high),
        "minimum": min,
        "sigmoid": lambda x: torch.sigmoid(torch.tensor(x)).item(),
        "where": lambda condition, x, y: x if condition else y,
    }
    for row in range(m):
        for i in range(n // 2):
            columns = (2 * i, 2 * i + 1) if pairing == "interleaved" else (i, i + n // 2)
            element = {f"acc_{p}": acc[row, c].item() for p, c in enumerate(columns)}
            element |= {f"bias_{p}": tensors["bias"][c].item() for p, c in enumerate(columns)}
            element |= {"scale": tensors["scale"][row].item(), "shift": tensors["shift"][i].item()}
            values = {**functions, **element}
            exec("\n".join(device_lines(problem.kernel_epilogue)), values)
            assert scope["d"][row, i].item() == pytest.approx(values["d"], rel=2**-7)
            assert scope["g2"][row, i].item() == pytest.approx(values["g2"], rel=1e-6)
            for part, column in enumerate(columns):
                assert scope["h"][row, column].item() == pytest.approx(values[f"h_{part}"], rel=2**-7, abs=1e-6)


def test_work_is_counted_by_the_pair() -> None:
    work = cost(bind_text(HEAD + "  d: f32[m, n/2]\nepilogue: {d: 'relu(acc[:, 0::2]) * acc[:, 1::2]'}\n").epilogue)
    assert work.paired
    assert work.total_flops(m=10, n=20, batch=3) == 2 * 10 * 10 * 3
    assert [t.total(m=10, n=20) for t in work.writes] == [4 * 100]


def test_extents_and_alignment_of_gated_tensors() -> None:
    shapes = tensor_shapes(bind_text(gated("concatenated")))
    assert [d.name for d in shapes["d"].dims] == ["m", "n/2"]
    # Halves of rows start at multiples of 16 bytes, too.
    assert {name: s.multiple for name, s in shapes.items()} == {
        "a": 8, "b": 8, "bias": 1, "scale": 1, "shift": 1, "h": 16, "d": 8, "g2": 4,
    }  # fmt: skip
    # TMA has no stride along rows: threads store every second column.
    shapes = tensor_shapes(bind_text(gated("interleaved")))
    assert (shapes["h"].tma, shapes["h"].multiple, shapes["d"].tma) == (False, 1, True)
    constant = tensor_shapes(bind_text(gated("concatenated") + "dims: {n: 64}\n"))
    assert constant["d"].dims[1].value == 32
