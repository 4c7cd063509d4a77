"""What a lock is called, and files that are replaced as a whole."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

LOCK_SUFFIX = ".lock.yaml"  # NAME.lock.yaml lies beside NAME.yaml


def write_text(path: Path, text: str) -> bool:
    """Replace `path` by `text` in one step, so that no reader sees a torn file. False when it reads so already."""
    try:
        if path.read_bytes() == text.encode():
            return False
    except OSError:
        pass
    write_texts({path: text})
    return True


def write_texts(texts: Mapping[Path, str]) -> None:
    """Replace each path by its text. All texts are on the disk before the first one takes its place."""
    temporaries: dict[Path, Path] = {}
    path = Path()
    try:
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            # Named before it exists: an interrupt may come as soon as it does.
            temporary = temporaries[path] = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
            with open(temporary, "x", encoding="utf-8", newline="\n") as stream:
                stream.write(text)
            os.chmod(temporary, path.stat().st_mode & 0o777 if path.exists() else 0o644)
        for path, temporary in temporaries.items():
            os.replace(temporary, path)
    except BaseException as error:
        for temporary in temporaries.values():
            with suppress(OSError):
                os.unlink(temporary)
        if isinstance(error, OSError):
            error.filename = str(path)  # and not the temporary one, or none
        raise
