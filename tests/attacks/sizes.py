"""Specs as large as they may be, of random content: findings in bounded time and memory."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

from effort import RESOLVE, too_long

from cutegen.diagnostics import CutegenError
from cutegen.resolve import resolve_document
from cutegen.spec import load_text
from cutegen.spec.text_rules import MAX_BYTES

SECONDS, CALLS = 3.0, 30_000_000
HEADS = (
    "cutegen: 1\nkernel: gemm\narch: sm_90a\ntensors:\n  a: bf16[m, k]\n  b: bf16[n, k]\n  d: bf16[m, n]\n",
    "cutegen: 1\nkernel: mla_decode\narch: sm_90a\n",
    "",
)
OPEN = ("x: [", "m: [", "tune: {stages: [", "bench: {shapes: [", "dims:\n", "tma:\n", "epilogue:\n", "instances: [", "")
PARTS = (
    *(
        "&a {i},",
        "!t {i},",
        "*a,",
        "{i},",
        "x,",
        "{{z: x}},",
        "{{n: 8, k: {i}}},",
        "'x',",
        "1e999,",
        "- ",
        "[",
        "{{a: ",
    ),
    *("  q{i}: 8\n", "q{i}:\n", "  q{i}: acc\n", "  t{i}: f32[n]\n", "? a\n", "<<: 1\n", "# {i}\n", "---\n", "\t\n"),
    *("{{a: ", "a ", "\\n", ":", "|\n"),
)


def attack(count: int, seed: int) -> Iterator[str]:
    """A line for each spec that takes too long or too much, or ends in another error than ours."""
    draw = random.Random(seed)
    for number in range(count):
        begin, parts = draw.choice(HEADS) + draw.choice(OPEN), draw.choices(PARTS, k=draw.choice((1, 1, 1, 2)))
        room = draw.choice((MAX_BYTES, MAX_BYTES, 96 * 1024))
        text, size, i = [begin], len(begin), 0
        while size < room - 64:
            text.append(parts[i % len(parts)].format(i=i))
            size, i = size + len(text[-1]), i + 1
        start = time.process_time()
        said, whole = "", "".join(text) + draw.choice(("", "]\n", "1]}\n"))
        try:
            resolve_document(load_text(whole, "large"), None)
        except CutegenError:
            pass
        except BaseException as error:
            said = type(error).__name__
        if said := said or too_long(time.process_time() - start, SECONDS, RESOLVE, whole, CALLS):
            yield f"{number}: {said}: {begin[-20:]!r} {parts}"
