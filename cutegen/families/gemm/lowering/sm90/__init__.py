"""GEMM on sm_90a: warpgroups multiply by WGMMA, with sums in their registers."""
