"""One line on a terminal while a long benchmark runs; nothing where nobody looks."""

from __future__ import annotations

import contextlib
import sys
from types import TracebackType
from typing import TextIO

from annotate.output.report import plain

_WIDTH = 24


class Progress:
    """A context manager; the line is gone when it ends."""

    def __init__(self, label: str, *, shown: bool | None, stream: TextIO | None = None) -> None:
        self._stream: TextIO | None = stream or sys.stderr  # of which a process may have none
        self._label = plain(label)
        self._shown = self._is_looked_at() if shown is None else bool(shown)
        self._long = 0

    def _is_looked_at(self) -> bool:
        with contextlib.suppress(OSError, ValueError):
            return self._stream is not None and self._stream.isatty()
        return False

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._long:
            self._write("\r" + " " * self._long + "\r")
            self._long = 0

    def show(self, doing: str, share_ratio: float, detail: str = "") -> None:
        if not self._shown:
            return
        done = round(_WIDTH * min(1.0, max(0.0, share_ratio)))
        line = f"{self._label}  {doing} [{'#' * done}{'.' * (_WIDTH - done)}] {detail}".rstrip()
        self._write("\r" + line.ljust(self._long))
        self._long = max(self._long, len(line))

    def _write(self, text: str) -> None:
        try:
            if self._stream is not None:
                self._stream.write(text)
                self._stream.flush()
        except (OSError, ValueError):  # closed, full, or without these letters: no reason to lose a benchmark
            self._shown, self._long = False, 0
