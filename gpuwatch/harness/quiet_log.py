"""Failures of telemetry, kept until the summary, because output would disturb a harness's timing."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import Counter
from collections.abc import Iterator

_log = logging.getLogger("gpuwatch")


class _Kept(logging.Filter):
    """A filter that counts and drops warnings and errors of threads inside ``quietly``, and passes all other messages."""

    def __init__(self) -> None:
        super().__init__()
        self.counted: Counter[str] = Counter()
        self.inside = threading.local()

    def filter(self, record: logging.LogRecord) -> bool:
        if not getattr(self.inside, "depth", 0) or record.levelno < logging.WARNING:
            return True
        with contextlib.suppress(Exception):  # a message with a format error is dropped without a count
            self.counted[record.getMessage().removeprefix("gpuwatch: ")] += 1
        return False


_kept = _Kept()


@contextlib.contextmanager
def quietly(doing: str) -> Iterator[None]:
    """Catch every ``Exception`` of the block, and keep its text and gpuwatch's warnings for ``take_messages``."""
    if _kept not in _log.filters:
        _log.addFilter(_kept)
    inside = _kept.inside
    inside.depth = getattr(inside, "depth", 0) + 1
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the harness's boundary: a benchmark never fails by telemetry
        _kept.counted[f"{doing} failed: {type(error).__name__}: {error}"] += 1
    finally:
        inside.depth -= 1


def take_messages() -> Counter[str]:
    """Return the kept messages with counts, and clear them."""
    taken = Counter(_kept.counted)
    _kept.counted.clear()
    return taken
