"""The MMA warpgroups in the kernel module: which threads share a tile, and which part of shared memory is theirs."""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.families.gemm.candidate import Candidate


@dataclass(frozen=True, slots=True)
class ConsumersText:
    """What the templates read as k.consumers. A group is the warpgroups that share a tile: all of them (cooperative),
    or each for itself (pingpong).

    role, meanwhile: for the docstring of `consume`. mma_atoms: along m in the tiled MMA. warps, threads: of a group;
    barrier: the named barrier of its epilogue. store_stages: of the ring of outputs, of all groups; slot: in it,
    counted from the group's first one.
    """

    pingpong: bool
    role: str
    meanwhile: str
    mma_atoms: str
    warps: str
    threads: str
    barrier: str
    store_stages: str
    slot: str

    @property
    def group_index(self) -> str:
        """How coordinates end in shared memory of which each group has its own."""
        return ", group" if self.pingpong else ""

    def shape(self, *extents: str) -> str:
        """The shape of a tensor in shared memory of which each group has its own part. extents: of a part."""
        every = (*extents, *(["t.consumers"] if self.pingpong else []))
        return f"({', '.join(every)})" if len(every) > 1 else extents[0]


def consumers_text(structure: Candidate) -> ConsumersText:
    pingpong = structure.schedule == "pingpong"
    return ConsumersText(
        pingpong=pingpong,
        role="MMA warpgroup" if pingpong else "MMA warpgroups",
        meanwhile=" while the other warpgroup accumulates the next" if pingpong else "",
        mma_atoms="1" if pingpong else "t.consumers",
        warps="4" if pingpong else "4 * t.consumers",
        threads="128" if pingpong else "128 * t.consumers",
        barrier="EPILOGUE + group" if pingpong else "EPILOGUE",
        store_stages="t.store_stages * t.consumers" if pingpong else "t.store_stages",
        slot="group * t.store_stages + slot" if pingpong else "slot",
    )
