"""Names and types of parameters from a cubin's DWARF."""

from contextlib import suppress
from typing import Any

from gpuwatch.diff.cubin import open_elf

_TAGS = {
    "DW_TAG_pointer_type": "*",
    "DW_TAG_const_type": " const",
    "DW_TAG_volatile_type": " volatile",
    "DW_TAG_reference_type": "&",
}


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
