"""Kernels of a cubin: their symbols, NVIDIA's ``.nv.info`` records, and names of parameters from DWARF."""

import io
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from gpuwatch.diff.toolchain import EXTRA
from gpuwatch.errors import UsageError

Threads = tuple[int, int, int]
_EM_CUDA = bytes([190, 0])
_STT_FUNC = 2
_STO_CUDA_ENTRY = 0x10
_NEWER_ABI = 8  # from this ABI version, bits 8 to 15 of the ELF flags hold the architecture
# Attributes of .nv.info.
_MAX_THREADS, _REQUIRED_THREADS, _FRAME_SIZE, _KPARAM_INFO, _REGCOUNT = 0x05, 0x10, 0x11, 0x17, 0x2F
_THREAD_LIMITS = (_MAX_THREADS, _REQUIRED_THREADS)
_LONG_FORM = 4  # a record followed by a payload; other forms hold a value in the length field
_RESERVED_SHARED_BYTES = 1024  # reserved by CUDA in each block's shared memory
_TAGS = {
    "DW_TAG_pointer_type": "*",
    "DW_TAG_const_type": " const",
    "DW_TAG_volatile_type": " volatile",
    "DW_TAG_reference_type": "&",
}


@dataclass(frozen=True, slots=True)
class CubinKernel:
    """One kernel as the driver would load it.  None means "not known", for the two thread limits also "not limited"."""

    symbol: str
    registers_count: int | None = None
    shared_bytes: int | None = None
    stack_bytes: int | None = None
    max_threads: Threads | None = None
    required_block: Threads | None = None
    parameter_bytes: tuple[int, ...] = ()


def open_elf(data: bytes) -> Any:  # pyelftools has no types
    """Return the parsed ELF file.

    Raises UsageError: when pyelftools is not installed.
    """
    try:
        from elftools.elf.elffile import ELFFile
    except ImportError:
        raise UsageError(f"gpuwatch diff needs pyelftools, found none; run: {EXTRA}") from None
    return ELFFile(io.BytesIO(data))


def read_cubin(data: bytes, shown: str) -> tuple[str, list[CubinKernel]]:
    """Return a cubin's architecture, such as sm_90, and its kernels.

    Raises UsageError: for bytes that are not a whole cubin, and without pyelftools.
    """
    if data[:5] != b"\x7fELF\x02" or data[18:20] != _EM_CUDA:
        found = "another format" if data else "an empty file"
        raise UsageError(f"{shown}: expected a cubin (64-bit CUDA ELF), found {found}; build one with `nvcc -cubin`")
    try:
        elf = open_elf(data)
        flags = elf.header["e_flags"]
        sm = flags >> 8 & 0xFF if data[8] >= _NEWER_ABI else flags & 0xFF
        return f"sm_{sm}", list(_kernels({section.name: section for section in elf.iter_sections()}))
    except UsageError:
        raise
    except Exception as error:  # pyelftools raises errors of many types
        raise UsageError(f"{shown}: expected a whole cubin, found a damaged one; build it again") from error


def _kernels(sections: dict[str, Any]) -> Iterator[CubinKernel]:
    symbols = list(_symbols(sections))
    general = {
        (attribute, index): value
        for attribute, payload in _records(sections, ".nv.info")
        if len(payload) >= 8
        for index, value in [struct.unpack_from("<II", payload)]
    }
    reserves = any(name.startswith(".nv.reservedSmem") for name, _ in symbols)
    for index, (name, is_kernel) in enumerate(symbols):
        if not is_kernel:
            continue
        shared = sections.get(f".nv.shared.{name}")
        used = shared["sh_size"] - (_RESERVED_SHARED_BYTES if reserves else 0) if shared else 0
        own = list(_records(sections, f".nv.info.{name}"))
        limits = {attribute: struct.unpack_from("<III", payload) for attribute, payload in own if attribute in _THREAD_LIMITS}
        records = (struct.unpack_from("<4xH2xI", payload) for attribute, payload in own if attribute == _KPARAM_INFO)
        sizes = {ordinal: packed >> 18 for ordinal, packed in records}
        yield CubinKernel(
            name,
            registers_count=general.get((_REGCOUNT, index)),
            shared_bytes=max(used, 0),
            stack_bytes=general.get((_FRAME_SIZE, index)),
            max_threads=limits.get(_MAX_THREADS),
            required_block=limits.get(_REQUIRED_THREADS),
            parameter_bytes=tuple(sizes[ordinal] for ordinal in sorted(sizes)),
        )


def _symbols(sections: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yield each symbol's name, and True for a kernel, in the order of the symbol table."""
    if ".symtab" in sections:
        names, table = sections[".strtab"], sections[".symtab"].data()
        for name, info, other in struct.iter_unpack("<IBB18x", table):
            yield names.get_string(name), info & 0xF == _STT_FUNC and bool(other & _STO_CUDA_ENTRY)


def _records(sections: dict[str, Any], name: str) -> Iterator[tuple[int, bytes]]:
    data, offset = sections[name].data() if name in sections else b"", 0
    while offset + 4 <= len(data):
        form, attribute, length = struct.unpack_from("<BBH", data, offset)
        offset += 4
        payload = data[offset : offset + length] if form == _LONG_FORM else b""
        offset += len(payload)
        if form == _LONG_FORM:
            yield attribute, payload


def parameter_names(cubin: bytes) -> dict[str, list[tuple[str, str]]]:
    """Return name and type of each parameter, by kernel symbol; empty without debug information.

    Raises UsageError: when pyelftools is not installed.
    """
    found: dict[str, list[tuple[str, str]]] = {}
    file = open_elf(cubin)
    with suppress(Exception):  # names are optional: pyelftools cannot read every DWARF
        info = file.get_dwarf_info(relocate_dwarf_sections=False)
        for unit in info.iter_CUs() if info.has_debug_info else ():
            for entry in unit.get_top_DIE().iter_children():
                if entry.tag == "DW_TAG_subprogram":
                    names = (_text(entry, f"DW_AT_{each}") for each in ("MIPS_linkage_name", "linkage_name", "name"))
                    symbol = next(filter(None, names), "")
                    parameters = (child for child in entry.iter_children() if child.tag == "DW_TAG_formal_parameter")
                    found[symbol] = [(_text(each, "DW_AT_name"), _type_text(each)) for each in parameters]
    return found


def _text(entry: Any, attribute: str) -> str:
    value = entry.attributes[attribute].value if attribute in entry.attributes else b""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _type_text(entry: Any) -> str:
    if "DW_AT_type" not in entry.attributes:
        return "void"
    found = entry.get_DIE_from_attribute("DW_AT_type")
    if found.tag in ("DW_TAG_typedef", "DW_TAG_restrict_type"):
        return _type_text(found)
    mark = _TAGS.get(found.tag)
    if mark is not None:
        return f"{_type_text(found)}{mark}"
    return _text(found, "DW_AT_name") or "unnamed"
