"""Source lines of instructions, from a cubin's DWARF: the JSON of nvdisasm 13.0 has no source lines (13.5 has them)."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from gpuwatch.diff.cubin import open_elf

Lines = dict[int, tuple[str, int]]  # by address: file and line


def source_lines(cubin: bytes) -> dict[str, Lines]:
    """Return the source lines of each kernel symbol, by the address of a line's first instruction; empty if unreadable.

    Raises UsageError: when pyelftools is not installed.
    """
    file = open_elf(cubin)
    with suppress(Exception):  # the comparison works without source lines
        return dict(_line_tables(file))
    return {}


def _line_tables(file: Any) -> Iterator[tuple[str, Lines]]:
    from elftools.dwarf.structs import DWARFStructs

    info = file.get_dwarf_info(relocate_dwarf_sections=False)
    section = file.get_section_by_name(".rela.debug_line") or file.get_section_by_name(".rel.debug_line")
    if section is None or info.debug_line_sec is None:
        return
    symbols = file.get_section_by_name(".symtab")
    # Each relocation marks the start of one function's lines.
    places = sorted((each["r_offset"], symbols.get_symbol(each["r_info_sym"]).name) for each in section.iter_relocations())
    structs = DWARFStructs(little_endian=True, dwarf_format=32, address_size=8, dwarf_version=2)
    offset = 0
    while offset < info.debug_line_sec.size:
        # pyelftools' public API needs .debug_info, which -lineinfo does not write.
        program = info._parse_line_program_at_offset(offset, structs)  # noqa: SLF001
        owners = [name for place, name in places if offset <= place < program.program_end_offset]
        for owner, lines in zip(owners, _sequences(program), strict=False):
            yield owner.removeprefix(".text."), lines
        offset = program.program_end_offset


def _sequences(program: Any) -> Iterator[Lines]:
    files = program["file_entry"]
    lines: Lines = {}
    for state in (entry.state for entry in program.get_entries() if entry.state is not None):
        if state.end_sequence:
            yield lines
            lines = {}
        elif 0 < state.file <= len(files):
            lines[state.address] = (files[state.file - 1].name.decode(errors="replace").rpartition("/")[2], state.line)
