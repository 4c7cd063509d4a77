"""What can go wrong around a spec, at the command line: a clear message, the right exit code, nothing half-written."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from capabilities import bind_by_permissions
from gemm_specs import PLAIN as OPEN
from spec_variety import varied_spec

from cutegen.cli import main
from cutegen.runtime.gpu import probe_gpu
from cutegen.runtime.header import MARK

ROOT = Path(__file__).parents[2]
Command = Callable[..., tuple[int, str, str]]  # exit code, standard output and standard error
COMMAND = [sys.executable, "-c", "import sys; from cutegen.cli import main; raise SystemExit(main(sys.argv[1:]))"]


PLAIN = OPEN + "portfolio: 1\n"  # how long a portfolio takes to choose does not matter here


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "plain.yaml").write_text(PLAIN)
    return tmp_path


def start(folder: Path, *arguments: str, **options: object) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUTEGEN_CACHE_DIR": str(folder / "cache")}
    return subprocess.Popen(
        [*COMMAND, *arguments], cwd=folder, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options,  # type: ignore[call-overload]
    )  # fmt: skip


def run(folder: Path, *arguments: str, **options: object) -> tuple[int, str, str]:
    process = start(folder, *arguments, **options)
    out, err = process.communicate(timeout=120)
    assert "Traceback" not in err
    return process.returncode, out, err


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command in this process, where nothing is about the process: starting one takes longer."""

    def run_here(*arguments: str) -> tuple[int, str, str]:
        code = main(list(arguments))
        return code, *capsys.readouterr()

    monkeypatch.chdir(folder)
    return run_here


def files(folder: Path) -> dict[str, bytes]:
    found = (p for p in folder.rglob("*") if p.is_file() and "cache" not in p.parts)
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in found}


def whole(folder: Path) -> None:
    """No temporary file is left, and every generated file is complete: its last line is the template's."""
    last = {"__init__": "return", "__main__": "raise SystemExit", "plan": "return", "kernel": "return"}
    for name, content in files(folder).items():
        assert not Path(name).name.startswith("."), name
        if content.startswith(MARK.encode()) and name.count("/") > 1:
            module = "kernel" if Path(name).stem.startswith("kernel_") else Path(name).stem
            assert content.decode().splitlines()[-1].strip().startswith(last[module]), name


@pytest.mark.skipif(probe_gpu("sm_90a").ok, reason="this machine has the GPU that must be missing")
@pytest.mark.parametrize("command", ["check", "bench"])
def test_without_a_gpu(command: str, folder: Path) -> None:
    code, out, err = run(folder, command, "plain.yaml")
    assert code == 2
    assert re.search(r"install|use another machine", out + err)


