"""[tool.cutegen] of pyproject.toml: which files of a folder are specs, what is taken where none is named, and where
packages go."""

from __future__ import annotations

from pathlib import Path

import pytest
from gemm_specs import PLAIN

from cutegen.cli import main
from cutegen.config import Config, find_config
from cutegen.diagnostics import SpecError
from cutegen.globs import compile_glob


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in (
        "one",
        "sub/two",
        "sub/deep/three",
        "sub/suites/suite",
        ".hidden/four",
        "env/lib/five",
        "kept/k/remarks",
    ):
        path = tmp_path / f"kernels/{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PLAIN + "portfolio: 1\n")
    (tmp_path / "kernels/env/pyvenv.cfg").touch()
    (tmp_path / "kernels/kept/k/kernel.o").touch()
    (tmp_path / "kernels/sub/values.yaml").write_text("replicas: 3\n")
    return tmp_path


def configure(folder: Path, text: str) -> None:
    (folder / "pyproject.toml").write_text(f"[project]\nname = 'x'\n\n[tool.cutegen]\n{text}")


def validated(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    main(["validate", *arguments])
    return [line.removesuffix(": ok") for line in capsys.readouterr().out.splitlines()]


def test_folders_are_searched_to_the_bottom(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """But for hidden ones, virtual environments, compiled kernels, and suites, which hold problems."""
    assert main(["validate", "kernels"]) == 1
    out, err = capsys.readouterr()
    assert out == "kernels/one.yaml: ok\nkernels/sub/deep/three.yaml: ok\nkernels/sub/two.yaml: ok\n"
    assert "error[not-a-spec]: kernels/sub/values.yaml: " in err
    assert "note: kernels/sub/values.yaml has no key `cutegen`" in err
    assert "kernels/one.yaml has no key" not in err


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('exclude = ["values.yaml"]', ["one", "sub/deep/three", "sub/two"]),
        ('exclude = ["sub"]', ["one"]),
        ('exclude = ["kernels/sub/*.yaml"]', ["one", "sub/deep/three"]),
        ('exclude = ["deep/", "values.*"]', ["one", "sub/two"]),
        ('include = ["t*.yaml"]', ["sub/deep/three", "sub/two"]),
        ('include = ["kernels/**/three.yaml", "o[mn]e.yaml"]', ["one", "sub/deep/three"]),
    ],
)
def test_globs(text: str, found: list[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    configure(folder, text)
    assert validated(capsys, "kernels") == [f"kernels/{name}.yaml" for name in found]


def test_what_is_named_is_taken(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file, and a folder; files in it may be excluded still."""
    configure(folder, 'exclude = ["sub", "one.yaml", "values.yaml", "three.*"]')
    assert main(["validate", "kernels"]) == 2
    assert "no spec" in capsys.readouterr().err
    assert validated(capsys, "kernels/one.yaml", "kernels/sub") == ["kernels/one.yaml", "kernels/sub/two.yaml"]


@pytest.mark.parametrize(
    ("glob", "path", "fits"),
    [
        ("*.yaml", "a/b/c.yaml", True),
        ("a/*.yaml", "a/c.yaml", True),
        ("a/*.yaml", "a/b/c.yaml", False),
        ("a/**/c.yaml", "a/c.yaml", True),
        ("a/**", "a/b/c.yaml", True),
        ("b", "a/b", True),
        ("b", "a/bc", False),
        ("/a/?.yaml", "a/c.yaml", True),
        ("[!c].yaml", "c.yaml", False),
        ("[!c].yaml", "d.yaml", True),
        ("a.b", "acb", False),
        ("[", "[", True),
        ("[]a]", "]", True),
        ("[z-a", "[z-a", True),
    ],
)
def test_what_a_glob_fits(glob: str, path: str, fits: bool) -> None:
    assert compile_glob(glob).fits(Path(path)) == fits


def test_specs_and_output_are_for_commands_that_name_none(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever folder below a command runs in; what the command line says comes first."""
    configure(folder, 'specs = ["kernels/one.yaml"]\noutput = "made"\n')
    assert main(["render"]) == 0
    assert (folder / "made/one/plan.py").is_file()
    assert main(["render", "--check"]) == 0
    assert main(["render", "kernels/sub/two.yaml", "-o", "elsewhere"]) == 0
    assert [p.name for p in (folder / "made").iterdir() if p.is_dir()] == ["one"]
    assert (folder / "elsewhere/two/plan.py").is_file()
    capsys.readouterr()
    assert main(["render", "--check", "-o", "elsewhere"]) == 1
    assert "run `cutegen render kernels/one.yaml -o elsewhere`" in capsys.readouterr().err


def test_paths_are_shown_from_where_the_command_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(folder, 'specs = ["kernels/sub"]\nexclude = ["kernels/sub/values.yaml"]\noutput = "made"\n')
    monkeypatch.chdir(folder / "kernels")
    assert validated(capsys) == ["sub/deep/three.yaml", "sub/two.yaml"]
    assert find_config(Path.cwd()).output == Path("../made")


def test_the_nearest_file_with_the_section_counts(folder: Path) -> None:
    configure(folder, 'output = "outer"\n')
    inner = folder / "kernels" / "sub"
    (inner / "pyproject.toml").write_text("[project]\nname = 'cutegen_user'\n")
    assert find_config(inner).output == Path("../../outer")
    (inner / "pyproject.toml").write_text("[tool.cutegen]\noutput = 'inner'\n")
    assert find_config(inner).output == Path("inner")
    (inner / "pyproject.toml").write_text("this is not TOML, and none of ours: cutegen\n")
    assert find_config(inner).output == Path("../../outer")
    (inner / ".git").mkdir()  # what lies outside a repository does not rule it
    assert find_config(inner) == Config(inner)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("outputs = 'x'", "pyproject.toml:5:1: error[config-key]: `outputs` is not a key"),
        ("output = 3", "pyproject.toml:5:1: error[config-value]: `output` must be text"),
        ("output = ''", "pyproject.toml:5:1: error[config-value]: `output` must be text"),
        ("specs = 'x'", "pyproject.toml:5:1: error[config-value]: `specs` must be a list of text"),
        ("exclude = [1]", "pyproject.toml:5:1: error[config-value]: `exclude` must be a list of text"),
        ("output = 'link/made'", "error[config-value]: `output`: link/made leads out of the folder of pyproject.toml"),
        ("output = '../made'", "pyproject.toml:5:1: error[config-value]: `output`: ../made leads out of the folder"),
        (
            "output = '/srv/made'",
            "pyproject.toml:5:1: error[config-value]: `output`: /srv/made leads out of the folder",
        ),
        (
            "specs = ['kernels', '/etc']",
            "pyproject.toml:5:1: error[config-value]: `specs`: /etc leads out of the folder",
        ),
        (
            "specs = ['link/x.yaml']",
            "error[config-value]: `specs`: link/x.yaml leads out of the folder of pyproject.toml",
        ),
        ('specs = ["a\\u0000"]', "error[config-value]: `specs`: no file can have this name"),
        ("exclude = ['a[z-a].yaml']", "pyproject.toml:5:1: error[config-value]: `exclude`: the range z-a is backwards"),
        (f"include = ['{'*?' * 200}']", "pyproject.toml:5:1: error[config-value]: `include`: a glob has at most 200"),
        (f"specs = {['x'] * 300}", "pyproject.toml:5:1: error[config-value]: `specs` has 300 entries; 256 is the most"),
        ("\nspecs = ['x'", "pyproject.toml:6:13: error[config-syntax]: TOML: Unclosed array"),
        ("specs = 'x'\nspecs = 'y'", "pyproject.toml:6:12: error[config-syntax]: TOML: Cannot overwrite"),
        ("specs = ['nothing']", "pyproject.toml:5:1: error[config-value]: nothing does not exist"),
        ('"output" = 3', "pyproject.toml:5:1: error[config-value]: `output` must be text"),
    ],
)
def test_bad_config_is_located(text: str, said: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "link").symlink_to(folder.parent)
    configure(folder, text)
    assert main(["validate"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert "= help: " in err


@pytest.mark.parametrize("glob", ["**/" * 60 + "q.yaml", "*?" * 90 + "q.yaml", "*a" * 97 + "b"])
def test_no_glob_takes_long(glob: str) -> None:
    """As one pattern they would try every way to share a path out."""
    assert not compile_glob(glob).fits(Path("/".join(["a" * 250] * 16)))


def test_paths_out_of_the_folder_are_for_whom_names_a_root(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the command line or in the environment, which no file of a checkout writes."""
    inner = folder / "inner"
    inner.mkdir()
    configure(inner, 'specs = ["../kernels/one.yaml"]\noutput = "../made"\n')
    monkeypatch.chdir(inner)
    assert main(["render"]) == 1
    assert not (folder / "made").exists()
    assert not (folder / "kernels/one.lock.yaml").exists()
    assert "help: name its folder with --root or CUTEGEN_ROOTS" in capsys.readouterr().err
    assert main(["render", "--root", str(folder)]) == 0
    assert (folder / "made/one/plan.py").is_file()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tool.cutegen]\n" + "a." * 30000 + "a = 1", "pyproject.toml: a key has more than 8 parts"),
        ("[tool.cutegen]\nx = " + "[" * 50000, "pyproject.toml: a value is nested deeper than 32 levels"),
        ("[tool.cutegen]\nx = " + "1" * 5000, "pyproject.toml: a number in it has too many digits"),
        ("[tool.cutegen]\n" + "#\n" * 150_000, "pyproject.toml: larger than 256 KiB"),
        ("[tool.cutegen]\n" + "".join(f"k{i} = 1\n" for i in range(20_000)), "... and 19950 more findings"),
        ("[" + " " * 200_000 + "\n[tool.cutegen]\n", "pyproject.toml:1:"),
    ],
)
def test_a_large_file_takes_no_longer_than_its_size(text: str, said: str, folder: Path) -> None:
    (folder / "pyproject.toml").write_text(text)
    with pytest.raises(SpecError) as caught:
        find_config(folder)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 20_000


def test_strings_and_comments_bound_nothing(folder: Path) -> None:
    configure(folder, f"output = 'made'\n# {'[' * 50} {'a.' * 50}\n")
    path = folder / "pyproject.toml"
    path.write_text(path.read_text() + f'[other]\nx = """\n{"[" * 50}\n{"a." * 50}"""\ny = \'{"a." * 50}\'\n')
    assert find_config(folder).output == Path("made")


@pytest.mark.parametrize("secret", ["hunter2", "'hunter2' = 'hunter2", "[hunter2]\n[hunter2]", "x = hunter2"])
def test_lines_of_others_are_not_quoted(secret: str, folder: Path) -> None:
    (folder / "pyproject.toml").write_text(f"[tool.cutegen]\noutput = 'made'\n[tool.publish]\ntoken = 1\n{secret}\n")
    with pytest.raises(SpecError, match=r"config-syntax.*TOML: this line cannot be read") as caught:
        find_config(folder)
    assert "hunter2" not in str(caught.value)


def test_the_documented_section_is_accepted(folder: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text(encoding="utf-8")
    (folder / "pyproject.toml").write_text(page.partition("```toml\n")[2].partition("```")[0])
    config = find_config(folder)
    assert (config.specs, config.output) == ((Path("kernels"),), Path("src/kernels"))
    assert [p.stem for p in config.find_specs(Path("kernels"))] == ["one", "three", "two"]


@pytest.mark.parametrize("text", ["tool.cutegen.output = 3\n", "[tool]\ncutegen = 3\n", "[tool]\ncutegen = {x = 3}\n"])
def test_bad_config_in_another_form_is_told_without_a_place(text: str, folder: Path) -> None:
    (folder / "pyproject.toml").write_text(text)
    with pytest.raises(SpecError, match=r"pyproject\.toml: "):
        find_config(folder)
