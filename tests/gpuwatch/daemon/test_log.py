"""Tests of the daemon's log: repeated messages are counted, and one line of code logs a bounded number of messages."""

from __future__ import annotations

import io
import logging

import pytest

from gpuwatch.daemon.log import INTERVAL_S, PLACE_COUNT, Repeats

S = 1_000_000_000


class Log:
    """A separate logger behind the filter, with the test's clock."""

    def __init__(self, name: str) -> None:
        self.now_ns = 0
        self.stream = io.StringIO()
        handler = logging.StreamHandler(self.stream)
        handler.addFilter(Repeats(now_ns=lambda: self.now_ns))
        self.logger = logging.Logger(name, logging.DEBUG)
        self.logger.addHandler(handler)

    @property
    def lines(self) -> list[str]:
        return self.stream.getvalue().splitlines()


@pytest.fixture
def log(request: pytest.FixtureRequest) -> Log:
    return Log(request.node.name)


def test_repeated_message_is_logged_once_and_counted(log: Log) -> None:
    for _ in range(1000):
        log.logger.error("no descriptor is left: %s", 24)
    assert log.lines == ["no descriptor is left: 24"]
    log.now_ns = round(INTERVAL_S * S)
    for _ in range(5):
        log.logger.error("no descriptor is left: %s", 24)
    assert log.lines[1:] == ["no descriptor is left: 24 (999 similar messages suppressed)"]


def test_different_messages_are_all_logged(log: Log) -> None:
    log.logger.error("one")
    log.logger.error("two")
    log.logger.warning("one")
    assert log.lines == ["one", "two", "one"]


def test_one_line_of_code_with_many_messages_is_bounded(log: Log) -> None:
    for number in range(10_001):
        if number == 10_000:
            assert len(log.lines) == PLACE_COUNT
            log.now_ns = round(INTERVAL_S * S)
        log.logger.error("client %d went away", number)
    assert log.lines[PLACE_COUNT:] == [f"client 10000 went away ({10_000 - PLACE_COUNT} similar messages suppressed)"]


def test_debugging_shows_every_message(log: Log) -> None:
    for _ in range(100):
        log.logger.debug("the same")
    assert len(log.lines) == 100
