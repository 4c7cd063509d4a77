"""What the compiler made of one kernel: read from its cubin, SASS, PTX and remarks, without a GPU."""

from __future__ import annotations

import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import accumulate
from pathlib import Path

from cutegen.arch import Opcodes
from cutegen.build.cubin import read_cubin
from cutegen.diagnostics import CutegenError
from cutegen.runtime.cache import Entry, KernelCache
from cutegen.runtime.compile import CUBIN, PTX, REMARKS

FORMAT = 2
FACTS = "facts"  # of the notes of a cache entry
BATCH = 64  # kernels that nvdisasm reads in one run; its text takes some 0.2 MB for each

# `/*0710*/  @!P0 SYNCS.ARRIVE.TRANS64 RZ, [R8+URZ], R9 ;`
_ADDRESS = re.compile(r"\s*/\*([0-9a-f]{4,})\*/")
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?\w+\s+)?([A-Z][\w.]*)([^;]*);")
_OPCODES = Opcodes()
_EARLY = (*_OPCODES.memory, _OPCODES.pdl_trigger)  # what has to come after the wait for the preceding kernel
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_WARNING = re.compile(r"\((C75\d\d)\)\s+([^\n]*)")


@dataclass(frozen=True, slots=True)
class Facts:
    """One compiled kernel. registers: per thread at launch. stack_bytes, spill_*_bytes: local memory per thread.

    threads: the CTA size it is compiled for, None when it is dynamic. instructions, code_bytes: size of the SASS.
    opcodes: how often each SASS opcode occurs. early: of those that access global memory or let the next kernel start,
    how many stand before the wait for the kernel in front; none where there is no such wait. set_registers: the values
    of USETMAXREG, sorted. ptx_waits: number of wgmma.wait_group. warnings: (code, text) of ptxas's C75xx messages, None
    where the DSL does not pass them on.
    """

    entry: str
    registers: int
    threads: tuple[int, int, int] | None
    stack_bytes: int
    spill_store_bytes: int | None
    spill_load_bytes: int | None
    instructions: int
    code_bytes: int
    opcodes: dict[str, int]
    set_registers: tuple[int, ...]
    ptx_waits: int
    warnings: tuple[tuple[str, str], ...] | None
    early: dict[str, int]

    def count(self, *prefixes: str) -> int:
        """Instructions whose opcode is one of the prefixes or starts with one and a dot."""
        return sum(
            n for op, n in self.opcodes.items() if op.startswith(tuple(p + "." for p in prefixes)) or op in prefixes
        )

    def to_json(self) -> dict[str, object]:
        return {"format": FORMAT, **asdict(self)}

    @staticmethod
    def from_json(held: object) -> Facts:
        """What to_json gave, read back from JSON. ValueError: not written by this version."""
        from pydantic import TypeAdapter

        data = dict(held) if isinstance(held, dict) else {}
        if data.pop("format", None) != FORMAT:
            raise ValueError("facts of another version")
        if data.keys() != {field.name for field in fields(Facts)}:
            raise ValueError("facts with other fields")
        return TypeAdapter(Facts).validate_json(json.dumps(data), strict=True)


def read_facts(cubin: bytes, sass: str, ptx: str, remarks: str | None) -> Facts:
    """ValueError: the cubin does not hold one complete kernel, or remarks are there without ptxas's report."""
    kernels = read_cubin(cubin)
    if len(kernels) != 1:
        raise ValueError(f"the cubin holds {len(kernels)} kernels, expected one: {', '.join(k.name for k in kernels)}")
    kernel = kernels[0]
    instructions = _INSTRUCTION.findall(sass)
    opcodes = [opcode for opcode, _ in instructions]
    wait = next((i for i, opcode in enumerate(opcodes) if opcode.startswith(_OPCODES.pdl_wait)), 0)
    before_wait = opcodes[:wait]
    limits = [rest for opcode, rest in instructions if opcode.startswith("USETMAXREG")]  # "UP0, 0xe8" or "0x28"
    spills = _SPILLS.search(remarks or "")
    if remarks is not None and spills is None:
        raise ValueError("the compiler's remarks do not hold ptxas's report")
    return Facts(
        entry=kernel.name,
        registers=kernel.registers,
        threads=kernel.threads,
        stack_bytes=kernel.stack_bytes,
        spill_store_bytes=int(spills[1]) if spills else None,
        spill_load_bytes=int(spills[2]) if spills else None,
        instructions=len(instructions),
        code_bytes=len(kernel.code),
        opcodes=_counted(opcodes),
        early=_counted(op for op in before_wait if op.partition(".")[0] in _EARLY),
        set_registers=tuple(sorted(int(rest.split(",")[-1].strip(), 0) for rest in limits)),
        ptx_waits=len(re.findall(r"\bwgmma\.wait_group\b", ptx)),
        warnings=None if remarks is None else _warnings(remarks),
    )


