"""A kernel of one warp, and of all that generated kernels ask of the DSL to be compiled: `doctor` tries it."""

import cuda.bindings.driver as cuda
import cutlass.cute as cute
from cutlass import Int32
from cutlass.cute.runtime import make_fake_stream, make_fake_tensor

THREADS = 32


class Trial:
    @cute.jit
    def __call__(self, out: cute.Tensor, stream: cuda.CUstream):
        self.kernel(out).launch(grid=[1, 1, 1], block=[THREADS, 1, 1], stream=stream, use_pdl=True)

    @cute.kernel
    def kernel(self, out: cute.Tensor):
        cute.arch.griddepcontrol_wait()
        thread, _, _ = cute.arch.thread_idx()
        if thread < out.shape[0]:
            out[thread] = thread


def compile_kernel(tiling: None, options: str):
    """The compiled kernel, called as kernel(out), out: i32 (n,)."""
    Trial.kernel.set_name_prefix("trial", remove_cutlass_symbol=True, keep_mangled_name=False)
    out = make_fake_tensor(Int32, (cute.sym_int(),), (1,), assumed_align=4)
    return cute.compile(Trial(), out, make_fake_stream(use_tvm_ffi_env_stream=True), options=options)
