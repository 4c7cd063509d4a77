"""Checkouts that nobody vouches for: links, devices, ops that come with them, and text that a terminal would obey."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from gemm_specs import ALONE, PLAIN
from op_packages import DEVICE, FILES, OPS, install, on_path

from cutegen.cli import main
from cutegen.diagnostics import CutegenError, SpecError
from cutegen.epilogue import Unusable, find_installed, load_op
from cutegen.files import write_text
from cutegen.roots import ROOTS, read_file, stay_inside

OP = ALONE + "epilogue: {d: softsign(acc)}\n"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a spec; `outside` lies next to it."""
    folder = tmp_path / "checkout"
    (folder / "specs").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (folder / "specs" / "x.yaml").write_text(PLAIN)
    monkeypatch.chdir(folder)
    monkeypatch.delenv(ROOTS, raising=False)
    return folder


def test_a_file_is_regular_and_bounded(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 100)
    os.mkfifo(tmp_path / "pipe")
    assert read_file(tmp_path / "file", 100) == b"x" * 100
    assert read_file(tmp_path / "file", 10) == b"x" * 11
    for path, said in ((Path("/dev/zero"), "not a regular file"), (tmp_path / "pipe", "not a regular file")):
        with pytest.raises(OSError, match=said):
            read_file(path, 100)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(IsADirectoryError):
        read_file(tmp_path, 100)
    assert os.listdir("/proc/self/fd") == before  # nothing stays open


@pytest.mark.parametrize(
    ("link", "target", "allowed"),
    [
        ("specs/a", "specs/x.yaml", True),
        ("specs/a", "specs/b/c", True),
        ("specs/a", "a", False),
        ("specs/a", "../outside/a", False),
        ("specs/a", "/etc/hosts", False),
        ("specs/a", "../checkout2/specs/a", False),
        ("specs/a", "../outside2/a", False),
    ],
)
def test_links_stay_in_their_folder(link: str, target: str, allowed: bool, checkout: Path) -> None:
    Path(link).symlink_to(checkout / target)
    if allowed:
        assert stay_inside(Path(link)) == (checkout / target).resolve()
    else:
        with pytest.raises(CutegenError, match=r"specs/a is a link to .*, out of its folder"):
            stay_inside(Path(link))


def test_roots_are_named_by_the_environment_alone(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outside = checkout.parent / "outside"
    Path("specs/a").symlink_to(outside / "a")
    monkeypatch.setenv(ROOTS, f"/nowhere{os.pathsep}{outside}")
    assert stay_inside(Path("specs/a")) == outside / "a"
    monkeypatch.setenv(ROOTS, str(checkout.parent / "out"))  # of another name
    with pytest.raises(CutegenError):
        stay_inside(Path("specs/a"))


def test_a_folder_below_the_current_one_is_no_way_out(checkout: Path) -> None:
    outside = checkout.parent / "outside"
    Path("generated").symlink_to(outside)
    with pytest.raises(CutegenError, match="generated is a link to"):
        write_text(Path("generated/x"), "text")
    assert write_text(outside / "x", "text")  # named as what it is
    assert list(outside.iterdir()) == [outside / "x"]


@pytest.mark.parametrize("way", ["link", "link/specs/..", "link/inner", "inside"])
def test_a_way_into_the_checkout_is_no_way_out(way: str, checkout: Path) -> None:
    """A shell's PWD keeps the link that one came by, and os.getcwd does not."""
    outside = checkout.parent / "outside"
    Path("inner").mkdir()
    (checkout.parent / "link").symlink_to(checkout)
    (checkout.parent / "inside").symlink_to(checkout / "inner")
    folder = checkout.parent / way / "generated"
    folder.symlink_to(outside)
    with pytest.raises(CutegenError, match="generated is a link to"):
        write_text(folder / "x", "text")
    assert not list(outside.iterdir())


def test_a_device_in_place_of_a_lock_is_not_read(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("specs/x.lock.yaml").symlink_to("/dev/zero")
    assert main(["validate", "specs/x.yaml"]) == 2
    assert "specs/x.lock.yaml is a link to /dev/zero, out of its folder" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["lock", "--upgrade"], ["lock"], ["pin"], ["render"], ["validate"]])
@pytest.mark.parametrize("there", [True, False])
def test_a_lock_that_is_a_link_changes_nothing_elsewhere(command: list[str], there: bool, checkout: Path) -> None:
    rc = checkout.parent / "outside" / "bashrc"
    if there:
        rc.write_text("alias ls=ls\n")
    Path("specs/x.lock.yaml").symlink_to(rc)
    assert main([*command, "specs/x.yaml"]) in (1, 2)
    assert (rc.read_text() if rc.exists() else None) == ("alias ls=ls\n" if there else None)


