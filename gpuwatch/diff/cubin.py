"""Kernels of a cubin, read from its ELF symbols and NVIDIA's ``.nv.info`` records."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace

from gpuwatch.errors import UsageError

Threads = tuple[int, int, int]
_EM_CUDA = 190
_SHT_SYMTAB = 2
_STT_FUNC = 2
_STO_CUDA_ENTRY = 0x10
_NEWER_ABI = 8  # moved the architecture inside the ELF flags
# Attributes of .nv.info: cuobjdump -elf prints them with these names.
_MAX_THREADS, _REQUIRED_THREADS, _FRAME_SIZE, _KPARAM_INFO, _REGCOUNT = 0x05, 0x10, 0x11, 0x17, 0x2F
_LONG_FORM = 4  # a record with a payload behind it; other forms hold their value in its place
_RESERVED_SHARED_BYTES = 1024  # the system's own part of a block's shared memory, counted in its section since sm_90


@dataclass(frozen=True, slots=True)
class CubinKernel:
    """One kernel as the driver would load it.  ``None`` is "not known", of threads "not limited"."""

    symbol: str
    registers_count: int | None = None
    shared_bytes: int | None = None
    stack_bytes: int | None = None
    max_threads: Threads | None = None
    required_block: Threads | None = None
    parameter_bytes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    kind: int
    data: bytes
    size: int


def read_cubin(data: bytes, shown: str) -> tuple[str, list[CubinKernel]]:
    """Return the architecture, as sm_90, and the kernels of a cubin.

    Raises UsageError: for bytes that are no cubin.
    """
    try:
        if data[:5] != b"\x7fELF\x02" or struct.unpack_from("<H", data, 18)[0] != _EM_CUDA:
            raise UsageError(f"{shown}: expected a cubin, found {'an empty file' if not data else 'something else'}")
        flags = struct.unpack_from("<I", data, 48)[0]
        sm = flags >> 8 & 0xFF if data[8] >= _NEWER_ABI else flags & 0xFF
        sections = {section.name: section for section in _sections(data)}
        return f"sm_{sm}", list(_kernels(sections))
    except (struct.error, IndexError, OverflowError, UnicodeDecodeError, ValueError) as error:
        raise UsageError(f"{shown}: expected a whole cubin, found a damaged one") from error


def _sections(data: bytes) -> Iterator[_Section]:
    offset, size, count, names_index = struct.unpack_from("<Q10xHHH", data, 40)
    heads = [struct.unpack_from("<IIQQQQ", data, offset + index * size) for index in range(count)]
    names = data[heads[names_index][4] :]
    for name, kind, _, _, place, length in heads:
        text = names[name : names.index(b"\0", name)].decode()
        yield _Section(text, kind, data[place : place + length], length)


def _kernels(sections: dict[str, _Section]) -> Iterator[CubinKernel]:
    symbols = list(_symbols(sections))
    general = list(_records(sections[".nv.info"].data)) if ".nv.info" in sections else []
    reserves = any(name.startswith(".nv.reservedSmem") for name, _, _ in symbols)
    for index, (name, kind, other) in enumerate(symbols):
        if kind != _STT_FUNC or not other & _STO_CUDA_ENTRY:
            continue
        shared = sections.get(f".nv.shared.{name}")
        used = shared.size - (_RESERVED_SHARED_BYTES if reserves else 0) if shared else 0
        kernel = CubinKernel(name, shared_bytes=max(used, 0))
        for attribute, payload in general:
            values = struct.unpack_from("<II", payload) if len(payload) >= 8 else (-1, 0)
            if values[0] == index and attribute == _REGCOUNT:
                kernel = replace(kernel, registers_count=values[1])
            elif values[0] == index and attribute == _FRAME_SIZE:
                kernel = replace(kernel, stack_bytes=values[1])
        own = sections.get(f".nv.info.{name}")
        yield _with_own(kernel, list(_records(own.data))) if own else kernel


def _with_own(kernel: CubinKernel, records: list[tuple[int, bytes]]) -> CubinKernel:
    sizes: dict[int, int] = {}
    for attribute, payload in records:
        if attribute == _KPARAM_INFO:
            _, ordinal, _, packed = struct.unpack_from("<IHHI", payload)
            sizes[ordinal] = packed >> 18
        elif attribute == _MAX_THREADS:
            kernel = replace(kernel, max_threads=struct.unpack_from("<III", payload))
        elif attribute == _REQUIRED_THREADS:
            kernel = replace(kernel, required_block=struct.unpack_from("<III", payload))
    return replace(kernel, parameter_bytes=tuple(sizes[ordinal] for ordinal in sorted(sizes)))


def _symbols(sections: dict[str, _Section]) -> Iterator[tuple[str, int, int]]:
    """Yield name, type and the other bits of each symbol, in the order of their numbers."""
    names = sections[".strtab"].data if ".strtab" in sections else b""
    table = next((section.data for section in sections.values() if section.kind == _SHT_SYMTAB), b"")
    for name, info, other in struct.iter_unpack("<IBB18x", table):
        yield names[name : names.index(b"\0", name)].decode(errors="replace"), info & 0xF, other


def _records(data: bytes) -> Iterator[tuple[int, bytes]]:
    offset = 0
    while offset + 4 <= len(data):
        form, attribute, length = struct.unpack_from("<BBH", data, offset)
        offset += 4
        payload = data[offset : offset + length] if form == _LONG_FORM else b""
        offset += len(payload)
        if form == _LONG_FORM:
            yield attribute, payload
