"""MLA decode on sm_100a: tcgen05 products of a pair of CTAs, with scores and O in tensor memory."""
