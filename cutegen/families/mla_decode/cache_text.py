"""How kernels of sm_90a read a cache row by row, for their templates."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from cutegen.arch.architecture import WARPGROUP_THREADS
from cutegen.families.mla_decode.derived import CONSUMERS, FREE_ORDER, TILE_COLUMNS
from cutegen.families.mla_decode.problem import MlaProblem
from cutegen.families.mla_decode.problem_rules import CHUNK
from cutegen.runtime.mla_decode.cache_format import CacheFormat
from cutegen.runtime.mla_decode.inputs import LATENT_DIM
from cutegen.runtime.mla_decode.tiling import KEY_BLOCK

VALUE_TILES = LATENT_DIM // TILE_COLUMNS


@dataclass(frozen=True, slots=True)
class CacheText:
    """How rows of a cache are read. threads: of the warpgroup that does. rope_chunks: 16 bytes of a thread, of a
    block's rotary part. latent_byte, rope_byte: source, what is added to a byte of a part to have that of its row.
    rope_tile: of K, that the rotary part is; None: a row has none. entries: of the table, for two rows of a block that
    are 32 apart. ahead: blocks that the table is looked up ahead."""

    threads: int
    rope_chunks: int
    latent_byte: str
    rope_byte: str
    rope_tile: int | None
    entries: int
    ahead: int
    format: CacheFormat | None

    @property
    def quantised(self) -> bool:
        return self.format is not None

    @property
    def loader(self) -> str:
        """The role that loads K, as params.py.jinja calls it."""
        return "decode_k" if self.quantised else "copy_k"

    @property
    def row_bytes(self) -> int:
        assert self.format
        return self.format.row_bytes

    @property
    def per_tensor(self) -> bool:
        return self.format is not None and self.format.per_tensor

    @property
    def token_bytes(self) -> int:
        assert self.format
        return self.format.token_bytes

    @property
    def rope_in_value(self) -> bool:
        """Whether V has the rotary part as well, as the last of its tiles."""
        return self.rope_tile is not None and self.rope_tile < VALUE_TILES

    @property
    def plane_bytes(self) -> int:
        """Of a row's scales behind the rows of a page; 0: they lie in the row."""
        return self.format.plane_bytes if self.format else 0

    @property
    def scale_codes(self) -> bool:
        """Whether scales are exponents, a byte each."""
        return self.format is not None and self.format.scale_dtype == "e8m0"

    @property
    def scale_element(self) -> str:
        """What a lane loads scales as."""
        return "Int32" if self.scale_codes else "Float32"

    @property
    def scale_words(self) -> int:
        """Words of a row's scales, as a lane loads them."""
        assert self.format
        return -(-self.format.scale_bytes // 4) if not self.plane_bytes else self.plane_bytes // 4

    @property
    def scale_align(self) -> int:
        """Bytes that a row's scales are aligned by, as far as a load can use it."""
        assert self.format
        return math.gcd(CHUNK, self.plane_bytes or self.format.scale_offset)

    def pitch(self, cache: str) -> str:
        """Source: bytes from a row of a cache to the next one of its page."""
        return "Int64(ROW_BYTES)" if self.plane_bytes else f"Int64(args.{cache}.stride[1])"

    @property
    def _scales_of_half(self) -> int:
        """Of one with all its values; the other may have fewer."""
        assert self.format
        return max(1, LATENT_DIM // CONSUMERS // (self.format.scale_block or LATENT_DIM))

    @property
    def words(self) -> int:
        """Words that hold the factors of a half, two in each."""
        return -(-self._scales_of_half // 2)

    @property
    def factors(self) -> Iterable[tuple[int, int, int, int]]:
        """(half, word, scale in its lower half, scale in its upper half); the last one twice, if they are odd."""
        assert self.format
        for half in range(CONSUMERS):
            first = half * (LATENT_DIM // CONSUMERS) // self.format.scale_block
            last = min(first + self._scales_of_half, self.format.scales) - 1
            for word in range(self.words):
                low = first + 2 * word
                yield half, word, min(low, last), min(low + 1, last)

    def scale_of(self, tile: str) -> str:
        """Source: the number of a tile's scale, both counted within a half."""
        tiles = LATENT_DIM // CONSUMERS // TILE_COLUMNS // self._scales_of_half
        return f"{tile} // {tiles}" if tiles > 1 else tile


def cache_text(problem: MlaProblem) -> CacheText | None:
    if not problem.by_rows:
        return None
    cache = problem.cache
    # The decoder counts groups: two of each buffer, and the warpgroup that frees the first takes turns.
    assert [(b, w) for b, w, _ in FREE_ORDER] == [(i >> 1, (i >> 1) ^ i % 2) for i in range(len(FREE_ORDER))]
    whole = {"latent": (0, 2 * problem.latent_dim), "rope": (2 * problem.latent_dim, 2 * problem.rope_dim)}
    parts = cache.parts if cache else whole
    latent_at, _ = parts["latent"]
    rope_at, rope = parts.get("rope", (0, 0))
    one_page = not problem.sparse and problem.page_size % KEY_BLOCK == 0
    return CacheText(
        threads=WARPGROUP_THREADS,
        rope_chunks=KEY_BLOCK * rope // (CHUNK * WARPGROUP_THREADS),
        latent_byte=f"{latent_at} + " if latent_at else "",
        rope_byte=f"{rope_at} + " if rope_at else "",
        rope_tile=problem.latent_dim // TILE_COLUMNS if rope else None,
        entries=1 if one_page else 2,
        ahead=3 if one_page else 2,
        format=cache,
    )
