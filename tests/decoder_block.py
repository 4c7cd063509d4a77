"""Where the modules of examples/decoder_block lie: importing this one lets others import them."""

from __future__ import annotations

import sys
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "examples" / "decoder_block"
sys.path.insert(0, str(FOLDER))
