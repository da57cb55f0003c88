"""Times on the command line: "24h" or "-5m" (ago), "14:02" (latest), "2026-11-20", "2026-11-20T14:02:31.5Z", "@1790000000"."""

import contextlib
import datetime as dt
import re

from gpuwatch.config import quantities
from gpuwatch.config.quantities import QuantityError
from gpuwatch.errors import UsageError

_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}(?:\.\d{1,6})?))?\Z", re.ASCII)


def wall_s(text: str, option: str, *, now_s: float) -> float:
    """Return a time in seconds since the epoch; times without a zone are local.

    Raises UsageError: for other text.
    """
    word = text.strip().replace("−", "-")
    with contextlib.suppress(QuantityError):
        if not word.replace(".", "", 1).isdecimal():  # "12" may be an hour, a day, or seconds
            return now_s - quantities.lapse_ns(word.removeprefix("-")) / 1e9
    try:
        return _moment_s(word, now_s)
    except (OverflowError, ValueError, OSError):  # also the first and last year, in other time zones
        expected = '"24h" or "-5m" (ago), "14:02", "2026-11-20 14:02:31" or "@1790000000"'
        raise UsageError(f"{option}: expected a time such as {expected}, found {text!r}") from None


def _moment_s(word: str, now_s: float) -> float:
    """Return a time in seconds since the epoch.  Raises ValueError, OverflowError, OSError: for other text, and beyond the calendar."""
    if word == "now":
        return now_s
    if word.startswith("@"):
        return float(word[1:])
    match = _CLOCK.match(word)
    if match is None:
        at = dt.datetime.fromisoformat(word)
        return (at if at.tzinfo else at.astimezone()).timestamp()
    today = dt.datetime.fromtimestamp(now_s, tz=dt.UTC).astimezone()
    second = float(match[3] or 0)
    at = today.replace(hour=int(match[1]), minute=int(match[2]), second=int(second), microsecond=0)
    # At 00:30, 23:50 means yesterday: measurements are in the past.
    if at > today + dt.timedelta(minutes=1):
        at -= dt.timedelta(days=1)
    return at.timestamp() + second % 1


def text(at_s: float, *, has_zone: bool = False) -> str:
    """Return local time to the second; ``has_zone`` adds the offset from UTC, for readers in other zones."""
    try:
        at = dt.datetime.fromtimestamp(int(at_s), tz=dt.UTC).astimezone()
    except (OverflowError, ValueError, OSError):  # beyond the calendar, as in a foreign file
        return f"@{at_s:g}"
    return at.isoformat(sep=" ") if has_zone else f"{at:%Y-%m-%d %H:%M:%S}"
