"""Values at the declared limits of a message's fields, one field at a time, and values beyond the limits."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from msgspec import inspect

_WIDE = "\N{GRINNING FACE}"  # needs the most memory and the longest line
_DIGITS_COUNT = 6


class UnboundedError(AssertionError):
    """A field without a declared bound."""


@dataclass(frozen=True, slots=True)
class Sized:
    """One value of one field: at a limit, or (``refused``) beyond."""

    field: str
    value: Any  # plain data for JSON
    refused: bool


def check_bounded(found: inspect.Type, where: str) -> None:
    """Check a type.  Raises UnboundedError: for a part without a declared bound."""
    match found:
        case inspect.StructType():
            for field in found.fields:
                check_bounded(field.type, f"{where}.{field.encode_name}")
        case inspect.UnionType():
            for each in found.types:
                check_bounded(each, where)
        case inspect.StrType() | inspect.BytesType() if found.max_length is not None:
            return
        case inspect.ListType() if found.max_length is not None:
            check_bounded(found.item_type, f"{where}[]")
        case inspect.DictType() if found.max_length is not None:
            check_bounded(found.key_type, f"{where} keys")
            check_bounded(found.value_type, f"{where}[...]")
        case inspect.IntType() if found.ge is not None and found.le is not None:
            return
        case inspect.FloatType() | inspect.BoolType() | inspect.NoneType() | inspect.LiteralType():
            return
        case _:
            raise UnboundedError(f"{where}: expected a declared bound, found {found}")


def sized(found: inspect.Type, field: str) -> Iterator[Sized]:
    """Yield values at the limits of a field's type, and values beyond."""
    match found:
        case inspect.UnionType():
            for each in found.types:
                yield from sized(each, field)
        case inspect.StrType():
            yield Sized(field, _WIDE * _most(found.max_length), refused=False)
            yield Sized(field, "x" * (_most(found.max_length) + 1), refused=True)
        case inspect.BytesType():
            yield Sized(field, _base64(_most(found.max_length)), refused=False)
            yield Sized(field, _base64(_most(found.max_length) + 1), refused=True)
        case inspect.IntType():
            yield Sized(field, found.le, refused=False)
            yield Sized(field, found.ge, refused=False)
            yield Sized(field, _most(found.le) + 1, refused=True)
            yield Sized(field, (found.ge or 0) - 1, refused=True)
            yield Sized(field, 10**4000, refused=True)
        case inspect.FloatType():
            yield Sized(field, 1.7e308, refused=False)
        case inspect.LiteralType():
            yield from (Sized(field, value, refused=False) for value in found.values)
            yield Sized(field, "x", refused=True)
        case inspect.ListType():
            yield from _lists(found, field)
        case inspect.DictType():
            yield from _dicts(found, field)
        case _:
            return


def least(found: inspect.Type) -> Any:
    """Return a short value of a type, as plain data, or None for another type."""
    match found:
        case inspect.UnionType():
            return least(found.types[0])
        case inspect.StrType() | inspect.BytesType():
            return ""
        case inspect.IntType() | inspect.FloatType():
            return 0
        case inspect.ListType():
            return []
        case inspect.DictType():
            return {}
        case inspect.LiteralType():
            return found.values[0]
        case _:
            return None


def _lists(found: inspect.ListType, field: str) -> Iterator[Sized]:
    """Yield lists of short items at the limit and beyond, and lists of items at their limits and beyond."""
    small = least(found.item_type)
    yield Sized(field, [small] * _most(found.max_length), refused=False)
    yield Sized(field, [small] * (_most(found.max_length) + 1), refused=True)
    for each in sized(found.item_type, field):
        count = 1 if each.refused else _most(found.max_length)
        yield Sized(field, [each.value] * count, refused=each.refused)


def _dicts(found: inspect.DictType, field: str) -> Iterator[Sized]:
    """Yield dicts at the limit and beyond, and dicts with keys and values at their limits and beyond."""
    small, most = least(found.value_type), _most(found.max_length)
    yield Sized(field, {f"{number:x}": small for number in range(most)}, refused=False)
    yield Sized(field, {f"{number:x}": small for number in range(most + 1)}, refused=True)
    for each in sized(found.key_type, field):
        if each.refused:
            yield Sized(field, {each.value: small}, refused=True)
        else:
            tail = each.value[_DIGITS_COUNT:]
            yield Sized(field, {f"{number:0{_DIGITS_COUNT}x}{tail}": small for number in range(most)}, refused=False)
    for each in sized(found.value_type, field):
        yield Sized(field, {"a": each.value}, refused=each.refused)


def _most(bound: int | float | None) -> int:
    if bound is None:
        raise UnboundedError("expected a declared bound, found none")
    return int(bound)


def _base64(length_bytes: int) -> str:
    return base64.b64encode(bytes(length_bytes)).decode()