LOCK_DAMAGE = {
    "cut off": (lambda text: text[: len(text) // 2], r"is (damaged|torn)"),
    "not text": (lambda text: "\x00" + text, r"is damaged"),
    "empty": (lambda text: "", r"is empty"),
    "of another version": (lambda text: text.replace("cutegen: 1", "cutegen: 7"), r"was written by another version"),
    "a list": (lambda text: "- 1\n", r"is damaged"),
}


@pytest.mark.parametrize("damage", LOCK_DAMAGE)
def test_a_damaged_lock_is_never_overwritten(damage: str, folder: Path, here: Command) -> None:
    change, message = LOCK_DAMAGE[damage]
    assert here("render", "plain.yaml")[0] == 0
    lock = folder / "plain.lock.yaml"
    lock.write_text(change(lock.read_text()))
    before = files(folder)
    code, _, err = here("render", "plain.yaml")
    assert code == 1
    assert re.search(rf"plain\.lock\.yaml {message}", err)
    assert "cutegen lock --upgrade" in err
    assert files(folder) == before
    assert here("lock", "--upgrade", "plain.yaml")[0] == 0
    assert here("render", "--check", "plain.yaml")[0] == 0


def test_a_stale_lock(folder: Path, here: Command) -> None:
    assert here("render", "plain.yaml")[0] == 0
    (folder / "plain.yaml").write_text(PLAIN + "pipeline: {stages: 3}\n")
    before = files(folder)
    for arguments in (("--locked",), ("--check",)):
        code, _, err = here("render", *arguments, "plain.yaml")
        assert code == 1
        assert "pipeline.stages: the spec now says 3" in err
        assert files(folder) == before
    code, _, err = here("render", "plain.yaml")
    assert code == 0
    assert "pipeline.stages: the spec now says 3" in err
    assert here("render", "--check", "plain.yaml")[0] == 0


def test_a_file_that_somebody_wrote_is_left_alone(folder: Path, here: Command) -> None:
    package = folder / "generated" / "plain"
    package.mkdir(parents=True)
    (package / "kernel.py").write_text("# mine\n")
    (package / "notes.py").write_text("# mine, too\n")
    code, _, err = here("render", "plain.yaml")
    assert code == 1
    assert "kernel.py was not generated by cutegen" in err
    assert {p.name: p.read_text() for p in package.iterdir()} == {"kernel.py": "# mine\n", "notes.py": "# mine, too\n"}
    (package / "kernel.py").unlink()
    assert here("render", "plain.yaml")[0] == 0
    assert (package / "notes.py").read_text() == "# mine, too\n"


def test_an_output_folder_that_is_a_file(folder: Path, here: Command) -> None:
    (folder / "out").write_text("mine")
    code, _, err = here("render", "plain.yaml", "-o", "out")
    assert code == 2
    assert err.startswith("error: out")
    assert "= help: a file is in the way" in err
    assert (folder / "out").read_text() == "mine"


def test_an_output_folder_without_permission(folder: Path) -> None:
    (folder / "out").mkdir(mode=0o500)
    code, _, err = run(folder, "render", "plain.yaml", "-o", "out", preexec_fn=bind_by_permissions)
    assert code == 2
    assert re.search(r"error: \S*out\S*: Permission denied\n  = help: change its permissions", err)
    assert list((folder / "out").iterdir()) == []


@pytest.mark.parametrize("limit", [0, 1500, 8000])
def test_a_disk_that_takes_no_more(limit: int, folder: Path, here: Command) -> None:
    """A limit on file sizes stands for a full disk: writes fail half way."""
    code, _, err = run(
        folder, "render", "plain.yaml", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    )
    assert code == 2
    assert re.search(r"error: \S+: File too large\n  = help: free some space", err)
    whole(folder)
    assert here("render", "plain.yaml")[0] == 0
    assert here("render", "--check", "plain.yaml")[0] == 0


def test_a_package_is_not_mixed_when_the_disk_is_full(folder: Path, here: Command) -> None:
    assert here("render", "plain.yaml")[0] == 0
    before = files(folder / "generated")
    assert min(map(len, before.values())) < 8000 < max(map(len, before.values()))
    (folder / "plain.yaml").write_text(PLAIN + "pipeline: {stages: 3}\n")
    limit = (8000, 8000)
    options = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit)}
    assert run(folder, "render", "plain.yaml", **options)[0] == 2
    assert (
        run(folder, "new", "gemm", "mine", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (99, 99)))[0]
        == 2
    )
    assert not (folder / "specs" / "mine.yaml").exists()
    assert files(folder / "generated") == before


def test_processes_that_render_the_same_spec(folder: Path, here: Command) -> None:
    processes = [start(folder, "render", "plain.yaml") for _ in range(4)]
    for process in processes:
        _, err = process.communicate(timeout=120)
        assert (process.returncode, err) == (0, "")
    whole(folder)
    assert here("render", "--check", "plain.yaml")[0] == 0


def test_interrupt(folder: Path, here: Command) -> None:
    for number in range(200):
        (folder / f"kernel_{number:03}.yaml").write_text(varied_spec(number))
    # A job that a shell has put in the background inherits SIGINT ignored.
    process = start(folder, "render", ".", preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    while not (folder / "generated" / "kernel_003").exists():
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.strip() == "interrupted"
    assert not (folder / "generated" / "kernel_199").exists()
    whole(folder)
    assert here("render", "kernel_000.yaml", "kernel_003.yaml")[0] == 0


def test_compiled_templates_are_kept_and_a_damaged_one_is_made_anew(folder: Path) -> None:
    kept = folder / "cache" / "templates"
    assert run(folder, "render", "plain.yaml")[0] == 0
    whole = {path: path.read_bytes() for path in kept.iterdir()}
    assert any(b"kernel.py.jinja" in data for data in whole.values())
    for number, (path, data) in enumerate(sorted(whole.items())):
        # Cut anywhere, even after the bytes that say for which Python the entry is.
        path.write_bytes(data[: 8 + 5 * number])
    assert run(folder, "render", "--check", "plain.yaml")[0] == 0
    assert {path: path.read_bytes() for path in kept.iterdir()} == whole


def test_templates_are_rendered_where_nothing_can_be_kept(folder: Path) -> None:
    (folder / "cache").write_text("a file")
    assert run(folder, "render", "plain.yaml")[0] == 0
    assert (folder / "generated" / "plain" / "kernel.py").is_file()
    assert (folder / "cache").read_text() == "a file"
