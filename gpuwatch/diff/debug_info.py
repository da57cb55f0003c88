"""Names and types of parameters, and source lines of instructions, from a cubin's DWARF."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from gpuwatch.diff.cubin import open_elf

Lines = dict[int, tuple[str, int]]  # by address: file and line
_TAGS = {
    "DW_TAG_pointer_type": "*",
    "DW_TAG_const_type": " const",
    "DW_TAG_volatile_type": " volatile",
    "DW_TAG_reference_type": "&",
}
_TEXT = ".text."


def parameter_names(cubin: bytes) -> dict[str, list[tuple[str, str]]]:
    """Return name and type of each parameter, by kernel symbol; nothing where the cubin has no debug information."""
    found: dict[str, list[tuple[str, str]]] = {}
    file = open_elf(cubin)
    with suppress(Exception):  # names are a convenience: a form of DWARF that pyelftools cannot read costs only them
        info = file.get_dwarf_info(relocate_dwarf_sections=False)
        for unit in info.iter_CUs() if info.has_debug_info else ():
            for entry in unit.get_top_DIE().iter_children():
                if entry.tag == "DW_TAG_subprogram":
                    found |= _of_function(entry)
    return found


def source_lines(cubin: bytes) -> dict[str, Lines]:
    """Return the source line of each address at which one begins, by kernel symbol."""
    file = open_elf(cubin)
    with suppress(Exception):  # as above: without lines the code is compared all the same
        return dict(_line_tables(file))
    return {}


def _of_function(entry: Any) -> dict[str, list[tuple[str, str]]]:
    name = _text(entry, "DW_AT_MIPS_linkage_name") or _text(entry, "DW_AT_linkage_name") or _text(entry, "DW_AT_name")
    parameters = [child for child in entry.iter_children() if child.tag == "DW_TAG_formal_parameter"]
    return {name: [(_text(each, "DW_AT_name"), _type_text(each)) for each in parameters]}


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


def _line_tables(file: Any) -> Iterator[tuple[str, Lines]]:
    from elftools.dwarf.structs import DWARFStructs

    info = file.get_dwarf_info(relocate_dwarf_sections=False)
    section = file.get_section_by_name(".rela.debug_line") or file.get_section_by_name(".rel.debug_line")
    if section is None or info.debug_line_sec is None:
        return
    symbols = file.get_section_by_name(".symtab")
    # Each relocation is the beginning of one function's lines.
    places = sorted((each["r_offset"], symbols.get_symbol(each["r_info_sym"]).name) for each in section.iter_relocations())
    structs = DWARFStructs(little_endian=True, dwarf_format=32, address_size=8, dwarf_version=2)
    offset = 0
    while offset < info.debug_line_sec.size:
        # The public way leads through .debug_info, which -lineinfo does not write.
        program = info._parse_line_program_at_offset(offset, structs)  # noqa: SLF001
        owners = [name for place, name in places if offset <= place < program.program_end_offset]
        for owner, lines in zip(owners, _sequences(program), strict=False):
            yield owner.removeprefix(_TEXT), lines
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
