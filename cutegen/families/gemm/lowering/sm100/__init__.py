"""GEMM on sm_100a: tcgen05 products of one CTA or of a pair, summed in tensor memory."""
