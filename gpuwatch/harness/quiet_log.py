"""Failures of telemetry, kept for the end of the process, because a harness must not meet output while it times."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import Counter
from collections.abc import Iterator

_log = logging.getLogger("gpuwatch")


class _Kept(logging.Filter):
    """A filter that counts the messages of threads that are inside of ``quietly``, and lets all others pass."""

    def __init__(self) -> None:
        super().__init__()
        self.counted: Counter[str] = Counter()
        self.inside = threading.local()

    def filter(self, record: logging.LogRecord) -> bool:
        if not getattr(self.inside, "depth", 0) or record.levelno < logging.WARNING:
            return True
        with contextlib.suppress(Exception):  # a message that does not format comes from elsewhere
            self.counted[record.getMessage().removeprefix("gpuwatch: ")] += 1
        return False


_kept = _Kept()


@contextlib.contextmanager
def quietly(doing: str) -> Iterator[None]:
    """Keep every failure inside, and every warning of gpuwatch, for ``take_messages``."""
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
    """Return the messages kept so far with their counts, and forget them."""
    taken = Counter(_kept.counted)
    _kept.counted.clear()
    return taken
