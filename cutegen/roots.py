"""Which files a command reads and writes: regular files of a bounded size, in the folders that it was pointed at.

A checkout carries symbolic links, and whoever wrote it need not be trusted. A link may lead anywhere in its folder; one
that leaves the folder is refused, unless it leads into a root. Roots are named on the command line and in the
environment, never by a file.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from cutegen.diagnostics import CutegenError

ROOTS = "CUTEGEN_ROOTS"  # folders, separated as in PATH
REMEDY = f"name its folder with --root or {ROOTS}, if you trust it"


def read_file(path: Path, most: int, within: Path | None = None) -> bytes:
    """At most `most` bytes of a regular file, and one more where it has more. within: see `stay_inside`. OSError: it
    cannot be read, or is something else, such as a device; CutegenError: a link leaves its folder."""
    real = stay_inside(path, within)
    # Not blocking: to open a pipe that nobody writes to would wait for ever.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        opened = os.fstat(descriptor)
        if not stat.S_ISREG(opened.st_mode):
            code = errno.EISDIR if stat.S_ISDIR(opened.st_mode) else errno.EINVAL
            said = os.strerror(code) if code == errno.EISDIR else "not a regular file"
            raise OSError(code, said, str(path))
        if not os.path.samestat(opened, os.stat(real)):  # a link was turned between the look and the opening
            raise OSError(errno.ESTALE, "was replaced while it was opened", str(path))
        with open(descriptor, "rb", closefd=False) as stream:
            return stream.read(most + 1)
    finally:
        os.close(descriptor)


def stay_inside(path: Path, within: Path | None = None) -> Path:
    """Where `path` leads. CutegenError: out of the folder `within`, by default its own, and into no root; or that
    folder, named below the current one, is a link that leaves that."""
    folder = path.parent if within is None else within
    real, base = os.path.realpath(path), os.path.realpath(folder)
    if _holds(base, real) and (_holds(os.getcwd(), base) or not _is_below(os.getcwd(), folder)):
        return Path(real)
    if any(_holds(os.path.realpath(root), real) for root in roots()):
        return Path(real)
    outside = folder if _holds(base, real) else path
    raise CutegenError(f"{outside} is a link to {os.path.realpath(outside)}, out of its folder", REMEDY, exit_code=2)


def stay_put(path: Path, within: Path) -> None:
    """CutegenError: a link leads from the folder `within` to the folder `path` below it, and not into a root."""
    real, straight = os.path.realpath(path), os.path.join(os.path.realpath(within), path.relative_to(within))
    if real != straight and not any(_holds(os.path.realpath(root), real) for root in roots()):
        raise CutegenError(f"{path} is a link to {real}, another folder", f"delete the link, or {REMEDY}", exit_code=2)


def roots() -> tuple[str, ...]:
    """The folders that links may lead into."""
    return tuple(filter(None, os.environ.get(ROOTS, "").split(os.pathsep)))


def _is_below(here: str, folder: Path) -> bool:
    """Whether a path, which may be a link, leads through the current folder, itself named by whatever links."""
    path = Path(os.path.abspath(folder))
    return any(_holds(here, os.path.realpath(place)) for place in path.parents)


def _holds(folder: str, path: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)
