"""Specs that are mutated as text: each is accepted and rendered, or refused with findings that have places."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator
from pathlib import Path

import gemm_specs
import mla_specs
import name_probes
from effort import RESOLVE, too_long

from cutegen.diagnostics import CutegenError, SpecError
from cutegen.render import render_package
from cutegen.resolve import resolve_document
from cutegen.spec import load_text

SHIPPED = [path for path in sorted((Path(__file__).parents[2] / "specs").glob("*.yaml")) if ".lock" not in path.name]
MOST_CPU_S, MOST_CALLS = 5.0, 20_000_000  # most take 0.1 s; the choice of a portfolio 2 s and 10 million calls
NO_PLACE = {"empty-spec", "file-size", "not-a-spec"}
WORDS = (
    "auto", "true", "false", "null", "~", "yes", "0", "-1", "1", "2", "8", "16", "63", "64", "128", "255", "256",
    "4096", "2147483647", "2147483648", "999999999999999999", "1e400", ".nan", "1.5", "bf16", "f16", "f32", "e4m3",
    "i8", "i32", "f64", "m", "n", "k", "l", "g", "acc", "stored", "a", "b", "d", "x", "m/2", "m*2", "ceil(n/128)",
    "n/0", "m+1", "f32[]", "bf16[m,k]@m", "bf16[n]?", "relu(acc)", "max(acc,m)", "sum(acc,n)", "acc[:,0::2]",
    "where(a<b,a,b)", "silu", "round_bf16", "((", "))", "[]", "{}", '""', "''", "'", '"', ":", "-", "?", "|", ">",
    "*", "&", "!", "%", "@", "`", "!!python/object:os.system", "&x", "*x", "<<:", "{{x}}", "{%x%}", "${x}", "\\x00",
    "\\u202e", "é", "漢", "cooperative", "pingpong", "static_persistent", "never",
)  # fmt: skip


_NAME, _NUMBER = re.compile(r"[A-Za-z_]\w*"), re.compile(r"-?\d+")


def attack(count: int, seed: int) -> Iterator[str]:
    rng = random.Random(seed)
    texts = [*map(Path.read_text, SHIPPED), *gemm_specs.EDGES.values(), *name_probes.GEMM, *mla_specs.EDGES.values()]
    for case in range(count):
        text = mutate(rng.choice(texts), rng)
        started = time.process_time()
        said = judge(text) or too_long(time.process_time() - started, MOST_CPU_S, RESOLVE, text, MOST_CALLS)
        if said:
            yield f"case {case}: {said}\n{text}"


def judge(text: str) -> str:
    """What cutegen does wrong with a spec, or ""."""
    try:
        package = render_package(resolve_document(load_text(text, "mutated"), None).resolved)
        for file, source in package.files.items():
            compile(source, file, "exec")
    except SpecError as error:
        lost = [d.rule for d in error.diagnostics if d.location is None and d.rule not in NO_PLACE]
        return f"{lost[0]} has no place" if lost else ""
    except CutegenError as error:
        return f"is refused without a finding: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def mutate(text: str, rng: random.Random) -> str:
    """The text with a few changes: mostly of one name, number or line, which the text may survive."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        usual = rng.random() < 0.8
        text = rng.choice(USUAL if usual else RARE)(text, rng)
    return text


def _replace_name(text: str, rng: random.Random) -> str:
    return _replace(text, _NAME, rng)


def _replace_number(text: str, rng: random.Random) -> str:
    return _replace(text, _NUMBER, rng)


def _rename(text: str, rng: random.Random) -> str:
    """A name by another one everywhere, or two by each other."""
    found = sorted({match[0] for match in _NAME.finditer(text)}) or ["a"]
    old, new = rng.choice(found), rng.choice((rng.choice(found), rng.choice("xyzuvw") + rng.choice(found)))
    return re.sub(rf"\b(?:{old}|{new})\b", lambda match: new if match[0] == old else old, text)


def _replace(text: str, pattern: re.Pattern[str], rng: random.Random) -> str:
    """One match by another one, or by a word of the same kind."""
    found = list(pattern.finditer(text))
    if not found:
        return text
    at, known = rng.choice(found), [word for word in WORDS if pattern.fullmatch(word)]
    new = rng.choice((rng.choice(found)[0], rng.choice(known)))
    return text[: at.start()] + new + text[at.end() :]


def _lines(text: str, rng: random.Random) -> tuple[list[str], int]:
    lines = text.splitlines(keepends=True) or ["\n"]
    return lines, rng.randrange(len(lines))


def _drop_line(text: str, rng: random.Random) -> str:
    lines, at = _lines(text, rng)
    return "".join(lines[:at] + lines[at + 1 :])


def _repeat_line(text: str, rng: random.Random) -> str:
    lines, at = _lines(text, rng)
    return "".join(lines[:at] + [lines[at]] * rng.choice((2, 3, 40)) + lines[at + 1 :])


def _swap_lines(text: str, rng: random.Random) -> str:
    lines, at = _lines(text, rng)
    other = rng.randrange(len(lines))
    lines[at], lines[other] = lines[other], lines[at]
    return "".join(lines)


def _replace_word(text: str, rng: random.Random) -> str:
    words = text.split(" ")
    at = rng.randrange(len(words))
    words[at] = rng.choice((rng.choice(WORDS), rng.choice(words), rng.choice(words).strip() + rng.choice(WORDS)))
    return " ".join(words)


def _insert(text: str, rng: random.Random) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] + rng.choice(WORDS) * rng.choice((1, 1, 1, 100)) + text[at:]


def _cut(text: str, rng: random.Random) -> str:
    first, last = sorted((rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)))
    return text[:first] + text[last:] if rng.random() < 0.5 else text[:last]


def _indent(text: str, rng: random.Random) -> str:
    lines, at = _lines(text, rng)
    lines[at] = rng.choice((" ", "  ", "\t", "- ")) + lines[at]
    return "".join(lines)


def _change_character(text: str, rng: random.Random) -> str:
    at = rng.randrange(max(1, len(text)))
    points = (rng.randrange(32, 127), rng.randrange(0x2000, 0x2100), 0, 27, 0x1F600)
    return text[:at] + chr(rng.choice(points)) + text[at + 1 :]


USUAL = (_replace_name, _replace_name, _rename, _rename, _replace_number, _replace_number, _replace_number, _drop_line)
RARE = (_repeat_line, _swap_lines, _replace_word, _insert, _cut, _indent, _change_character)
