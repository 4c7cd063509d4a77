"""GEMM on sm_120a: warps multiply by mma.sync what ldmatrix reads, with sums in their registers."""
