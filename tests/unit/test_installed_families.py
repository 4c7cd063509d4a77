"""Kernel families of installed distributions: found without an import, loaded by name, refused with a reason."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from gemm_specs import ALONE
from op_packages import install, on_path

from cutegen.cli import main
from cutegen.diagnostics import CutegenError
from cutegen.families import family, registry

ROOT = Path(__file__).parents[2]
GOOD = '''\
from typing import Literal

from cutegen.spec.base import TensorSpec


class Spec(TensorSpec):
    """Nothing yet."""

    kernel: Literal["acme"]
    arch: Literal["sm_90a"]


class Acme:
    spec_model = Spec
    bind = resolve = describe_problem = tuning_space = render = plan_code = explain = estimate = why_not = None
    c_entry = None


FAMILY = Acme()
'''
SPEC = "cutegen: 1\nkernel: acme\narch: sm_90a\ntensors: {x: 'bf16[m]'}\n"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for packages, and a working directory with a spec next to it."""
    site, here = tmp_path / "site", tmp_path / "here"
    for folder in (site, here):
        folder.mkdir()
    monkeypatch.chdir(here)
    Path("acme.yaml").write_text(SPEC)
    with on_path(site):
        yield site


def offer(site: Path, source: str = GOOD, name: str = "acme-kernels", family: str = "acme") -> None:
    package = name.replace("-", "_")
    files = {f"{package}/__init__.py": source}
    install(site, f"{family} = {package}:FAMILY\n", files, name, group=registry.GROUP)


def refusal() -> CutegenError:
    with pytest.raises(CutegenError) as caught:
        registry.load_family("acme")
    assert caught.value.remedy
    return caught.value


def test_a_family_is_listed_without_an_import_and_loaded_by_name(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    offer(site)
    assert registry.family_names() == (*registry.FAMILIES, "acme")
    assert main(["list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {"name": "acme", "summary": "installed by acme-kernels 1.2"} in listed["families"]
    assert listed["unused_families"] == []
    assert "acme_kernels" not in sys.modules
    assert registry.load_spec_model("acme").__name__ == "Spec"
    assert main(["explain", "acme"]) == 0
    assert "kernel: acme" in capsys.readouterr().out
    assert main(["schema", "acme"]) == 0
    assert json.loads(capsys.readouterr().out)["$id"] == "urn:cutegen:spec:1:acme"
    assert main(["new", "acme", "mine", "--no-schema"]) == 2
    assert "has no spec to start from" in capsys.readouterr().err


def test_help_and_built_in_families_read_no_metadata(site: Path) -> None:
    offer(site, "raise SystemExit('imported')")
    (Path.cwd() / "gemm.yaml").write_text(ALONE)
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from cutegen import distributions; from cutegen.cli import main\n"
        "assert main(['validate', 'gemm.yaml']) == 0\n"
        "try:\n    main(['validate', '--help'])\nexcept SystemExit:\n    pass\n"
        "print(distributions._find_offers.cache_info().misses)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "0"


@pytest.mark.parametrize("member", [m for m in vars(family.Family) if not m.startswith("_")])
def test_a_family_that_lacks_a_member_is_refused(member: str, site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = GOOD.replace("spec_model = Spec", "").replace(f"{member} = ", "")
    source = source if member == "spec_model" else source.replace("class Acme:", "class Acme:\n    spec_model = Spec")
    offer(site, source)
    assert "acme_kernels:FAMILY of acme-kernels 1.2" in refusal().message
    assert f"it has no `{member}`" in refusal().message
    assert refusal().remedy == "fix or uninstall acme-kernels 1.2"
    assert main(["validate", "acme.yaml"]) == 1
    said = capsys.readouterr().err
    assert "acme.yaml:2:9: error[family-package]" in said
    assert f"it has no `{member}`" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("FAMILY = Acme()", "FAMILY = Acme", "names a class"),
        ("FAMILY = Acme()", "", "AttributeError: module 'acme_kernels' has no attribute 'FAMILY'"),
        ("from typing", "import nothing_of_the_name\nfrom typing", "ModuleNotFoundError"),
        ("from typing", "raise SystemExit('no')\nfrom typing", "SystemExit: no"),
        ("(TensorSpec)", "", "not a class derived from cutegen.spec.KernelSpec"),
        ('"acme"', '"other"', 'does not have `kernel: Literal["acme"]`'),
    ],
)
def test_what_is_no_family_is_refused(old: str, new: str, said: str, site: Path) -> None:
    offer(site, GOOD.replace(old, new))
    assert said in refusal().message


def test_names_are_not_taken_twice(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    offer(site)
    offer(site, name="acme-more")
    offer(site, name="acme-gemm", family="gemm")
    said = "kernel family `acme` is offered by acme-kernels 1.2 and by acme-more 1.2"
    assert set(refusal().message.split()) == set(said.split())
    assert registry.load_family("gemm").__class__.__module__.startswith("cutegen.")
    assert main(["list"]) == 0
    notes = capsys.readouterr().err
    assert "family `gemm`, acme_gemm:FAMILY of acme-gemm 1.2, is never used: the name is built in" in notes
    assert "family `acme` is offered by" in notes


def test_families_of_packages_can_be_off(
    site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    offer(site, "raise SystemExit('imported')")
    assert main(["validate", "--no-ops", "acme.yaml"]) == 1
    assert "those of packages are off: --no-ops or CUTEGEN_NO_OPS" in capsys.readouterr().err
    monkeypatch.setenv("CUTEGEN_NO_OPS", "1")
    assert registry.family_names() == (*registry.FAMILIES,)
    assert "there is no kernel family `acme`" in refusal().message


def test_a_family_of_the_working_directory_is_none(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(Path.cwd(), "raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(Path.cwd()))
    assert registry.family_names() == (*registry.FAMILIES,)
    offer(site, "raise SystemExit('imported')")
    registry.find_offers.__globals__["_find_offers"].cache_clear()
    assert f"Python would import `acme_kernels` from {Path.cwd()}" in refusal().message


@pytest.mark.parametrize("name", registry.FAMILIES)
def test_built_in_families_keep_the_protocol(name: str) -> None:
    """Members take what the chain passes by position."""
    found = registry.load_family(name)
    assert list(registry._faults(found, name)) == []
    for member, declared in vars(family.Family).items():
        if inspect.isfunction(declared) and not member.startswith("_"):
            count = len(inspect.signature(declared).parameters) - 1
            inspect.signature(getattr(found, member)).bind(*range(count))


def test_a_lazy_family_imports_what_is_asked_for() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from cutegen.families.gemm import FAMILY\n"
        "assert {'bind', 'estimate'} <= {*dir(FAMILY)}\n"
        "assert not hasattr(FAMILY, 'colour')\n"
        "assert 'pydantic' not in sys.modules\n"
        "FAMILY.spec_model\n"
        "assert 'pydantic' in sys.modules and 'jinja2' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
