"""Hostile specs, locks, suites, results and names, under an audit hook: no code of theirs runs, nothing is written
outside of the checkout and the cache, and nothing of them reaches a terminal raw."""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from attacks.commands import call, fault, inside
from cutegen import distributions
from cutegen.epilogue import installed

SHIPPED = Path(__file__).parents[2] / "specs"
MARK = "hostile_code_ran"
CODE = f"__import__('builtins').__dict__.__setitem__('{MARK}', 1)"
# What other languages would run, what terminals and workflows obey, and what leads out of a folder.
PAYLOADS = (
    CODE, f"{{{{ {CODE} }}}}", f"{{% set x = {CODE} %}}", f'"""\n{CODE}\n"""', f"'); {CODE}; ('", f"${{{{{CODE}}}}}",
    f"#{{{CODE}}}",
    f"!!python/object/apply:eval ['{CODE}']", "!!python/name:os.system x", "%s%n", "{0.__class__.__init__.__globals__}",
    "\x1b]0;title\x07", "\x1b[2J", "\u202egnp.exe", "a\n::error::taken over", "a\r::set-output name=x::y",
    "\u2066x\u2069",
    "\x9b31m", "::warning file=x::y", "../../../outside", "/etc/passwd", "~/.bashrc", "$(touch outside)",
    "`touch outside`",
    "x\x00y", "\ud800", "nice_relu(acc)", "\u2028::error::x",
)  # fmt: skip
EVIL = f"import builtins\nbuiltins.{MARK} = 1\nclass NiceRelu:\n    pass\n"
COMMANDS = (
    ["validate", "x.yaml"], ["validate", "--json", "x.yaml"], ["validate", "--no-ops", "x.yaml"], ["resolve", "x.yaml"],
    ["lock", "x.yaml"], ["lock", "--upgrade", "x.yaml"], ["lock", "--check", "x.yaml"], ["pin", "x.yaml"],
    ["render", "x.yaml"], ["render", "--check", "x.yaml"], ["render", "--diff", "x.yaml"], ["explain", "x.yaml"],
    ["explain", "--why-not", "tile=256x256", "x.yaml"], ["report", "result.json"],
    ["report", "result.json", "--compare", "result.json"],
    ["render", "--locked", "x.yaml"], ["validate", "."], ["list"], ["explain", "nice_relu"],
)  # fmt: skip


OURS = str(Path(__file__).resolve().parents[2]) + os.sep


class Watch:
    """What this process does while `on`."""

    def __init__(self) -> None:
        self.on, self.seen, self.allowed = False, list[str](), tuple[str, ...]()
        sys.addaudithook(self.see)

    def see(self, event: str, arguments: tuple[object, ...]) -> None:
        if not self.on:
            return
        if event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "socket.connect"):
            self.seen.append(f"{event} {arguments!r}")
        elif event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
            flags = arguments[2] if isinstance(arguments[2], int) else 0
            if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                self.written(event, arguments[0])
        elif event in (
            "os.rename",
            "os.remove",
            "os.mkdir",
            "os.rmdir",
            "os.link",
            "os.symlink",
            "os.truncate",
            "os.chmod",
        ):
            for place in arguments[: 2 if event in ("os.rename", "os.link", "os.symlink") else 1]:
                if isinstance(place, str | bytes | os.PathLike):
                    self.written(event, place)

    def written(self, event: str, place: str | bytes | os.PathLike[str]) -> None:
        real = os.path.realpath(os.fsdecode(place))
        # Bytecode of ours, which Python keeps, and its folder.
        if real.startswith(OURS) and "__pycache__" in real.split(os.sep)[-2:]:
            return
        if not f"{real}{os.sep}".startswith(self.allowed) and real != "/dev/null":
            self.seen.append(f"{event} {real}")


WATCH = Watch()


def attack(count: int, seed: int) -> Iterator[str]:
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder).resolve()
        WATCH.allowed = tuple(f"{place / name}{os.sep}" for name in ("checkout", "cache"))
        for case in range(count):
            shutil.rmtree(place / "checkout", ignore_errors=True)
            arguments, what = _prepare(place / "checkout", rng)
            if said := judge(place / "checkout", arguments):
                yield f"case {case}: {arguments!r} with {what}: {said}"


def judge(checkout: Path, arguments: list[str]) -> str:
    WATCH.seen.clear()
    import builtins

    path = [*sys.path]
    sys.path.insert(0, str(checkout))  # as `python -m cutegen` has it
    distributions._find_offers.cache_clear()
    installed._load_installed.cache_clear()
    try:
        with inside(checkout):
            WATCH.on = True
            try:
                code, output = call(arguments)
            finally:
                WATCH.on = False
    finally:
        sys.path[:] = path
    if hasattr(builtins, MARK):
        delattr(builtins, MARK)
        return "code ran"
    if "evil_ops" in sys.modules:
        return "evil_ops was imported"
    if WATCH.seen:
        return WATCH.seen[0]
    return fault(code, output, arguments) or next(_foreign_source(checkout), "")


