"""MLA decode on sm_90a: two warpgroups of a CTA take turns, with O in their registers."""
