"""`cutegen new`: a starter or another spec, with the schema that its first line names."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import jsonschema
import pytest

from cutegen.cli import main
from cutegen.cli.start import SERVER, name_schema, shipped_specs
from cutegen.families.registry import FAMILIES
from cutegen.resolve.lock import meaning
from cutegen.spec import load_document

SWIGLU = "gemm_bf16_swiglu_sm90a"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def named_schema(spec: Path) -> Path:
    first = spec.read_text(encoding="utf-8").partition("\n")[0]
    assert first.startswith(SERVER)
    return spec.parent / first.removeprefix(SERVER)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_schema_is_there_and_accepts_the_spec(family: str) -> None:
    assert main(["new", family, "mine", "-o", "deep/er"]) == 0
    spec = Path("deep/er/mine.yaml")
    schema = json.loads(named_schema(spec).read_text(encoding="utf-8"))
    jsonschema.Draft7Validator(schema).validate(load_document(spec).data)
    assert named_schema(spec) == Path(f"deep/er/schema/{family}.json")
    assert main(["validate", "deep"]) == 0


@pytest.mark.parametrize("path", shipped_specs(), ids=lambda path: path.stem)
def test_any_shipped_spec_is_a_start(path: Path) -> None:
    assert main(["new", "mine", "--from", path.stem]) == 0
    made = Path("specs/mine.yaml")
    assert meaning(load_document(made)) == meaning(load_document(path))
    comments = re.findall("#.*", path.read_text(encoding="utf-8"))[1:]
    assert re.findall("#.*", made.read_text(encoding="utf-8"))[1:] == comments
    assert named_schema(made).is_file()
    assert not Path("specs/mine.lock.yaml").exists()


def test_a_spec_by_its_path_and_its_name_in_comments(capsys: pytest.CaptureFixture[str]) -> None:
    text = next(p for p in shipped_specs() if p.stem == SWIGLU).read_text(encoding="utf-8")
    Path("old.yaml").write_text(f"# old is tuned for gold, by `cutegen tune old.yaml`.\n{text}")
    assert main(["new", "mine", "--from", "old.yaml"]) == 0
    assert "# mine is tuned for gold, by `cutegen tune mine.yaml`.\n" in Path("specs/mine.yaml").read_text()
    assert "locks and winners are not copied" in capsys.readouterr().err
    assert Path("specs/mine.yaml").read_text().count(SERVER) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["mine"], "Name a FAMILY and a NAME, or a NAME and --from SPEC"),
        (["gemm", "mine", "--from", SWIGLU], "Name NAME alone: --from says the family"),
        (["mine", "--from", "gemm_bf16_swigl_sm90a"], f"did you mean `{SWIGLU}`?"),
        (["mine", "--from", "nothing.yaml"], "nothing.yaml does not exist"),
        (["my+gemm", "--from", SWIGLU], "my+gemm"),
        (["mine", "--from", "broken.yaml"], "error[not-a-spec]: broken.yaml: "),
        (["mine", "--from", "values.yaml"], "values.yaml has no key `kernel`"),
    ],
)
def test_refusals(arguments: list[str], said: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("broken.yaml").write_text("a: [\n")
    Path("values.yaml").write_text("a: 1\n")
    before = sorted(folder.rglob("*"))
    assert main(["new", *arguments]) in (1, 2)
    assert said in capsys.readouterr().err
    assert sorted(folder.rglob("*")) == before


def test_a_schema_of_another_version_is_replaced_and_a_file_of_others_is_not() -> None:
    assert main(["new", "gemm", "one"]) == 0
    schema = Path("specs/schema/gemm.json")
    current = schema.read_text()
    schema.write_text('{"$id": "urn:cutegen:spec:1:gemm", "old": true}')
    assert main(["new", "gemm", "two"]) == 0
    assert schema.read_text() == current
    for other in ('{"$id": "mine"}', "no JSON", "[]"):
        schema.write_text(other)
        assert main(["new", "gemm", "three"]) == 0
        assert schema.read_text() == other
        assert SERVER not in Path("specs/three.yaml").read_text()
        Path("specs/three.yaml").unlink()


def test_no_schema() -> None:
    assert main(["new", "gemm", "mine", "--no-schema"]) == 0
    assert [path.name for path in Path("specs").iterdir()] == ["mine.yaml"]
    assert SERVER not in Path("specs/mine.yaml").read_text()


def test_the_line_comes_first_and_once() -> None:
    text = f"# what\n{SERVER}old.json\ncutegen: 1\n"
    assert name_schema(text, "a/b.json") == f"{SERVER}a/b.json\n# what\ncutegen: 1\n"
    assert name_schema(text, "") == "# what\ncutegen: 1\n"


@pytest.mark.parametrize("how", ["pipe", "deep", "large", "link"])
def test_what_is_no_schema_is_left_alone(how: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schema = folder / "specs" / "schema" / "gemm.json"
    schema.parent.mkdir(parents=True)
    if how == "pipe":
        os.mkfifo(schema)
    elif how == "link":
        schema.symlink_to("/dev/zero")
    else:
        schema.write_text("[" * 100_000 if how == "deep" else " " * (2 << 20) + "{}")
    assert main(["new", "gemm", "mine"]) == (2 if how == "link" else 0)
    if how == "link":
        assert "gemm.json is a link to /dev/zero, out of its folder" in capsys.readouterr().err
    else:
        assert SERVER not in (folder / "specs" / "mine.yaml").read_text()


def test_a_spec_to_start_from_is_a_bounded_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(folder / "pipe.yaml")
    assert main(["new", "mine", "--from", "pipe.yaml"]) == 2
    assert "not a regular file" in capsys.readouterr().err
    assert not (folder / "specs").exists()
