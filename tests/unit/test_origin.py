"""`cutegen render --origin`: what wrote each line of a generated module."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
from gemm_specs import ALONE
from mla_specs import MLA

from cutegen.cli import main
from cutegen.diagnostics import CutegenError
from cutegen.families.generated_names import tensor_stem
from cutegen.render import RenderedPackage, render_package, tracing
from cutegen.render.environment import OTHER_ENVIRONMENT, data_folder, render_template
from cutegen.render.origin import Line, find_origins
from cutegen.resolve import resolve_file

SPECS = Path(__file__).parents[2] / "specs"
C = "c" * 48
LONG = ALONE.replace("  d:", f"  {C}: f32[n]\n  d:") + f"epilogue: {{d: acc + {C}}}\n"
FETCH = "            r{{ v.name | stem }} = vector."


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in (("plain", ALONE), ("mla", MLA), ("long", LONG)):
        (tmp_path / f"{name}.yaml").write_text(text)
    return tmp_path


def origins(path: Path) -> dict[str, tuple[Line, ...]]:
    resolved = resolve_file(path).resolved
    package = render_package(resolved)
    found = find_origins(resolved, package)
    assert {name: "".join(f"{line.text}\n" for line in lines) for name, lines in found.items()} == package.files
    return found


@pytest.mark.parametrize("spec", ["gemm_bf16_sm90a", "gemm_bf16_residual_sm90a", "mla_decode_bf16_sm90a"])
def test_every_line_is_of_a_template_that_has_it(spec: str) -> None:
    for lines in origins(SPECS / f"{spec}.yaml").values():
        for line in lines[3:]:  # below the header
            assert line.sources
            for part in line.parts:
                if part.source is None:
                    assert not part.text.removesuffix("  # noqa: E501").strip(" ,()")  # the layout's
                    continue
                text = (data_folder("templates") / part.source.template).read_text().splitlines()[part.source.line - 1]
                if part.source.expression:
                    assert part.source.expression.splitlines()[0] in text
                else:
                    # Blocks may stand between, and filters change the case of what a macro writes.
                    assert all(word.lower() in text.lower() for word in re.findall(r"\w+", part.text))


def described(lines: Iterable[Line], text: str) -> set[str]:
    """What is said of lines with this text."""
    return {line.describe() for line in lines if line.text.strip() == text}


def line_of(template: str, text: str) -> str:
    lines = (data_folder("templates") / template).read_text().splitlines()
    (found,) = (number for number, line in enumerate(lines, 1) if line.startswith(text))
    return f"{template}:{found}"


def test_lines_of_a_template_of_a_macro_and_of_fields(folder: Path) -> None:
    lines = origins(folder / "plain.yaml")["kernel.py"]
    warp = line_of("gemm/sm90/kernel.py.jinja", "CONSUMER_WARP = ")
    assert described(lines, "CONSUMER_WARP = 4") == {f'{warp}  {{{{ warps["consumer 0"].first }}}} Warps.first'}
    registers = line_of("gemm/sm90/roles.py.jinja", "            cute.arch.setmaxregister_decrease")
    assert described(lines, "cute.arch.setmaxregister_decrease(t.producer_registers)") == {registers}
    barrier = line_of("gemm/sm90/loads.py.jinja", "tma_bar_ptr={{ barrier }},")
    assert f"{barrier}  {{{{ barrier }}}}" in described(lines, "tma_bar_ptr=full,")  # what the macro's caller wrote
    (element,) = described(lines, "d = acc")
    assert element == line_of("gemm/sm90/kernel.py.jinja", "    {{ line }}") + "  {{ line }} FunctionText.lines"


def test_a_part_for_each_substitution() -> None:
    lines = origins(SPECS / "mla_decode_bf16_sm90a.yaml")["kernel.py"]
    (line,) = (line for line in lines if line.text.startswith("PAGE, BOX = "))
    fields = [(part.text, [field.name for field in part.source.fields]) for part in line.parts if part.source]
    assert [part for part in fields if part[1]] == [("64", ["page_size"]), ("64", ["box_rows"])]


def test_lines_that_the_layout_split(folder: Path) -> None:
    lines = origins(folder / "long.yaml")["kernel.py"]
    fetch = line_of("gemm/sm90/consume.py.jinja", FETCH)
    (begin,) = described(lines, f"r{tensor_stem(C)} = vector.fetch(")
    assert begin.startswith(f"{fetch}  {{{{ v.name | stem }}}} VectorText.name; ")
    assert described(lines, f"p.m{tensor_stem(C)},") == {f"{fetch}  {{{{ v.name | stem }}}} VectorText.name"}


@dataclass
class Acme:
    """A resolved kernel, and what its template reads."""

    family: str = "acme"
    names: tuple[str, ...] = ("ab", "cd")
    count: int = 3

    def twice(self, text: str) -> str:
        return text * 2


TEMPLATE = """\
{% macro number(x) %}
{{ x }}{{ "" if x else "none" }}
{%- endmacro %}
{% filter indent(4) %}

