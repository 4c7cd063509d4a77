"""The columns of a gated product two by two: views of its tensors that put both columns of a pair in one tile.

Columns are interleaved (2 i and 2 i + 1 are a pair) or halves of all (i and i + n/2). A tile of the product holds
tile_n / 2 pairs: the accumulators of their first columns, then those of their second ones. So both of a pair are in the
same thread, tile_n / 4 registers apart.
"""

import cutlass.cute as cute


def pair_rows(tensor, *, interleaved: bool):
    """B (n, k, ...) as ((n/2, 2), k, ...): one TMA box holds rows of both columns of its pairs."""
    half = tensor.shape[0] // 2
    first, second = _strides(tensor.stride[0], half, interleaved)
    layout = cute.make_layout(((half, 2), *tensor.shape[1:]), stride=((first, second), *tensor.stride[1:]))
    return cute.make_tensor(tensor.iterator, layout)


def split_columns(tensor, mode: int, *, interleaved: bool, align: int):
    """The two tensors of first and of second columns; mode: that of n. align: bytes that the second one is known to be
    aligned to."""
    half = tensor.shape[mode] // 2
    step, second = _strides(tensor.stride[mode], half, interleaved)
    shape = (*tensor.shape[:mode], half, *tensor.shape[mode + 1 :])
    stride = (*tensor.stride[:mode], step, *tensor.stride[mode + 1 :])
    layout = cute.make_layout(shape, stride=stride)
    start = (tensor.iterator + second).align(align)
    return cute.make_tensor(tensor.iterator, layout), cute.make_tensor(start, layout)


def _strides(step, half, interleaved: bool):
    """(from a pair to the next, from its first column to its second)"""
    return (2 * step, step) if interleaved else (step, half * step)
