"""The limits of evidence, checked when a file is read.

A damaged or hostile file then causes an error of one line, instead of an overflow or gigabytes of memory in a rule.
"""

from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt

from annotate.evidence import Times, Values, WindowRecord

FARTHEST_NS = 1 << 62  # 146 years: the difference of any two times fits in 64 bits
LONGEST_NS = 31 * 86_400_000_000_000  # longest window
NEAR_NS = 3_600_000_000_000  # farthest reading from the window; real ones are seconds away
LARGEST = float(1 << 64)  # largest value: a mask or a counter of 64 bits


def times(at_ns: Times, *, ascending: bool = True) -> Times:
    """Return times that are in range and, with ``ascending``, in order.

    Raises ValueError: for times beyond 146 years and, with ``ascending``, for times out of order.
    """
    if len(at_ns) and not (int(at_ns.min()) > -FARTHEST_NS and int(at_ns.max()) < FARTHEST_NS):
        raise ValueError("expected times within 146 years, found one beyond")
    if ascending and (at_ns[1:] < at_ns[:-1]).any():
        raise ValueError("expected times in order, found one earlier than the one before")
    return at_ns


def values(found: Values) -> Values:
    """Return readings within 64 bits; NaN means not observed.

    Raises ValueError: for larger or infinite ones.
    """
    if (np.abs(found) > LARGEST).any():
        raise ValueError(f"expected readings of at most {LARGEST:g}, found a larger one")
    return found


def as_times(found: npt.NDArray[Any]) -> Times:
    """Return numbers of any type as nanoseconds.

    Raises ValueError: for NaN and for times beyond 146 years.
    """
    if not (np.abs(np.asarray(found, np.float64)) < FARTHEST_NS).all():
        raise ValueError("expected times within 146 years, found one beyond")
    return found.astype(np.int64)


def window(found: WindowRecord) -> WindowRecord:
    """Return a valid window.

    Raises ValueError: when the window ends before it begins, is longer than 31 days or lies beyond 146 years.
    """
    if not -FARTHEST_NS < found.begin_ns <= found.end_ns < FARTHEST_NS:
        raise ValueError(f"expected a window that begins before it ends, found {found.begin_ns} to {found.end_ns}")
    if found.length_ns > LONGEST_NS:
        raise ValueError(f"expected a window of at most 31 days, found one of {found.length_s / 86_400:.0f}")
    return found


def near(at_ns: Times, of: WindowRecord) -> None:
    """Check that ascending times are near a window, because a rule may read the whole span.

    Raises ValueError: for times more than an hour before or after the window.
    """
    if len(at_ns) and not of.begin_ns - NEAR_NS <= int(at_ns[0]) <= int(at_ns[-1]) <= of.end_ns + NEAR_NS:
        raise ValueError("expected readings within an hour of their window, found some beyond")


def numbers(record: object) -> None:
    """Check the size of all numeric fields of a record.

    Raises ValueError: for NaN and for numbers beyond 64 bits.
    """
    for each in fields(record):  # type: ignore[arg-type]  # every record here is a dataclass
        found = getattr(record, each.name)
        if isinstance(found, int | float) and not abs(found) <= LARGEST:
            raise ValueError(f"{each.name}: expected a number of at most 64 bits, found {found:.3g}")


def amounts(record: object) -> None:
    """Check that each field of a record is None or a number of zero or more.

    Raises ValueError: for NaN, for numbers beyond 64 bits, and for negative ones.
    """
    numbers(record)
    for each in fields(record):  # type: ignore[arg-type]  # every record here is a dataclass
        found = getattr(record, each.name)
        if found is not None and found < 0:
            raise ValueError(f"{each.name}: expected an amount of 0 or more, found {found:.3g}")


def refresh(name: str, period_ns: int) -> int:
    """Return a plausible refresh period.

    Raises ValueError: for a period below 0.1 ms or above 31 days.
    """
    if not 100_000 <= period_ns <= LONGEST_NS:
        raise ValueError(f"{name}: expected a refresh period of 0.1 ms to 31 days, found {period_ns} ns")
    return period_ns
