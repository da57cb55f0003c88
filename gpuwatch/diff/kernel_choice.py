"""The pairs of kernels to compare: named by the user, all of a common name, or the only possible pair."""

import re
from collections.abc import Mapping, Sequence

from gpuwatch.diff import symbols
from gpuwatch.diff.kernel_code import KernelCode, SideCode
from gpuwatch.errors import UsageError

Pair = tuple[str, str]
_VECTOR = re.compile(r"\b(char|short|int|long|longlong|float|double)[1-4](?=\*)")


def read_names(fn: str | None, sides: tuple[str, str]) -> tuple[str, str]:
    """Return each side's wanted kernel, empty if unnamed; ``FILE:KERNEL`` wins over --fn NAME and --fn NAME=NAME2.

    Raises UsageError: for an empty name.
    """
    a, *rest = (part.strip() for part in symbols.split_top(fn or "", "="))
    b = "=".join(rest)
    if fn is not None and (not a or (rest and not b)):
        raise UsageError(f"--fn: expected NAME or NAME=NAME2, found {fn!r}")
    return sides[0] or a, sides[1] or b or a


def with_types(fn: str | None, types: Mapping[str, str]) -> str | None:
    """Return --fn, if given, with names such as T in ``scale<T>`` replaced by the types of --dtype."""
    for name, type_ in types.items():
        fn = fn and re.sub(rf"\b{name}\b(?=[^<>]*[,>])", type_.replace("\\", ""), fn)
    return fn


def choose_pairs(a: SideCode, b: SideCode, wanted: tuple[str, str], *, takes_all: bool) -> list[Pair]:
    """Return pairs of symbols to compare.

    Raises UsageError: when a name matches no kernel or several, and when the sides share no name or several.
    """
    of_b = {symbols.full_name(each): each for each in b.kernel_symbols}
    common = [(each, of_b[name]) for each in a.kernel_symbols if (name := symbols.full_name(each)) in of_b]
    if takes_all:
        if not common:
            raise UsageError(f"--all: expected kernels of the same name, found none; {_both(a, b)}")
        return common
    if wanted[0] or wanted[1]:
        found_a = _named(a, wanted[0]) if wanted[0] else None
        found_b = _named(b, wanted[1]) if wanted[1] else None
        return [(found_a or _like(a, found_b or ""), found_b or _like(b, found_a or ""))]
    if len(a.kernels) == len(b.kernels) == 1:
        return [(a.kernel_symbols[0], b.kernel_symbols[0])]
    if len(common) == 1:
        return common
    if common:
        names = _names([each for each, _ in common])
        raise UsageError(f"expected one kernel, found {len(common)} that both sides have: {names}; use --fn NAME or --all")
    raise UsageError(f"expected a kernel of the same name, found none; choose with --fn NAME=NAME2; {_both(a, b)}")


def check_signatures(a: KernelCode, b: KernelCode) -> None:
    """Check that both kernels take the same arguments, ignoring const and the widths of vectors.

    Raises UsageError: when the arguments differ.
    """
    types = [[_plain(each.type) for each in code.parameters] for code in (a, b)]
    # Mangled symbols and debug information spell types alike.  A cubin holds only sizes of an extern "C" kernel.
    if all(types[0]) and all(types[1]):
        differs = types[0] != types[1]
    else:
        differs = [each.bytes_count for each in a.parameters] != [each.bytes_count for each in b.parameters]
    if differs:
        raise UsageError(
            f"expected kernels that take the same arguments, found {a.signature} and {b.signature}; "
            "compare only their code with --no-check --no-time"
        )


def _named(side: SideCode, wanted: str) -> str:
    plain = symbols.without_spaces(wanted)
    exact = [each for each in side.kernel_symbols if plain in (each, symbols.without_spaces(symbols.full_name(each)))]
    found = exact or [each for each in side.kernel_symbols if plain == symbols.base_name(each)]
    if len(found) == 1:
        return found[0]
    names = _names(found or side.kernel_symbols)
    if found:
        raise UsageError(f"{side.shown}: expected one kernel {wanted!r}, found {len(found)}: {names}")
    raise UsageError(f"{side.shown}: expected a kernel {wanted!r}, found none; it has: {names}")


def _like(side: SideCode, other: str) -> str:
    if len(side.kernels) == 1:
        return side.kernel_symbols[0]
    return _named(side, symbols.full_name(other))


def _both(a: SideCode, b: SideCode) -> str:
    return f"{a.shown} has: {_names(a.kernel_symbols)}; {b.shown} has: {_names(b.kernel_symbols)}"


def _names(found: Sequence[str]) -> str:
    return ", ".join(symbols.full_name(each) for each in found)


def _plain(type_: str) -> str:
    """Return a type without const and with a vector replaced by its element: float4 reads the same buffer as float."""
    return _VECTOR.sub(r"\1", "".join(type_.replace("const", "").split()))
