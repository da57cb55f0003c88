"""Windows meant to fool the judge: their true deviations and their verdicts."""

from __future__ import annotations

import pytest

from tests.proof.fooling import ENTRIES, Tried, tried
from tests.proof.fooling_first import FOOLED_AT_FIRST
from tests.proof.fooling_table import Entry


def _name(entry: Entry) -> str:
    return entry.name


@pytest.fixture(scope="module", params=ENTRIES, ids=_name)
def found(request: pytest.FixtureRequest) -> Tried:
    """Return one window, made and judged once for all its tests."""
    entry: Entry = request.param
    return tried(entry)


def test_fooling_windows_have_unique_names() -> None:
    names = [entry.name for entry in ENTRIES]
    assert len(set(names)) == len(names)
    assert sum(not entry.honest for entry in ENTRIES) >= 28
    assert sum(entry.honest for entry in ENTRIES) >= 12


def test_fooling_window_deviates_as_declared(found: Tried) -> None:
    """An honest window deviates by less than 0.3 %; any other deviates by more than 2 % in a number, or has no comparable one."""
    entry, attempt = found.entry, found.attempt
    assert len(attempt.evidence.trace.columns) > 3
    largest = max((abs(each) for each in attempt.truth.values()), default=1.0)
    assert largest < 0.003 if entry.honest else largest > 0.02
    assert set(entry.covers) <= set(attempt.truth)


def test_verdict_is_acceptable_unless_a_limit_is_known(found: Tried) -> None:
    """A verdict is unacceptable exactly if its entry has a limit, so a fix must remove the limit."""
    assert found.is_acceptable is not bool(found.entry.limit), str(found.verdict)


def test_fooled_at_first_lists_existing_windows() -> None:
    """25 windows that are off and 4 honest windows had an unacceptable verdict at first."""
    fooled = [entry for entry in ENTRIES if entry.name in FOOLED_AT_FIRST]
    assert {entry.name for entry in fooled} == FOOLED_AT_FIRST
    assert [sum(entry.honest is honest for entry in fooled) for honest in (False, True)] == [25, 4]
