"""Bounded reading of untrusted files."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TypeVar

import msgspec
import numpy as np

from annotate.evidence import Times, Values

MOST_TIMES_COUNT = 5_000_000
_FARTHEST_NS = 1 << 62
_T = TypeVar("_T")


def decode(blob: bytes | msgspec.Raw, form: type[_T]) -> _T:
    """Decode JSON of this form.

    Raises ValueError: for other content, and for content nested too deeply.
    """
    try:
        return msgspec.json.decode(blob, type=form)
    except RecursionError as error:
        raise ValueError("expected JSON of a few levels, found deeper nesting") from error


def as_seconds(values: Iterable[object], scale: float = 1.0) -> Values:
    """Return durations times ``scale``; infinities, NaN and values from 1e9 s on become zero.

    Raises ValueError: for non-numbers, and for too many values.
    """
    found = as_floats(values) * scale
    # The judge reports a zero duration as impossible.
    return np.where(np.isfinite(found) & (found < 1e9), found, 0.0)


def as_begins(values: Iterable[object], scale: float = 1.0) -> Times:
    """Return instants in nanoseconds.

    Raises ValueError: for non-numbers, for too many values, and for values beyond 146 years.
    """
    found = as_floats(values) * scale
    if not (np.abs(found) < _FARTHEST_NS).all():
        raise ValueError("expected start times on CLOCK_MONOTONIC, found one beyond 146 years")
    return np.round(found).astype(np.int64)


def as_clocks(values: Iterable[object], scale: float = 1.0) -> Values:
    """Return clocks in MHz, NaN for impossible SM clocks.

    Raises ValueError: for non-numbers, and for too many values.
    """
    found = as_floats(values) * scale
    return np.where((found >= 1.0) & (found <= 10_000.0), found, np.nan)


def local_wall_s(text: str | None, form: str) -> float | None:
    """Read a local time without a zone as a time in this machine's zone; None for other text."""
    try:
        return None if text is None else datetime.strptime(text, form).astimezone().timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def as_floats(values: Iterable[object]) -> Values:
    """Return numbers as an array.

    Raises ValueError: for non-numbers, and for too many values.
    """
    if isinstance(values, np.ndarray):
        found = values.astype(np.float64)
    else:
        listed = list(values)
        if any(isinstance(each, bool) or not isinstance(each, int | float) for each in listed):
            wrong = next(each for each in listed if isinstance(each, bool) or not isinstance(each, int | float))
            raise ValueError(f"expected numbers, found {str(wrong)[:40]!r}")
        try:
            found = np.array(listed, np.float64)
        except OverflowError as error:
            raise ValueError("expected numbers, found one beyond 64 bits") from error
    if len(found) > MOST_TIMES_COUNT:
        raise ValueError(f"expected at most {MOST_TIMES_COUNT} values, found {len(found)}")
    return found