def _foreign_source(checkout: Path) -> Iterator[str]:
    """Generated modules in which a payload is more than the text of a literal or a comment."""
    import ast

    for path in checkout.rglob("generated/**/*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Name) and node.id == "__import__":
                yield f"{path.name} calls {node.id}"


def _prepare(checkout: Path, rng: random.Random) -> tuple[list[str], str]:
    """A checkout with something hostile in it, a command for it, and what is hostile."""
    checkout.mkdir()
    shipped = rng.choice([path for path in sorted(SHIPPED.glob("*.yaml")) if ".lock" not in path.name])
    text, lock = shipped.read_text(encoding="utf-8"), shipped.with_suffix(".lock.yaml").read_text(encoding="utf-8")
    payload, arguments = rng.choice(PAYLOADS), [*rng.choice(COMMANDS)]
    _write(checkout / "evil-1.0.dist-info" / "METADATA", "Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    _write(
        checkout / "evil-1.0.dist-info" / "entry_points.txt", "[cutegen.epilogue_ops]\nnice_relu = evil_ops:NiceRelu\n"
    )
    _write(checkout / "evil_ops.py", EVIL)
    where = rng.choice(
        ("value", "key", "expression", "line", "lock", "lock", "suite", "result", "folder", "file", "argument")
    )
    quoted = json.dumps(payload)
    if where == "value":
        text = _at_a_line(text, rng, lambda line: line.partition(": ")[0] + ": " + rng.choice((quoted, payload)) + "\n")
    elif where == "key":
        text += f"{rng.choice((quoted, payload))}: 1\n"
    elif where == "expression":
        text = "\n".join(line for line in text.splitlines() if "acc" not in line)
        text = text.replace("epilogue:", "") + f"\nepilogue:\n  d: {quoted}\n"
    elif where == "line":
        text = _at_a_line(text, rng, lambda line: f"{line}{payload}\n")
    elif where == "lock":
        lock = _at_a_line(lock, rng, lambda line: _in_lock(line, quoted, rng))
    elif where == "suite":
        text += f"bench: {{suite: {rng.choice((quoted, 'own'))}}}\n"
        _write(checkout / "suites" / "own.yaml", f"cutegen: 1\ndescription: {quoted}\nshapes: [{{{quoted}: 1}}]\n")
    elif where == "file" and "\x00" not in payload and "\ud800" not in payload:
        name = payload.replace("/", "_")
        _write(checkout / f"{name}.yaml", text)
        _write(checkout / "generated" / "x" / f"{name}.py", "# Code generated by cutegen; DO NOT EDIT.\n")
    elif where == "folder" and "\x00" not in payload and "\ud800" not in payload:
        folder = payload.replace("/", "_")
        _write(checkout / folder / "x.yaml", text)
        arguments = [a if a != "x.yaml" else f"{folder}/x.yaml" for a in arguments]
    elif where == "argument":
        arguments.insert(rng.randrange(1, len(arguments) + 1), payload.replace("\x00", ""))
    _write(checkout / "x.yaml", text)
    if rng.random() < 0.8:
        _write(checkout / "x.lock.yaml", lock)
    _write(checkout / "result.json", _result(quoted if where == "result" else '"x"'))
    return arguments, f"{where} {payload!r} in {shipped.name}"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode("utf-8", "surrogatepass"))


def _at_a_line(text: str, rng: random.Random, change: object) -> str:
    lines = text.splitlines(keepends=True)
    at = rng.randrange(len(lines))
    lines[at] = change(lines[at])  # type: ignore[operator]
    return "".join(lines)


def _in_lock(line: str, quoted: str, rng: random.Random) -> str:
    """A line of a lock with a payload as reason, value, knob or as a line of its own."""
    head, reason = line.partition(", reason: ")[::2]
    if reason and rng.random() < 0.5:
        return f"{head}, reason: {quoted}}}\n"
    name, value = line.partition(":")[::2]
    return rng.choice((f"{name}: {quoted}\n", f"  {quoted}:{value}", f"{name}: {{value: {quoted}, reason: x}}\n"))


def _result(quoted: str) -> str:
    """A result of `bench` with a text from elsewhere in many places."""
    path = Path(__file__).parents[2] / "docs" / "measurements" / "gemm_h200.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    if quoted != '"x"':
        _taint(data, json.loads(quoted))
    return json.dumps(data)


def _taint(data: object, text: str) -> None:
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in list(items):
        if isinstance(value, str) and key not in ("format", "version"):
            data[key] = value + text  # type: ignore[index]
        else:
            _taint(value, text)
