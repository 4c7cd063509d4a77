"""Child processes: how their end is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from cutegen import child
from cutegen.child import Child

LINGERS = "import os, time\ndef main(handle):\n    os.close(handle)\n    time.sleep(60)\n"
EXITS = "import os\ndef main(handle):\n    os._exit(3)\n"


@pytest.mark.parametrize(
    ("source", "ended"),
    [(LINGERS, "it closed its pipe and did not end"), (EXITS, "exit code 3")],
    ids=["lingers", "exits"],
)
def test_an_end_is_told_whatever_the_process_does(
    source: str, ended: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "ENDING_S", 2.0)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "ends.py").write_text(source, encoding="utf-8")
    one = Child("ends")
    with pytest.raises(EOFError):
        one.receive()
    assert one.died() == ended
    assert not one.was_killed()
    one.end()
