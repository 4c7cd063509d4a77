"""Templates of a family of another package: found in its folder, next to those that are shipped."""

from __future__ import annotations

from pathlib import Path

import jinja2
import pytest

from cutegen.render import environment
from cutegen.render.environment import render_template


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(tmp_path / "cache"))
    environment._environment.cache_clear()


def test_a_folder_has_its_own_templates_and_the_shared_ones(tmp_path: Path) -> None:
    (tmp_path / "kernel.py.jinja").write_text('{% include "_shared/functions_of_plan.py.jinja" %}\n# {{ k }}\n')
    assert render_template("kernel.py.jinja", tmp_path, k="mine").endswith("benchmark_kernel_argparse(PLAN)\n# mine\n")
    with pytest.raises(jinja2.UndefinedError):
        render_template("kernel.py.jinja", tmp_path)
    with pytest.raises(jinja2.TemplateNotFound):
        render_template("kernel.py.jinja", k="mine")


def test_templates_of_two_folders_are_not_taken_for_one_another(tmp_path: Path) -> None:
    """Nor is their bytecode, which lies in one cache."""
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
        (folder / "kernel.py.jinja").write_text(f"# {folder.name}\n")
    for _ in range(2):
        assert [render_template("kernel.py.jinja", folder) for folder in folders] == ["# one\n", "# two\n"]
        environment._environment.cache_clear()
    assert len([*(tmp_path / "cache" / "templates").iterdir()]) == 2
