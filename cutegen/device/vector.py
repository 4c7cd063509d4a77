"""Row and column vectors of the epilogue: fetched before the mainloop, staged in shared memory after it.

The latency of global memory hides behind the mainloop at the price of a register or two per thread, and any element
type and alignment will do.
"""

import cutlass
import cutlass.cute as cute
from cutlass import Float32


@cute.jit
def fetch(vector: cute.Tensor, origin, extent: cutlass.Constexpr, thread, threads: cutlass.Constexpr):
    """This thread's share of vector[origin : origin + extent] in f32, 0 past the end."""
    values = cute.make_rmem_tensor(cute.ceil_div(extent, threads), Float32)
    for i in cutlass.range_constexpr(cute.size(values)):
        at = i * threads + thread
        values[i] = Float32(0.0)
        if at < extent and origin + at < vector.shape[0]:
            values[i] = vector[origin + at].to(Float32)
    return values


@cute.jit
def fetch_named(
    vector: cute.Tensor, index: cute.Tensor, origin, extent: cutlass.Constexpr, thread, threads: cutlass.Constexpr
):
    """This thread's share of what index[origin : origin + extent] names of a vector, in f32; 0 past the end of the
    index, and for what the vector does not have."""
    values = cute.make_rmem_tensor(cute.ceil_div(extent, threads), Float32)
    for i in cutlass.range_constexpr(cute.size(values)):
        at = i * threads + thread
        values[i] = Float32(0.0)
        if at < extent and origin + at < index.shape[0]:
            row = index[origin + at]
            if row >= 0 and row < vector.shape[0]:
                values[i] = vector[row].to(Float32)
    return values


@cute.jit
def stage(values: cute.Tensor, smem: cute.Tensor, extent: cutlass.Constexpr, thread, threads: cutlass.Constexpr):
    """Writes what `fetch` returned to smem[0 : extent]; readable by the group after its next barrier."""
    for i in cutlass.range_constexpr(cute.size(values)):
        at = i * threads + thread
        if at < extent:
            smem[at] = values[i]
