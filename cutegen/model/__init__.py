"""What a kernel is made of, as data: roles of warps, pipelines, barriers and shared memory.

A family declares them once for each resolved tiling. From that come the header of the generated module, SharedStorage,
the creation of mbarriers, the numbers of barriers and warps in the bodies of roles, the tables of `explain`, the bytes
that rules count and what the build contract expects. Bodies of roles stay text in templates.
"""
