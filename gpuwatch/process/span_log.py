"""Spans with a word each, in one array: a span creates no object that Python's garbage collector tracks."""

import struct
from array import array
from collections.abc import Iterator
from typing import Literal

from gpuwatch.wire.messages import PAUSES_COUNT, SPAN_NAMES_COUNT, TIMES_AT_ONCE_COUNT, TIMES_COUNT, Spans

_ROW = struct.Struct("=qqq")
_COLUMNS_COUNT = 3
_REST = "other"  # replaces further words beyond a message's limit


class SpanLog:
    """Spans of one window: the first of ``other`` work, or the longest ``pauses``."""

    def __init__(self, what: Literal["other", "pauses"], most_count: int | None = None) -> None:
        self._what: Literal["other", "pauses"] = what
        self._most_count = most_count or (TIMES_COUNT if what == "other" else PAUSES_COUNT)
        self._rows = array("q")
        self._numbers: dict[str, int] = {}
        self._least_ns = -1  # pauses up to this length are left out

    def __len__(self) -> int:
        return len(self._rows) // _COLUMNS_COUNT

    def number_of(self, word: str) -> int:
        """Return the number of a word, for ``add``."""
        if word not in self._numbers and len(self._numbers) >= SPAN_NAMES_COUNT - 1:
            word = _REST
        return self._numbers.setdefault(word, len(self._numbers))

    def add(self, begin_ns: int, end_ns: int, number: int) -> None:
        """Keep a span with one call of the array, so that threads and the collector's callbacks cannot tear a row."""
        if end_ns - begin_ns <= self._least_ns:
            return
        if len(self) >= self._most_count:
            if self._what == "other":
                return
            self._keep_longer_half()
        self._rows.frombytes(_ROW.pack(begin_ns, end_ns, number))

    def _keep_longer_half(self) -> None:
        rows, step = self._rows, _COLUMNS_COUNT
        lengths_ns = sorted(rows[at + 1] - rows[at] for at in range(0, len(rows), step))
        self._least_ns = max(self._least_ns, lengths_ns[len(lengths_ns) // 2])
        kept = array("q")
        for at in range(0, len(rows), step):
            if rows[at + 1] - rows[at] > self._least_ns:
                kept.extend(rows[at : at + step])
        self._rows = kept

    def messages(self, run: str) -> Iterator[Spans]:
        """Yield messages of bounded size."""
        names = list(self._numbers)
        size = TIMES_AT_ONCE_COUNT * _COLUMNS_COUNT
        for first in range(0, len(self._rows), size):
            piece = self._rows[first : first + size]
            yield Spans(
                run=run,
                what=self._what,
                begin_ns=piece[0::_COLUMNS_COUNT].tobytes(),
                end_ns=piece[1::_COLUMNS_COUNT].tobytes(),
                named=bytes(piece[2::_COLUMNS_COUNT].tolist()),
                names=names,
            )