a = {{ k.count }} + {{ k.count + 1 }}  # {{ k.names | join(" and ") }}

{{ number(k.count) }}, {{ k.names[0] ~ "-" ~ k.twice("x") }}
{% endfilter %}
{% for name in k.names if name != "ab" %}
{{ name + "_e" }}
{% endfor %}
"""


@pytest.mark.parametrize("behind", ["", "b = 1\n"])
def test_a_family_with_its_own_folder(behind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own.py.jinja").write_text(TEMPLATE)

    def render(kernel: Acme) -> dict[str, str]:
        return {"kernel.py": render_template("own.py.jinja", tmp_path, k=kernel) + behind}

    monkeypatch.setattr(tracing, "load_family", lambda _: SimpleNamespace(render=render))
    package = RenderedPackage("own", "", {"kernel.py": "# header\n" + render(Acme())["kernel.py"]})
    if behind:
        with pytest.raises(CutegenError, match="changes what its templates write"):
            find_origins(Acme(), package)
        return
    lines = find_origins(Acme(), package)["kernel.py"]
    parts = [[part for part in line.parts if part.source and part.source.fields] for line in lines]
    written = [[(part.text, [*map(str, part.source.fields)]) for part in line] for line in parts]
    assert [line.text for line in lines] == ["# header", "", "    a = 3 + 4  # ab and cd", "", "    3, ab-xx", "cd_e"]
    assert [line.sources[0].line for line in lines[1:]] == [5, 6, 7, 2, 11]
    assert written == [
        [],
        [],
        [("3", ["Acme.count"]), ("4", ["Acme.count"]), ("ab", ["Acme.names"]), ("cd", ["Acme.names"])],
        [],
        [("3", ["Acme.count"]), ("ab-xx", ["Acme.twice"])],
        [("cd", ["Acme.names"])],
    ]


def test_a_render_after_it_is_the_usual_one(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["render", "plain.yaml"]) == 0
    assert main(["render", "--origin", "plain.yaml"]) == 0
    assert OTHER_ENVIRONMENT.get() is None
    assert main(["render", "--check", "plain.yaml"]) == 0


def test_it_writes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = set(folder.rglob("*"))
    assert main(["render", "--origin", "plain.yaml"]) == 0
    assert set(folder.rglob("*")) == before
    shown = capsys.readouterr().out.splitlines()
    assert [line for line in shown if line.startswith("plain/")] == ["plain/kernel.py", "plain/plan.py"]
    assert shown[0] == "plain/kernel.py"
    assert shown[4].startswith("   4  ")


def test_one_file_and_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for file in ("kernel.py:7", "generated/plain/kernel.py:7"):
        assert main(["render", "--origin", "plain.yaml", "--file", file]) == 0
        (shown,) = capsys.readouterr().out.splitlines()
        assert shown.startswith("   7  ")
    assert main(["render", "--origin", "--json", "plain.yaml", "--file", "kernel.py:7"]) == 0
    (result,) = json.loads(capsys.readouterr().out)
    (line,) = result["files"]["kernel.py"]
    assert (result["ok"], line["line"]) == (True, 7)
    assert line["parts"][0]["fields"] == ["cutegen.families.gemm.text.module.ModuleText.roles"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--check"], "leave out --check"),
        (["--diff", "--standalone"], "leave out --diff, --standalone"),
        (["mla.yaml"], "of one spec, not of 2"),
        (["--file", "kernel_2.py"], "plain has no file `kernel_2.py`"),
        (["--file", "other/kernel.py"], "plain has no file `other/kernel.py`"),
        (["--file", "kernel.py:0"], "kernel.py has no line `0`"),
        (["--file", "kernel.py:9\x1b[2J"], "kernel.py has no line `9\\x1b[2J`"),
    ],
)
def test_what_it_refuses(words: list[str], said: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["render", "--origin", "plain.yaml", *words]) == 2
    out, err = capsys.readouterr()
    assert (out, said in err) == ("", True)


def test_a_file_is_for_origins_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["render", "plain.yaml", "--file", "kernel.py"]) == 2
    assert "add --origin" in capsys.readouterr().err


def test_specs_that_are_wrong_end_as_they_end_a_render(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "plain.yaml").write_text(ALONE.replace("bf16[n, k]", "bf16[n, \ue0001\ue001]"))
    assert main(["render", "--origin", "plain.yaml"]) == main(["render", "plain.yaml"]) == 1
    assert main(["render", "--origin", "--json", "plain.yaml"]) == 1
    (result,) = json.loads(capsys.readouterr().out)
    assert (result["ok"], len(result["findings"])) == (False, 1)
