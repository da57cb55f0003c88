"""Tests of the policy for failed writes."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable

import pytest

from gpuwatch.errors import StoreError
from gpuwatch.store.retries import Failure, Retries


def sqlite_error(code: int) -> sqlite3.Error:
    error = sqlite3.OperationalError("as SQLite says it")
    error.sqlite_errorcode = code
    return error


FULL, BUSY, TORN = map(sqlite_error, (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_CORRUPT))


def failing(*errors: BaseException) -> Callable[[], None]:
    """Return work that fails with these errors in turn, and then succeeds."""
    left = list(errors)

    def work() -> None:
        if left:
            raise left.pop(0)

    return work


def attempts(*, segments_count: int = 0, torn: bool = False) -> Retries:
    left = [True] * segments_count
    return Retries(make_room=lambda: bool(left and left.pop()), replace=lambda why: torn)


def test_full_disk_gets_room_until_the_write_succeeds() -> None:
    tried = attempts(segments_count=2)
    assert tried.succeeds(failing(FULL, FULL))
    assert (tried.failure, tried.refused) == (None, None)


def test_full_disk_without_segments_refuses_the_write(caplog: pytest.LogCaptureFixture) -> None:
    tried = attempts(segments_count=1)
    assert not tried.succeeds(failing(FULL, FULL))
    assert tried.failure is Failure.FULL
    assert str(FULL) in str(tried.refused)
    assert not tried.succeeds(failing(BUSY))
    assert [record.levelno for record in caplog.records] == [logging.ERROR], (
        "a refusal is logged once, even if the write is retried"
    )


@pytest.mark.parametrize("error", [BUSY, MemoryError(), OSError(24, "Too many open files"), StoreError("another writes here")])
def test_passing_error_may_be_retried(error: BaseException) -> None:
    tried = attempts()
    assert not tried.succeeds(failing(error))
    assert tried.failure is Failure.PASSING
    assert str(error) in str(tried.refused)


def test_invalid_value_is_not_retried() -> None:
    tried = attempts()
    assert not tried.succeeds(failing(OverflowError("Python int too large to convert to SQLite INTEGER")))
    assert tried.failure is Failure.VALUE
    assert tried.refused is None, "the next value may be stored"


def test_torn_file_is_retried_only_if_replaced() -> None:
    for replaced, failure in ((True, Failure.PASSING), (False, Failure.VALUE)):
        tried = attempts(torn=replaced)
        assert not tried.succeeds(failing(TORN))
        assert tried.failure is failure


def test_programming_error_is_raised() -> None:
    with pytest.raises(AssertionError):
        attempts().succeeds(failing(AssertionError()))


def test_complete_commit_clears_the_failure() -> None:
    tried = attempts()
    assert not tried.succeeds(failing(BUSY))
    tried.all_stored()
    assert (tried.failure, tried.refused) == (None, None)
