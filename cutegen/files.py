"""What a lock is called, and files that are replaced as a whole."""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from cutegen.roots import read_file, stay_inside

LOCK_SUFFIX = ".lock.yaml"  # NAME.lock.yaml lies next to NAME.yaml, or NAME.ARCH.lock.yaml for each architecture
_OF_ARCH = re.compile(r"\.sm_[0-9]+[af]?$")
TEMPORARY_SUFFIX = ".cutegen"  # of files that are being written; version control may ignore them
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{8}" + re.escape(TEMPORARY_SUFFIX))
STALE_S = 3600.0  # a temporary file this old belongs to a process that died


def lock_stem(lock: Path) -> Path:
    """The path of a lock's spec, less its suffix."""
    return lock.parent / _OF_ARCH.sub("", lock.name.removesuffix(LOCK_SUFFIX))


def write_text(path: Path, text: str, within: Path | None = None) -> bool:
    """Replace `path` by `text` in one step, so that no reader sees a torn file. False when it reads so already. within:
    see `write_texts`."""
    if holds(path, text, within):
        sweep_temporaries(path.parent)
        return False
    write_texts({path: text}, within)
    return True


def write_output(path: Path, text: str) -> None:
    """Replace a file that somebody has named for an output by `text`, as `write_text` does; a device or pipe, such as
    /dev/stdout, is written to."""
    if not _is_stream(path):
        write_text(path, text)
        return
    try:
        with open(path, "w", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
    except OSError as error:
        error.filename = str(path)
        raise


def holds(path: Path, text: str, within: Path | None = None) -> bool:
    """Whether the file reads exactly so. within: see `write_texts`."""
    new = text.encode()
    with suppress(OSError):
        return read_file(path, len(new), within) == new
    return False


def write_texts(texts: Mapping[Path, str], within: Path | None = None) -> None:
    """Replace each path by its text. All texts are on the disk before the first one takes its place.

    A link stays, and the file that it names is replaced. OSError: one is not a regular file, or must not be written.
    CutegenError: a link leaves the folder `within`, by default the one that it lies in, and leads into no root.
    """
    temporaries: dict[Path, tuple[Path, Path]] = {}  # of a path: the text on the disk, and the place for it
    path = Path()
    try:
        for path, text in texts.items():
            real = stay_inside(path, within)
            target = real if path.is_symlink() else path
            target.parent.mkdir(parents=True, exist_ok=True)
            sweep_temporaries(target.parent)
            mode = 0o644
            with suppress(FileNotFoundError):
                mode = target.stat().st_mode
                if stat.S_ISDIR(mode):
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
                if not stat.S_ISREG(mode):
                    raise OSError(errno.EINVAL, "not a regular file")
                if not os.access(target, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            # Named before it exists: an interrupt may come as soon as it does.
            temporary = target.with_name(f".{target.name}.{os.urandom(4).hex()}{TEMPORARY_SUFFIX}")
            temporaries[path] = temporary, target
            with open(temporary, "x", encoding="utf-8", newline="\n") as stream:
                stream.write(text)
            os.chmod(temporary, mode & 0o777)
        for path in temporaries:
            os.replace(*temporaries[path])
    except BaseException as error:
        for temporary, _ in temporaries.values():
            with suppress(OSError):
                os.unlink(temporary)
        if isinstance(error, OSError):
            error.filename = str(path)  # and not the temporary one, or none
        raise


def sweep_temporaries(folder: Path) -> None:
    """Deletes what processes that were killed have left in a folder."""
    with suppress(OSError), os.scandir(folder) as found:
        for item in found:
            if _TEMPORARY.fullmatch(item.name):
                with suppress(OSError):
                    if item.is_file(follow_symlinks=False) and time.time() - item.stat().st_mtime > STALE_S:
                        os.unlink(item.path)


def keep_style(text: str, old: bytes) -> str:
    """Text with the line ends and the byte order mark of what it replaces."""
    if b"\r\n" in old:
        text = text.replace("\n", "\r\n")
    return "\ufeff" * old.startswith(b"\xef\xbb\xbf") + text


def _is_stream(path: Path) -> bool:
    """Whether there is no file to replace: it is a device, pipe or socket, or names what this process has open."""
    opened = str(path) in ("/dev/stdout", "/dev/stderr") or path.parent in (Path("/dev/fd"), Path("/proc/self/fd"))
    return opened or (path.exists() and not (path.is_file() or path.is_dir()) and bool(stay_inside(path)))
