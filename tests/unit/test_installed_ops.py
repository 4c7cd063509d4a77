"""Epilogue ops of installed distributions: found, called, refused with a reason, and part of what is rendered."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from op_packages import DEVICE, FILES, OPS, POINTS, install, on_path

from cutegen.cli import main
from cutegen.diagnostics import CutegenError, SpecError
from cutegen.render import RenderedPackage, make_standalone, render_package
from cutegen.resolve import resolve_document
from cutegen.runtime.sources import kernel_key
from cutegen.spec import load_text

SPEC = """\
cutegen: 1
kernel: gemm
arch: sm_90a
tensors: {a: "bf16[m, k]", b: "bf16[n, k]", bias: "f32[n]", d: "bf16[m, n]"}
portfolio: 1
epilogue:
  d: EXPRESSION
"""
CALL = "softsign(acc + bias) * 2 + blend(acc, relu(bias), 0.25)"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder on sys.path."""
    with on_path(tmp_path):
        yield tmp_path


def package(expression: str = CALL) -> RenderedPackage:
    text = SPEC.replace("EXPRESSION", expression)
    return render_package(resolve_document(load_text(text, "probe"), None).resolved)


def files(expression: str = CALL) -> dict[str, str]:
    return dict(package(expression).files)


def finding(expression: str) -> tuple[str, str, str, int]:
    """Rule, message, remedy and the column in the expression of the one finding."""
    with pytest.raises(SpecError) as caught:
        files(expression)
    (found,) = caught.value.diagnostics
    assert found.location
    return found.rule, found.message, found.remedy, found.location.column - len("  d: ") - 1


def test_an_op_of_a_package_is_rendered_like_a_built_in_one(folder: Path) -> None:
    install(folder)
    rendered = files()
    assert "\nfrom acme_ops.device import blend, softsign\nfrom cutlass import " in rendered["kernel.py"]
    assert "\nfrom cutegen.device.activation import relu\n" in rendered["kernel.py"]
    assert "d = softsign(acc + bias) * 2.0 + blend(acc, relu(bias), 0.25)" in rendered["kernel.py"]
    reference = "d = torch.nn.functional.softsign(acc + bias) * 2.0 + ((acc) + (0.25) * ((torch.relu(bias)) - (acc)))"
    assert reference in rendered["plan.py"]
    assert "+ 11 * m * n" in rendered["plan.py"]
    with pytest.raises(CutegenError, match=r"probe imports acme_ops.device, of another package"):
        make_standalone(package())


def test_the_build_key_holds_every_source_of_the_package(folder: Path) -> None:
    install(folder)
    text = files()["kernel.py"]

    def key() -> str:
        return kernel_key(text, "probe.kernel", folder / "probe" / "kernel.py", (), "sm_90a", "")

    first = key()
    assert key() == first
    (folder / "acme_ops" / "scale.py").write_text("ONE = 2.0\n")
    assert key() != first
    (folder / "acme_ops" / "scale.py").write_text("ONE = 1.0\n")
    (folder / "acme_ops" / "unused.py").write_text("ONE = 2.0\n")
    assert key() == first
    (folder / "acme_ops" / "device.py").write_text(DEVICE.replace("+ ONE", "+ ONE + 0.0"))
    assert key() != first


def test_the_build_key_holds_a_module_that_is_no_package(folder: Path) -> None:
    install(
        folder, POINTS.replace("acme_ops.ops", "acme"), {"acme.py": (OPS + DEVICE).replace("acme_ops.device", "acme")}
    )
    text = "from acme import softsign\n"
    first = kernel_key(text, "probe.kernel", folder / "kernel.py", (), "sm_90a", "")
    (folder / "acme.py").write_text("def softsign(x): return x\n")
    assert kernel_key(text, "probe.kernel", folder / "kernel.py", (), "sm_90a", "") != first


def test_no_package_is_read_for_built_in_ops(folder: Path) -> None:
    install(folder, files={**FILES, "acme_ops/ops.py": "raise SystemExit('imported')"})
    code = (
        "import sys; from cutegen.cli import main; from cutegen import distributions\n"
        "code = main(['validate', 'probe.yaml'])\n"
        "print(code, distributions._find_offers.cache_info().misses, 'acme_ops' in sys.modules)"
    )
    (folder / "probe.yaml").write_text(SPEC.replace("EXPRESSION", "gelu_tanh(acc + bias)"))
    run = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "0 0 False"


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("softsin(acc + bias)", ("unknown-op", "there is no op `softsin`", "did you mean `softsign`? ops: min, max")),
        ("bias + softsign(acc, 1)", ("op-arity", "`softsign` takes one argument, not 2", "`softsign`: x / (1 + |x|).")),
        (
            "bias + blend(acc, 1, acc)",
            ("constant-expression", "argument 3 of `blend` is not a number", "`blend`: x + t"),
        ),
        (
            "bias + softsign * acc",
            ("undefined-name", "`softsign` is an op and needs its arguments", "write softsign(x)"),
        ),
    ],
)
def test_calls_are_checked(folder: Path, expression: str, found: tuple[str, str, str]) -> None:
    install(folder)
    rule, message, remedy, _ = finding(expression)
    assert (rule, message) == found[:2]
    assert remedy.startswith(found[2])


