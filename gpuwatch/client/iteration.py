"""One marked piece of a window's body: an iteration, or other work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpuwatch.client.marks import TIMED, Marks


class Iteration:
    """A context manager around one iteration or piece of other work.

    Each object holds its start mark, so iterations may nest and overlap.  If marking fails, the benchmark continues.
    """

    __slots__ = ("_begun", "_give_up", "_marks", "_word")

    def __init__(self, marks: Marks | None, give_up: Callable[[Exception], None], word: int = TIMED) -> None:
        self._marks = marks
        self._word = word  # TIMED, or the number of a kind of other work
        self._give_up = give_up
        self._begun: Any = None  # the start mark

    def __enter__(self) -> None:
        if self._marks is not None:
            self._begun = self._guarded(self._marks.begin, self._word)

    def __exit__(self, *_: object) -> None:
        begun, self._begun = self._begun, None
        if begun is not None and self._marks is not None:
            self._guarded(self._marks.end, begun, self._word)

    def next(self) -> None:
        """End this iteration and begin the next."""
        if self._begun is None:
            self.__enter__()
        elif self._marks is not None:
            self._begun = self._guarded(self._marks.next, self._begun)

    # A broad except, as in ``testimony.spared``; a context manager would be too slow per iteration.
    def _guarded(self, mark: Callable[..., Any], *about: Any) -> Any:
        try:
            return mark(*about)
        except Exception as error:  # noqa: BLE001 - see above
            self._marks = None
            self._give_up(error)
            return None
