"""A kernel that lets the next one start at once, and writes what that one reads some microseconds later."""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass._mlir.dialects import llvm

THREADS, ROW = 256, 288
NANOSECONDS = 6000  # in which the next kernel guesses; nanosleep may take from none to twice as long


@cute.kernel
def _write(q, new_q, cache, new_keys, places, lengths, new_lengths):
    thread, _, _ = cute.arch.thread_idx()
    cute.arch.griddepcontrol_wait()
    cute.arch.griddepcontrol_launch_dependents()
    llvm.inline_asm(None, [], f"nanosleep.u32 {NANOSECONDS};", "", has_side_effects=True)
    for i in cutlass.range(thread, cute.size(q), THREADS):
        q[i] = new_q[i]
    for i in cutlass.range(thread, cute.size(new_keys), THREADS):
        cache[places[i // ROW], i % ROW] = new_keys[i // ROW, i % ROW]
    if thread < cute.size(lengths):
        lengths[thread] = new_lengths[thread]


@cute.jit
def write(q, new_q, cache, new_keys, places, lengths, new_lengths, stream: cuda.CUstream):
    """One CTA. Words of 32 bits; cache and new_keys: (rows, 288), the others flat. places: rows of cache that new_keys
    go to."""
    kernel = _write(q, new_q, cache, new_keys, places, lengths, new_lengths)
    kernel.launch(grid=[1, 1, 1], block=[THREADS, 1, 1], stream=stream, use_pdl=True)
