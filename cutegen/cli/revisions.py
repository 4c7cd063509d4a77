"""Files as a git revision has them. No hook, filter or text conversion of the repository runs."""

from __future__ import annotations

import subprocess
from pathlib import Path

from cutegen.diagnostics import CutegenError

GIT_SECONDS = 60.0


def find_commit(revision: str, folder: Path) -> str:
    """The commit that a name such as `HEAD~2` or `main` stands for in the repository of `folder`. CutegenError: there
    is no git, no repository, or no such commit."""
    try:
        out = _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip()
        if said:
            raise CutegenError(f"git: {said}", "run it in a repository", exit_code=2) from None
        remedy = "`git log --oneline` lists some; fetch it if it lies elsewhere"
        raise CutegenError(f"{revision!r} is not a commit of this repository", remedy, exit_code=2) from None
    return out.decode().strip()


def read_revision(commit: str, path: Path) -> bytes | None:
    """The bytes of a file as the commit has it; None: it has no such file. CutegenError: there is no git."""
    try:
        return _git(path.parent, "cat-file", "blob", f"{commit}:./{path.name}")
    except subprocess.CalledProcessError:
        return None


def _git(folder: Path, *arguments: str) -> bytes:
    command = ["git", "-C", str(folder), *arguments]
    try:
        return subprocess.run(command, capture_output=True, check=True, timeout=GIT_SECONDS).stdout
    except FileNotFoundError:
        raise CutegenError("comparing revisions needs git, which is not installed", exit_code=2) from None
    except subprocess.TimeoutExpired:
        raise CutegenError(f"git did not answer within {GIT_SECONDS:g} s", "try again", exit_code=2) from None
