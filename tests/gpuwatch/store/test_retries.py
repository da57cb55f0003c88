"""Tests of the policy for failed writes, with SQLite's errors."""

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


def test_a_full_disk_is_given_room_until_the_write_fits() -> None:
    tried = attempts(segments_count=2)
    assert tried.succeeds(failing(FULL, FULL))
    assert (tried.failure, tried.refused) == (None, None)


def test_a_full_disk_without_anything_to_drop_refuses(caplog: pytest.LogCaptureFixture) -> None:
    tried = attempts(segments_count=1)
    assert not tried.succeeds(failing(FULL, FULL))
    assert tried.failure is Failure.FULL
    assert str(FULL) in str(tried.refused)
    assert not tried.succeeds(failing(BUSY))
    assert [record.levelno for record in caplog.records] == [logging.ERROR], "it is said once, however often it is tried"


@pytest.mark.parametrize("error", [BUSY, MemoryError(), OSError(24, "Too many open files"), StoreError("another writes here")])
def test_what_passes_is_to_be_tried_again(error: BaseException) -> None:
    tried = attempts()
    assert not tried.succeeds(failing(error))
    assert tried.failure is Failure.PASSING
    assert str(error) in str(tried.refused)


def test_a_value_that_cannot_be_stored_never_will_be() -> None:
    tried = attempts()
    assert not tried.succeeds(failing(OverflowError("Python int too large to convert to SQLite INTEGER")))
    assert tried.failure is Failure.VALUE
    assert tried.refused is None, "the next value may be stored"


def test_what_a_torn_file_did_not_take_waits_for_the_new_one() -> None:
    for replaced, failure in ((True, Failure.PASSING), (False, Failure.VALUE)):
        tried = attempts(torn=replaced)
        assert not tried.succeeds(failing(TORN))
        assert tried.failure is failure


def test_an_error_of_ours_is_not_taken_for_the_disks() -> None:
    with pytest.raises(AssertionError):
        attempts().succeeds(failing(AssertionError()))


def test_once_all_is_stored_nothing_stands_in_the_way() -> None:
    tried = attempts()
    assert not tried.succeeds(failing(BUSY))
    tried.all_stored()
    assert (tried.failure, tried.refused) == (None, None)
