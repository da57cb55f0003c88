"""Fuzzer input as a sequence of choices; a change of one byte usually leaves the later choices unchanged."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, TypeVar

_T = TypeVar("_T")
# Edge cases for parsers.
_EDGES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**31, 2**53, 2**62, 2**63 - 1, 2**63, -(2**63), 2**64, 10**40, 0.5, -0.0, 1e308, -1e308,
    "", "x", "\0", "\x1b[2J", "\u2028", "é" * 300, "GPU-", [], {}, [[]], [None], {"": {}}, [0, 1], ["x"], {"schema": 1},
)  # fmt: skip


class Dealt:
    """A sequence of choices; after the input's end, ``byte`` returns 0."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1] if self._at <= len(self._data) else 0

    def number(self, width: int = 8) -> int:
        return int.from_bytes(bytes(self.byte() for _ in range(width)), "little", signed=True)

    def choice(self, among: Sequence[_T]) -> _T:
        return among[self.byte() % len(among)]

    def piece(self) -> bytes:
        """Return up to N bytes, where N is the next byte."""
        length = self.byte()
        found = self._data[self._at : self._at + length]
        self._at += length
        return found

    def text(self) -> str:
        return self.piece().decode("utf-8", "replace")

    def value(self) -> Any:  # any JSON value
        """Return an edge case, a number or a text."""
        kind = self.byte()
        if kind < 160:
            return copy.deepcopy(_EDGES[kind % len(_EDGES)])
        return self.number() if kind < 208 else self.text()

    def rest(self) -> bytes:
        found, self._at = self._data[self._at :], len(self._data)
        return found