@pytest.mark.parametrize("place", ["generated/x", "generated/x/kernel.py", "generated"])
def test_a_package_is_not_written_through_a_link(place: str, checkout: Path) -> None:
    outside = checkout.parent / "outside"
    Path(place).parent.mkdir(parents=True, exist_ok=True)
    Path(place).symlink_to(outside / "there", target_is_directory=True)
    assert main(["render", "specs/x.yaml"]) == 2
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("command", [["lock", "--upgrade"], ["lock"], ["pin"], ["render"], ["validate"]])
def test_a_pipe_in_place_of_a_lock_is_no_hang(
    command: list[str], checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo("specs/x.lock.yaml")
    assert main([*command, "specs/x.yaml"]) in (1, 2)
    assert re.search(r"specs/x.lock.yaml\S* .*not a regular file", capsys.readouterr().err)


PLACES = [("generated/x", "."), ("generated/x", "bar"), ("generated/x/_cutegen", "../bar"),
          ("generated/x/_cutegen/device", "../../bar"), ("generated/x/plan.py", "../bar/plan.py")]  # fmt: skip


@pytest.mark.parametrize(("place", "target"), PLACES)
def test_a_package_is_no_way_into_another(
    place: str, target: str, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["render", "--standalone", "specs/x.yaml"]) == 0
    Path("generated/x").rename("generated/bar")
    Path(place).parent.mkdir(parents=True, exist_ok=True)
    Path(place).symlink_to(target)
    before = {path: path.read_bytes() for path in Path("generated/bar").rglob("*.py")}
    for command in (["render"], ["render", "--check"]):
        assert main([*command, "--standalone", "specs/x.yaml"]) == 2
        assert f"{place} is a link to" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in Path("generated/bar").rglob("*.py")} == before
    if Path(place).suffix != ".py":
        assert main(["render", "--root", "generated", "--standalone", "specs/x.yaml"]) == 0


def test_bytecode_is_not_deleted_through_a_link(checkout: Path) -> None:
    elsewhere = checkout.parent / "outside" / "old.cpython-311.pyc"
    elsewhere.touch()
    assert main(["render", "specs/x.yaml"]) == 0
    (Path("generated/x") / "old.py").write_text(Path("generated/x/plan.py").read_text())
    Path("generated/x/__pycache__").symlink_to(elsewhere.parent)
    assert main(["render", "specs/x.yaml"]) == 0
    assert not Path("generated/x/old.py").exists()
    assert elsewhere.exists()


def test_a_root_of_the_command_line_is_one_for_that_command(checkout: Path) -> None:
    outside = checkout.parent / "outside"
    Path("generated").symlink_to(outside)
    assert main(["render", "--root", str(outside), "specs/x.yaml"]) == 0
    assert (outside / "x" / "kernel.py").is_file()
    assert ROOTS not in os.environ
    assert main(["render", "--check", "specs/x.yaml"]) == 2


