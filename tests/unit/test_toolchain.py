"""Winners that were measured with another DSL than the one that is installed are noted wherever a lock is looked at."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from gemm_specs import PLAIN

from cutegen.cli import main
from cutegen.resolve import bind_winner, lock_path, resolve_file
from cutegen.resolve.binding import KERNELS
from cutegen.resolve.winners import DEFAULT, Winner


@pytest.mark.parametrize(
    ("installed", "toolchain", "said"),
    [
        ("4.8.1", "dsl 4.8.1 cu12, driver 1.0", ""),  # the flavour goes by the driver
        ("4.8.1", "dsl 4.7.0 cu13, driver 1.0", "dsl 4.7.0, installed: dsl 4.8.1"),
        ("", "dsl 4.7.0 cu13, driver 1.0", ""),  # nothing to compare with
    ],
)
def test_winners_of_another_toolchain_are_noted(
    installed: str, toolchain: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """They hold: the exit code is that of a lock without them."""
    versions = {"nvidia_cutlass_dsl": installed} if installed else {}
    monkeypatch.setattr("cutegen.resolve.toolchain.distribution_versions", lambda: versions)
    spec = tmp_path / "product.yaml"
    spec.write_text(PLAIN)
    for tiling, again in (("flat", " --confirm"), (DEFAULT, "")):
        tools = f"{toolchain}, kernels {KERNELS}"
        won = Winner("NVIDIA H200", {"m": (1, 16), "n": 64, "k": 64}, tiling, 8.25, None, "", None, "abc123", tools)
        before, tilings = resolve_file(spec), {"flat": {"tiling.tile": [128, 64, 64]}}
        won = replace(won, measured=bind_winner(before, tilings.get(tiling)))
        lock_path(spec).write_text(before.lock.with_winners(tilings, [won]).to_text())
        for command in (["lock", "--check"], ["lock"], ["explain"]):
            assert main([*command, str(spec)]) == 0
            notes = capsys.readouterr().err
            assert (said in notes) if said else not notes
            assert (f"`cutegen tune {spec}{again}` measures them again" in notes) == bool(said)
