"""Names of kernels, demangled by the C++ library and split into a name and the types of parameters."""

import ctypes
import functools


@functools.cache
def demangle(symbol: str) -> str:
    """Return a symbol demangled; unchanged if it is not a mangled name, or the C++ library is missing."""
    if not symbol.startswith("_Z"):
        return symbol
    try:
        library = ctypes.CDLL("libstdc++.so.6")
    except OSError:
        return symbol
    call = library["__cxa_demangle"]
    call.restype, call.argtypes = ctypes.c_void_p, [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    place = call(symbol.encode(), None, None, None)
    if not place:
        return symbol
    text = ctypes.string_at(place).decode(errors="replace")
    library.free(ctypes.c_void_p(place))
    return text


def full_name(symbol: str) -> str:
    """Return a kernel's name with its template arguments and without return type and parameters."""
    text = demangle(symbol)
    head = text[: _parameters_begin(text)].replace("(anonymous namespace)", "(anonymous_namespace)")
    # The return type ends at the last space outside template arguments.
    return split_top(head, " ")[-1].replace("(anonymous_namespace)", "(anonymous namespace)")


def base_name(symbol: str) -> str:
    """Return a kernel's name without template arguments and namespaces."""
    return full_name(symbol).partition("<")[0].rpartition("::")[2]


def parameter_types(symbol: str) -> tuple[str, ...] | None:
    """Return the types of a mangled kernel's parameters; None for a symbol without types."""
    text = demangle(symbol)
    begin = _parameters_begin(text)
    if begin == len(text):
        return None
    inner = text[begin + 1 : text.rindex(")")]
    return tuple(part.strip() for part in split_top(inner) if part.strip() and part.strip() != "void")


def split_top(text: str, mark: str = ",") -> list[str]:
    """Split a text at the marks outside all brackets."""
    parts, depth, begin = [], 0, 0
    for index, letter in enumerate(text):
        depth += (letter in "(<[") - (letter in ")>]")
        if letter == mark and depth == 0:
            parts.append(text[begin:index])
            begin = index + 1
    return [*parts, text[begin:]]


def without_spaces(name: str) -> str:
    return "".join(name.split())


def _parameters_begin(text: str) -> int:
    depth = 0
    for index, letter in enumerate(text):
        if letter == "(" and depth == 0 and not text.startswith("(anonymous namespace)", index):
            return index
        depth += (letter in "<[") - (letter in ">]")
    return len(text)
