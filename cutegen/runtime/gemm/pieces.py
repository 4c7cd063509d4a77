"""Into which pieces a tile is cut that reaches past the last row of its tensor: TMA loads those that have a row of it.

Importing this module imports neither torch nor cutlass.
"""

SWIZZLE_ROWS = 8  # after which any swizzle of rows along k repeats
LEAST_BYTES = 4096  # of a piece: a copy costs time, too


def piece_rows(rows: int, row_bytes: int, multicast: int = 1) -> int:
    """Rows of a piece of what one of `multicast` CTAs loads of a tile of `rows`: a quarter or half of it, if that is
    LEAST_BYTES or more; else all."""
    share = rows // multicast
    for pieces in (4, 2):
        if share % (pieces * SWIZZLE_ROWS) == 0 and share * row_bytes >= pieces * LEAST_BYTES:
            return share // pieces
    return share


def half_rows(rows: int, row_bytes: int, multicast: int = 1) -> int:
    """Rows of half a piece, as which the last one may come; of a piece where there are no pieces, or no halves."""
    piece = piece_rows(rows, row_bytes, multicast)
    halves = piece < rows // multicast and piece % (2 * SWIZZLE_ROWS) == 0
    return piece // 2 if halves else piece