def test_names_of_the_spec_and_of_the_package_stay_apart(folder: Path) -> None:
    install(folder, files={**FILES, "acme_ops/ops.py": OPS.replace('device = "softsign"', 'device = "blend"')})
    assert "op-package" not in files("softsign(acc) + bias")["kernel.py"]
    text = SPEC.replace("bias", "softsign").replace("EXPRESSION", "acc + softsign")
    assert resolve_document(load_text(text, "probe"), None)  # what no spec calls takes no name
    with pytest.raises(SpecError, match="`blend` is the device function of `softsign`, that is called"):
        files("softsign(acc) + blend\n  blend: acc + bias")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("class Softsign", "import nowhere\nclass Softsign", "ModuleNotFoundError: No module named 'nowhere'"),
        ("class Softsign", "raise SystemExit(3)\nclass Softsign", "SystemExit: 3"),
        ("Softsign(EpilogueOp)", "Softsign", "it is not a class derived from cutegen.epilogue.EpilogueOp"),
        ("class Softsign", "class Softsine", "AttributeError: module 'acme_ops.ops' has no attribute 'Softsign'"),
        ('    name = "softsign"\n', "", "it has no `name`"),
        ('name = "softsign"', 'name = "softsin"', "its name is 'softsin', that of its entry point 'softsign'"),
        ('    """x / (1 + |x|)."""\n', "", "it has no docstring"),
        ("flops = 4", "flops = 0.5", "`flops` is 0.5: a whole number"),
        ("flops = 4", "flops = 4\n    error = 2", "`error` is 2: a number from 0 to 1"),
        ("flops = 4", "flops = 4\n    derivative = '1'", "`derivative` is '1': a tuple with an expression for each of"),
        ("flops = 4", "flops = 4\n    arguments = 0", "`arguments` is 0"),
        ("flops = 4", "flops = 4\n    numbers = (1,)", "`numbers` is (1,): indices of its 1 arguments"),
        ('device = "softsign"', 'device = "silu"', "`device` is 'silu', which is built in"),
        ('device = "softsign"', 'device = "softsine"', "acme_ops.device defines no `softsine`"),
        ('    module = "acme_ops.device"\n    device = "softsign"', '    device = "softsign"', "it has no `module`"),
        ('module = "acme_ops.device"', 'module = "acme_ops.dev"', "there is no module acme_ops.dev,"),
        ('module = "acme_ops.device"', 'module = "os; evil"', "`module` is 'os; evil'"),
        ("torch.nn.functional.softsign({0})", "{0} / (1 + torch.abs({0}))", "is not enclosed in parentheses"),
        ("torch.nn.functional.softsign({0})", "({0} / (1 + torch.abs({0})))", "that is neither one of a call nor in"),
        ("torch.nn.functional.softsign({0})", "open({0})", "reads `open`; it may read torch and its arguments"),
        ("torch.nn.functional.softsign({0})", "torch.abs({1})", "IndexError"),
        ("torch.nn.functional.softsign({0})", "torch.abs({0}", "is not an expression"),
    ],
)
def test_what_is_wrong_with_a_package_is_told_at_the_call(folder: Path, old: str, new: str, reason: str) -> None:
    assert old in OPS
    install(folder, files={**FILES, "acme_ops/ops.py": OPS.replace(old, new, 1)})
    rule, message, remedy, column = finding("bias + softsign(acc)")
    assert (rule, column) == ("op-package", len("bias + "))
    assert message.startswith("`softsign`, acme_ops.ops:Softsign of acme-ops 1.2, cannot be used: ")
    assert reason in message
    assert remedy == "fix or uninstall acme-ops 1.2"


def test_a_name_is_of_one_package_and_never_a_built_in_one(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = folder / "other"
    install(folder)
    install(other, "softsign = other_ops:Softsign\nsilu = other_ops:Silu\n", {}, "other-ops", "0.1")
    with on_path(other):
        rule, message, remedy, _ = finding("softsign(acc) + bias")
        assert (rule, remedy) == ("op-package", "uninstall all of them but one")
        assert message == "`softsign` is offered by other-ops 0.1 and by acme-ops 1.2"
        assert "import silu" in files("silu(acc) + bias")["kernel.py"]
        assert main(["list", "--json"]) == 0
        listed = json.loads(capsys.readouterr().out)
        ops = {op["name"]: op["summary"] for op in listed["ops"]}
        assert ops["blend"] == "x + t (y - x). (acme-ops 1.2)"
        assert ops["softsign"].startswith("not usable: `softsign` is offered by")
        assert listed["unused_ops"] == [
            "`silu`, other_ops:Silu of other-ops 0.1, is never called: the name is built in"
        ]


def test_metadata_that_cannot_be_read_is_told(folder: Path) -> None:
    install(folder, "softsign\n")
    rule, message, remedy, _ = finding("softsign(acc) + bias")
    assert (rule, message) == ("unknown-op", "there is no op `softsign`")
    assert "; entry points cannot be read: acme-ops 1.2 (TypeError" in remedy


def test_explain(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(folder)
    assert main(["explain", "blend"]) == 0
    told = capsys.readouterr().out
    for text in ("x + t (y - x).", "acme_ops.device.blend", "((x0) + (x2) * ((x1) - (x0)))", "acme-ops 1.2"):
        assert text in told
    assert main(["explain", "blent"]) == 2
    assert "did you mean `blend`?" in capsys.readouterr().err
