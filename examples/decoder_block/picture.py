"""Where the time of a layer goes, as SVG: a bar for each side of each problem, in parts by kind of step.

python examples/decoder_block/picture.py decoder_block.json decoder_block.svg
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

WIDTH, LEFT, RIGHT = 860, 150, 190  # pixels: of all, ahead of the bars, behind them
HEAD, TITLE, BAR, GAP = 64, 24, 20, 14
COLOURS = {"GEMM": ("#3b6fb6", "#6d9eeb"), "attention": ("#b5651d", "#e09a55"), "rows": ("#3f8f5b", "#6fc28a")}
NARROW = 34  # pixels that a part's share needs


def draw(result: Mapping[str, Any]) -> str:
    """The picture of a result of measure.py. Bars of a problem have one scale; parts are the shares of its steps."""
    problems = result["problems"]
    height = HEAD + len(problems) * (TITLE + 2 * BAR + GAP)
    gpu = (result["environment"].get("gpu") or {}).get("name", "no GPU")
    body = [_text(12, 22, f"Where the time of a decoder layer goes: {gpu}", "title"), *_legend()]
    y = HEAD
    for problem in problems:
        body.append(_text(12, y + 14, problem["title"], "title"))
        y += TITLE
        slowest = max(side["time"]["median"] for side in problem["sides"].values())
        for name, side in problem["sides"].items():
            body += _bar(y, name, side, (WIDTH - LEFT - RIGHT) / slowest)
            if name == "cutegen":
                body.append(_text(WIDTH - 80, y + 14, f"{problem['speed']['median']:.2f}x"))
            y += BAR
        y += GAP
    light, dark = ("".join(f".{k} {{ fill: {c[i]}; }} " for k, c in COLOURS.items()) for i in range(2))
    style = (
        f"text {{ font: 13px sans-serif; fill: #222; }} .title {{ font-weight: 600; }} .in {{ fill: #fff; }} {light}"
        f"@media (prefers-color-scheme: dark) {{ text {{ fill: #ddd; }} .in {{ fill: #111; }} {dark}}}"
    )
    label = escape(f"Time of a decoder layer on {gpu}, by kind of step")
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{label}">'
    return "\n".join((head, f"<style>{style}</style>", *body, "</svg>")) + "\n"


def _bar(y: float, name: str, side: Mapping[str, Any], scale: float) -> list[str]:
    """A bar as long as the layer's time, its parts as wide as their shares."""
    time = side["time"]["median"]
    body, x = [_text(12, y + 14, name)], float(LEFT)
    for kind, share in side["shares"].items():
        width = share * time * scale
        body.append(f'<rect class="{kind}" x="{x:.1f}" y="{y}" width="{width:.1f}" height="{BAR - 4}"/>')
        if width >= NARROW:
            body.append(_text(x + 4, y + 13, f"{share:.0%}", "in"))
        x += width
    return [*body, _text(x + 8, y + 14, f"{time * 1e6:.1f} us")]


def _legend() -> list[str]:
    body = []
    for i, kind in enumerate(COLOURS):
        x = LEFT + 110 * i
        body += [f'<rect class="{kind}" x="{x}" y="36" width="14" height="14"/>', _text(x + 20, 48, kind)]
    return body


def _text(x: float, y: float, text: str, style: str = "") -> str:
    named = f' class="{style}"' if style else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{named}>{escape(text)}</text>'


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    target.write_text(draw(json.loads(source.read_text(encoding="utf-8"))), encoding="utf-8")
