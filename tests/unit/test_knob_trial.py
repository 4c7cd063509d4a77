"""What an integer knob of GEMM takes: four files, of which two are in the folder of its feature."""

from __future__ import annotations

from pathlib import Path

import pytest
from knob_trial import EDITS, SPEC, add_knob, copy_sources, render


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sources")
    copy_sources(root)
    add_knob(root)
    return root


def test_an_integer_knob_takes_four_files(sources: Path) -> None:
    """It is decided, in the lock with its reason, a number of the tiling, and read by the kernel."""
    assert len(EDITS) == 4
    found = render(sources, SPEC)
    assert "            t.skew,\n" in found["kernel.py"]
    assert "        skew=2,  # pipeline.skew\n" in found["plan.py"]
    assert 'pipeline.skew: {value: 2, reason: "what was measured"}' in found["trial.lock.yaml"]


def test_a_spec_may_say_it(sources: Path) -> None:
    found = render(sources, SPEC + "pipeline: {skew: 3}\n")
    assert "        skew=3,  # pipeline.skew\n" in found["plan.py"]
    with pytest.raises(RuntimeError, match=r"wrong-type.*a positive integer"):
        render(sources, SPEC + "pipeline: {skew: many}\n")


def test_a_text_that_has_gone_is_named(tmp_path: Path) -> None:
    copy_sources(tmp_path)
    (tmp_path / "templates/gemm/tile_scheduler.py.jinja").write_text("")
    with pytest.raises(ValueError, match=r"tile_scheduler.py.jinja has not one `t.raster_group,`"):
        add_knob(tmp_path)
