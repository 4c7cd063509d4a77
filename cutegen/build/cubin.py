"""What a cubin tells of its kernels without any tool: the ELF section headers and the .nv.info attributes."""

from __future__ import annotations

import struct
from dataclasses import dataclass

# .nv.info is a list of (format, attribute, value); these attributes are the ones read. FRAME_SIZE and REGCOUNT are
# (symbol index, number) in the global section, REQNTID is three sizes in .nv.info.<kernel>.
REGCOUNT, FRAME_SIZE, REQNTID = 0x2F, 0x11, 0x10
SIZED = 0x04  # formats: 0x04 has a 16-bit length and that many bytes, the others a 16-bit value in place


@dataclass(frozen=True, slots=True)
class CubinKernel:
    """One entry function. registers: at launch, per thread. stack_bytes: local memory per thread.

    threads: the required CTA size, None when it is dynamic. code: its instructions, encoded.
    """

    name: str
    registers: int
    stack_bytes: int
    threads: tuple[int, int, int] | None
    code: bytes


def read_cubin(data: bytes) -> tuple[CubinKernel, ...]:
    """The kernels of a cubin, by name. ValueError: it is not a complete one."""
    try:
        return _read(data)
    except (struct.error, LookupError, OverflowError, ValueError) as error:
        raise ValueError(f"not a readable cubin: {error}") from error


def _read(data: bytes) -> tuple[CubinKernel, ...]:
    if data[:5] != b"\x7fELF\x02":
        raise ValueError("no 64-bit ELF header")
    (table,) = struct.unpack_from("<Q", data, 0x28)
    size, count, names_at = struct.unpack_from("<HHH", data, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * size) for i in range(count)]
    contents = [data[h[4] : h[4] + h[5]] if h[1] != 8 else b"" for h in headers]  # 8: NOBITS
    sections = {_string(contents[names_at], h[0]): i for i, h in enumerate(headers)}
    symbols = _symbols(contents, headers, sections)
    numbers: dict[int, dict[str, int]] = {REGCOUNT: {}, FRAME_SIZE: {}}
    for attribute, value in _attributes(contents[sections[".nv.info"]]):
        if attribute in numbers:
            index, number = struct.unpack("<II", value)
            numbers[attribute][symbols[index]] = number
    return tuple(
        _kernel(name.removeprefix(".text."), numbers, contents, sections)
        for name in sorted(sections)
        if name.startswith(".text.")
    )


def _kernel(
    name: str, numbers: dict[int, dict[str, int]], contents: list[bytes], sections: dict[str, int]
) -> CubinKernel:
    attributes = dict(_attributes(contents[sections[f".nv.info.{name}"]]))
    threads = struct.unpack("<III", attributes[REQNTID]) if REQNTID in attributes else None
    code = contents[sections[f".text.{name}"]]
    return CubinKernel(name, numbers[REGCOUNT][name], numbers[FRAME_SIZE][name], threads, code)


def _attributes(section: bytes) -> list[tuple[int, bytes]]:
    found, at = [], 0
    while at + 4 <= len(section):
        form, attribute, short = struct.unpack_from("<BBH", section, at)
        length = short if form == SIZED else 0
        found.append((attribute, section[at + 4 : at + 4 + length] if form == SIZED else section[at + 2 : at + 4]))
        at += 4 + length
    return found


def _symbols(contents: list[bytes], headers: list[tuple[int, ...]], sections: dict[str, int]) -> list[str]:
    table = sections[".symtab"]
    text = contents[headers[table][6]]  # sh_link: its string table
    return [_string(text, start) for (start,) in struct.iter_unpack("<I20x", contents[table])]


def _string(table: bytes, start: int) -> str:
    return table[start : table.index(b"\0", start)].decode()
