"""One line of progress while a benchmark runs, by default only on a terminal."""

import contextlib
import sys
from typing import TextIO

from annotate.output.report import plain

_WIDTH = 24


class Progress:
    """The line: updated with each step, and removed at the end."""

    def __init__(self, label: str, *, shown: bool | None, stream: TextIO | None = None) -> None:
        self._stream: TextIO | None = stream or sys.stderr  # None in a process without standard error
        self._label = plain(label)
        self._shown = bool(shown)
        self._width = 0
        with contextlib.suppress(OSError, ValueError):  # isatty of a closed stream raises
            self._shown = self._shown or (shown is None and self._stream is not None and self._stream.isatty())

    def close(self) -> None:
        if self._width:
            self._write("\r" + " " * self._width + "\r")

    def show(self, doing: str, share_ratio: float, detail: str = "") -> None:
        if not self._shown:
            return
        done = round(_WIDTH * min(1.0, max(0.0, share_ratio)))
        line = f"{self._label}  {doing} [{'#' * done}{'.' * (_WIDTH - done)}] {detail}".rstrip()
        self._write("\r" + line.ljust(self._width))
        self._width = max(self._width, len(line))

    def _write(self, text: str) -> None:
        try:
            if self._stream is not None:
                self._stream.write(text)
                self._stream.flush()
        except (OSError, ValueError):  # closed, full, or unable to encode these letters: the benchmark continues
            self._shown, self._width = False, 0