def test_a_diff_shows_no_file_of_elsewhere(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret = checkout.parent / "outside" / "secret"
    secret.write_text("hunter2\n")
    Path("generated/x").mkdir(parents=True)
    Path("generated/x/plan.py").symlink_to(secret)
    assert main(["render", "--diff", "specs/x.yaml"]) == 2
    assert "hunter2" not in "".join(capsys.readouterr())


def test_a_diff_shows_no_text_of_files_that_are_not_ours(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("generated/x").mkdir(parents=True)
    Path("generated/x/plan.py").write_text("hunter2\n")
    assert main(["render", "--diff", "specs/x.yaml"]) == 1
    out, err = capsys.readouterr()
    assert "hunter2" not in out + err
    assert "was not generated by cutegen, so its text is not shown: generated/x/plan.py" in err
    assert "generated/x/plan.py is changed" in out


@pytest.mark.parametrize(
    "text", ["password: *hunter2\n", '{"auths": {"hunter2": {}}}\n', "hunter2\n", "- hunter2\n\tx"]
)
def test_findings_show_nothing_of_a_file_that_is_no_spec(
    text: str, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("specs/secret.yaml").write_text(text)
    assert main(["validate", "specs/secret.yaml"]) == 1
    assert "hunter2" not in "".join(capsys.readouterr())


# Ops


@pytest.mark.parametrize(
    "call", [["-m", "cutegen"], ["-c", "import sys; from cutegen.cli import main; sys.exit(main())"]]
)
def test_ops_of_the_working_directory_are_none(call: list[str], checkout: Path) -> None:
    install(checkout, files={**FILES, "acme_ops/ops.py": "raise SystemExit('imported')"})
    Path("specs/x.yaml").write_text(OP)
    path = os.pathsep.join((str(Path(__file__).parents[2]), str(checkout)))
    run = subprocess.run(
        [sys.executable, *call, "validate", "specs/x.yaml"], env={**os.environ, "PYTHONPATH": path},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert run.returncode == 1
    assert "imported" not in run.stderr
    assert "`softsign`" in run.stderr


def test_an_installed_op_is_not_taken_from_another_folder(
    tmp_path: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "site"
    install(installed)
    (checkout / "acme_ops").mkdir()
    (checkout / "acme_ops" / "__init__.py").write_text("raise SystemExit('imported')")
    with on_path(installed):
        monkeypatch.syspath_prepend(str(checkout))
        op = load_op("softsign")
    assert isinstance(op, Unusable)
    assert f"Python would import `acme_ops` from {checkout / 'acme_ops'}" in op.reason


def test_a_device_module_is_not_taken_from_another_folder(
    tmp_path: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "site"
    install(installed, files={**FILES, "acme_ops/ops.py": OPS.replace("acme_ops.device", "acme_device")})
    (checkout / "acme_device.py").write_text(DEVICE)
    with on_path(installed):
        monkeypatch.syspath_prepend(str(checkout))
        op = load_op("softsign")
    assert isinstance(op, Unusable)
    assert "`acme_device` from" in op.reason


def test_what_somebody_has_installed_to_work_on_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site, source = tmp_path / "site", tmp_path / "source"
    install(site, files={})
    for path, text in FILES.items():
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        (source / path).write_text(text)
    with on_path(site):
        monkeypatch.syspath_prepend(str(source))
        assert isinstance(load_op("softsign"), Unusable)
    (site / "acme_ops-1.2.dist-info" / "direct_url.json").write_text(
        f'{{"url": "{source.as_uri()}", "dir_info": {{"editable": true}}}}'
    )
    with on_path(site):
        monkeypatch.syspath_prepend(str(source))
        assert not isinstance(load_op("softsign"), Unusable)


@pytest.mark.parametrize("how", ["option", "variable"])
def test_ops_can_be_off(
    how: str, tmp_path: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    installed = tmp_path / "site"
    install(installed)
    Path("specs/x.yaml").write_text(OP)
    with on_path(installed):
        assert main(["validate", "specs/x.yaml"]) == 0
        del sys.modules["acme_ops.ops"]
        if how == "variable":
            monkeypatch.setenv("CUTEGEN_NO_OPS", "1")
        assert main(["validate", "specs/x.yaml", *(["--no-ops"] if how == "option" else [])]) == 1
        assert "acme_ops.ops" not in sys.modules
        assert "those of packages are off: --no-ops or CUTEGEN_NO_OPS" in capsys.readouterr().err
        assert bool(find_installed().offers) == (how == "option")


# Text


@pytest.mark.parametrize(
    ("mark", "shown"), [("\\e]0;x\\a", "\\x1b]0;x\\x07"), ("\\u202e", "\\u202e"), ("\\n::error::x", "\\n::")]
)
@pytest.mark.parametrize("command", [["resolve"], ["explain"], ["render"], ["lock", "--upgrade"], ["validate"]])
def test_text_of_a_lock_is_printed_escaped(
    mark: str, shown: str, command: list[str], checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lock", "specs/x.yaml"]) == 0
    lock = Path("specs/x.lock.yaml")
    text = lock.read_text().replace('reason: "goes with the tile"', f'reason: "goes{mark}"')
    lock.write_text(text.replace("evidence:", f'  "knob{mark}": {{value: "{mark}", reason: x}}\nevidence:'))
    capsys.readouterr()
    main([*command, "specs/x.yaml"])
    said = "".join(capsys.readouterr())
    assert not any(c in said for c in "\x1b\x07\u202e")
    assert "\n::" not in said
    assert shown in said or command[0] in ("validate", "lock", "render")


@pytest.mark.parametrize(
    "name", ["a\x1b]0;x\x07", "a\u202eb", "a\n::error::x", "a\r::error::x", "::warning::x", "##[error]"]
)
def test_file_names_are_printed_escaped(name: str, checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(name.replace("/", "_"))
    folder.mkdir()
    (folder / "x.yaml").write_text(PLAIN)
    Path(f"specs/{name}.yaml").write_text(PLAIN)
    commands = (
        ["validate", "specs"], ["validate", str(folder)], ["validate", f"{name}/none.yaml"], ["render", str(folder)],
        ["explain", f"specs/{name}"], ["report", name], ["validate", f"--{name}"],
    )  # fmt: skip
    for command in commands:
        assert main(command) in (0, 1, 2)
        said = "".join(capsys.readouterr())
        assert not any(c in said for c in "\x1b\x07\u202e\r"), command
        assert not any(line.lstrip().startswith(("::", "##[")) for line in said.splitlines()), command


def test_messages_are_one_line_each() -> None:
    error = CutegenError("a\nb", "c\x1b", details=["d\u202e", "e"])
    assert str(error) == "a\\nb\n  d\\u202e\n  e\n  = help: c\\x1b"
    assert not issubclass(CutegenError, SpecError)
