"""Moments as text: parsing of a user's input, and formatting as wall time."""

import re
from datetime import UTC, datetime, timedelta

from gpuwatch import clock
from gpuwatch.config import quantities
from gpuwatch.config.quantities import QuantityError

_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}(?:\.\d{1,9})?))?\Z", re.ASCII)
EXPECTED = "14:02:31, -5m, -30s, 2026-11-20 14:02:31 or now"
EXPECTED_WITHOUT_WALL = "-5m (before the end), +12.5s (after the start) or end"


def time_of_day(at_ns: int, wall_offset_ns: int | None = None) -> str:
    """Format a moment as local wall time, with month and day if not today."""
    wall_s = clock.wall_s()
    ahead_s = wall_offset_ns / 1e9 if wall_offset_ns is not None else wall_s - clock.now_ns() / 1e9
    at = datetime.fromtimestamp(at_ns / 1e9 + ahead_s, tz=UTC).astimezone()
    today = datetime.fromtimestamp(wall_s, tz=UTC).astimezone().date()
    return at.strftime("%H:%M:%S" if at.date() == today else "%m-%d %H:%M:%S")


def moment_ns(text: str, *, begin_ns: int, now_ns: int, wall_offset_ns: int | None) -> int:
    """Parse a moment; ``wall_offset_ns`` plus the moment is wall time, None if unknown.

    Raises ValueError: with a one-line message, for any other text.
    """
    word = text.strip().replace("−", "-")
    if word.lower() in ("now", "end", "live"):
        return now_ns
    if word[:1] in ("-", "+"):
        try:
            length_ns = quantities.lapse_ns(word[1:])
        except QuantityError:
            raise _refused(text, wall_offset_ns) from None
        return now_ns - length_ns if word[0] == "-" else begin_ns + length_ns
    if wall_offset_ns is None:
        raise _refused(text, wall_offset_ns)
    today = datetime.fromtimestamp((now_ns + wall_offset_ns) / 1e9, tz=UTC).astimezone()
    try:
        if match := _CLOCK.match(word):
            second = float(match[3] or 0)
            at = today.replace(hour=int(match[1]), minute=int(match[2]), second=int(second), microsecond=0)
            if at > today:  # at half past midnight, 23:50 means yesterday
                at -= timedelta(days=1)
            at += timedelta(seconds=second % 1)
        else:
            at = datetime.fromisoformat(word)
            at = at if at.tzinfo else at.astimezone()
        return round(at.timestamp() * 1e9) - wall_offset_ns
    except (ValueError, OverflowError, OSError):
        raise _refused(text, wall_offset_ns) from None


def _refused(text: str, wall_offset_ns: int | None) -> ValueError:
    expected = EXPECTED if wall_offset_ns is not None else EXPECTED_WITHOUT_WALL
    return ValueError(f"expected {expected}, found {text!r}")
