"""Tests of moments typed by users."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.tui.text.time_text import moment_ns

S = 1_000_000_000
NOON = datetime(2026, 11, 20, 12, 0, 0).astimezone()
OFFSET_NS = 1_700_000_000 * S
NOW_NS = round(NOON.timestamp()) * S - OFFSET_NS


def moment(text: str, *, wall: bool = True) -> float:
    """Return a moment in seconds from now."""
    found = moment_ns(text, begin_ns=NOW_NS - 600 * S, now_ns=NOW_NS, wall_offset_ns=OFFSET_NS if wall else None)
    return (found - NOW_NS) / S


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("-5m", -300), ("-5min", -300), ("-90", -90), ("-1.5s", -1.5), ("−30s", -30), ("-2h", -7200), ("+12.5s", -587.5),
        ("11:59:30", -30), ("11:59", -60), ("11:59:30.25", -29.75), ("12:00:30", 30 - 86_400), ("2026-11-20 11:00:00", -3600),
        ("2026-11-19T12:00", -86_400), (f"{NOON.isoformat()}", 0), ("now", 0), (" live ", 0),
    ],
)  # fmt: skip
def test_typed_moment_is_read(text: str, seconds: float) -> None:
    assert moment(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "yesterday", "-", "-5 parsecs", "25:00", "12:61", "1e9", "99999999999-01-01", "--5m", "5m"]
)
def test_bad_moment_error_names_the_expected_forms(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected 14:02:31, -5m, .* found"):
        moment(text)


def test_recording_without_wall_time_refuses_times_of_day() -> None:
    assert moment("+1m", wall=False) == -540
    assert moment("end", wall=False) == 0
    with pytest.raises(ValueError, match="after the start"):
        moment("11:59", wall=False)


@given(st.text(max_size=20))
def test_any_text_is_a_moment_or_a_one_line_error(text: str) -> None:
    message = ""
    try:
        moment(text)
    except ValueError as error:
        message = str(error)
    assert "\n" not in message
