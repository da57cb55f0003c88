"""Tests of times on the command line."""

from __future__ import annotations

import datetime as dt

import pytest

from gpuwatch.cli import times
from gpuwatch.errors import UsageError

NOW = dt.datetime(2026, 11, 21, 0, 30, 0).astimezone()


def at(text: str) -> dt.datetime:
    """Return the time that a text means at ``NOW``."""
    return dt.datetime.fromtimestamp(times.wall_s(text, "--from", now_s=NOW.timestamp()), tz=NOW.tzinfo)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", NOW),
        ("24h", NOW - dt.timedelta(days=1)),
        ("90 s", NOW - dt.timedelta(seconds=90)),
        ("-5m", NOW - dt.timedelta(minutes=5)),
        ("−1.5h", NOW - dt.timedelta(minutes=90)),
        ("-30", NOW - dt.timedelta(seconds=30)),
        ("00:10", NOW.replace(minute=10)),
        ("23:50", NOW.replace(day=20, hour=23, minute=50)),
        ("0:10:05.5", NOW.replace(minute=10, second=5, microsecond=500_000)),
        ("2026-11-20", NOW.replace(day=20, hour=0, minute=0)),
        ("2026-11-20 14:02:31", NOW.replace(day=20, hour=14, minute=2, second=31)),
        ("2026-11-20T14:02:31Z", dt.datetime(2026, 11, 20, 14, 2, 31, tzinfo=dt.UTC)),
        ("@1790000000.5", dt.datetime.fromtimestamp(1790000000.5, tz=dt.UTC)),
    ],
)
def test_wall_s_reads_every_form_of_a_time(text: str, expected: dt.datetime) -> None:
    assert at(text) == expected


@pytest.mark.parametrize(
    "text", ["", "yesterday", "25:00", "14:61", "2026-13-01", "@noon", "12", "1.5", "-", "--5m", "14:02 tomorrow"]
)
def test_wall_s_refuses_other_text_with_the_option(text: str) -> None:
    with pytest.raises(UsageError, match="--from: expected a time") as caught:
        at(text)
    assert repr(text) in str(caught.value)