def _counted(opcodes: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(opcodes).items()))


def _warnings(remarks: str) -> tuple[tuple[str, str], ...]:
    """(code, text), each once: the DSL writes a remark twice, and ptxas says one thing for many lines."""
    found: dict[tuple[str, str], None] = {}
    for code, text in _WARNING.findall(remarks.replace("''", "'")):
        text = re.sub(r" (in )?around line \d+", "", re.sub(r" in (the )?function '[^']*'", "", text))
        found[code, text.strip().rstrip("'").strip()] = None
    return tuple(found)


def entry_facts(cache: KernelCache, entry: Entry) -> Facts:
    """The facts noted in a cache entry, or read from its files and noted there. CutegenError: no nvdisasm."""
    return noted_facts(entry) or _note_facts(cache, entry, disassemble(entry.files[CUBIN]))


def list_facts(cache: KernelCache, entries: Sequence[Entry]) -> list[Facts | None]:
    """entry_facts of many, of one architecture, by few runs of nvdisasm: to begin takes it 0.3 s, and a kernel 0.04 s.
    None where that is not possible; entry_facts tells why."""
    found = [noted_facts(entry) for entry in entries]
    missing = [i for i, facts in enumerate(found) if facts is None]
    for first in range(0, len(missing), BATCH):
        batch = missing[first : first + BATCH]
        try:
            texts = _disassemble_together([entries[i].files[CUBIN] for i in batch], entries[batch[0]].facts["arch"])
            for i, sass in zip(batch, texts):
                found[i] = _note_facts(cache, entries[i], sass)
        except (CutegenError, OSError, ValueError):
            continue
    return found


def _note_facts(cache: KernelCache, entry: Entry, sass: str) -> Facts:
    remarks = entry.files[REMARKS].decode() if REMARKS in entry.files else None
    facts = read_facts(entry.files[CUBIN], sass, entry.files[PTX].decode(), remarks)
    cache.note(entry, FACTS, facts.to_json())
    return facts


def noted_facts(entry: Entry) -> Facts | None:
    try:
        return Facts.from_json(entry.notes.get(FACTS))
    except ValueError:
        return None


def disassemble(cubin: bytes) -> str:
    """SASS of a cubin. CutegenError: there is no nvdisasm that can read it."""
    return _run_nvdisasm(cubin, "-c")


def _disassemble_together(cubins: Sequence[bytes], arch: str) -> list[str]:
    """SASS of each cubin's code, without names and labels. ValueError: one is not a cubin of one kernel."""
    codes = [kernel.code for cubin in cubins for kernel in read_cubin(cubin)]
    if len(codes) != len(cubins):
        raise ValueError("a cubin with several kernels")
    ends = list(accumulate(map(len, codes)))
    texts: list[list[str]] = [[] for _ in codes]
    number = 0
    for line in _run_nvdisasm(b"".join(codes), "-b", f"SM{arch.removeprefix('sm_')}").splitlines():
        if found := _ADDRESS.match(line):
            while int(found[1], 16) >= ends[number]:
                number += 1
        texts[number].append(line)
    return ["\n".join(lines) for lines in texts]


def _run_nvdisasm(data: bytes, *options: str) -> str:
    tool = require_nvdisasm()
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(data)
        file.flush()
        # Without the data-flow analysis, which only names the targets of indirect branches.
        run = subprocess.run([tool, *options, "-ndf", file.name], capture_output=True, text=True, errors="replace")
    if run.returncode or not _INSTRUCTION.search(run.stdout):
        said = (run.stderr.strip().splitlines() or [f"exit code {run.returncode}"])[-1]
        raise CutegenError(f"{tool} cannot read the cubin: {said}", NVDISASM_REMEDY, exit_code=2)
    return run.stdout


NVDISASM_REMEDY = "pip install 'nvidia-cuda-nvdisasm>=13.4,<14'"


def require_nvdisasm() -> str:
    """Its path. CutegenError (exit 2): it is not found."""
    if tool := find_nvdisasm():
        return tool
    raise CutegenError("the build contract needs nvdisasm, which is not found", NVDISASM_REMEDY, exit_code=2)


def find_nvdisasm() -> str | None:
    """The one of the nvidia-cuda-nvdisasm wheel, which is as new as the DSL needs; else the one on PATH."""
    name = "nvdisasm.exe" if sys.platform == "win32" else "nvdisasm"
    try:
        for file in importlib.metadata.files("nvidia-cuda-nvdisasm") or ():
            if file.name == name and (path := Path(str(file.locate()))).is_file():
                return str(path)
    except importlib.metadata.PackageNotFoundError:
        pass
    return shutil.which("nvdisasm")
