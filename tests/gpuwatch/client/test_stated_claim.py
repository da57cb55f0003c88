"""Tests of the stated parts of a claim: checked, stored with the window, and printed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import gpuwatch
from gpuwatch.client.stated_claim import describe
from gpuwatch.config.settings import Settings
from gpuwatch.errors import UsageError
from gpuwatch.store import Reader
from tests.gpuwatch.live import running
from tests.waiting import let_pass


@pytest.fixture(scope="module")
def copying(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Run a daemon on a simulated GPU that copies without end."""
    with running(tmp_path_factory.mktemp("stated")) as daemon:
        yield daemon.settings


def declared(window: gpuwatch.Window, settings: Settings) -> dict[str, Any]:
    assert window.verdict
    with Reader(settings.state) as reader:
        told = reader.run(window.run_id or "").declared
    return {name: told[name] for name in ("locked_mhz", "every_s", "varies") if name in told}


def test_stated_parts_are_declared_facts(copying: Settings) -> None:
    stated: dict[str, Any] = {"locked_mhz": 1500, "every": 0.02, "varies": True}
    with gpuwatch.window("stated", claim="fixed-clock", settings=copying, **stated) as w:
        let_pass(0.1, "the body takes this time")
    facts = {"locked_mhz": 1500.0, "every_s": 0.02, "varies": True}
    assert declared(w, copying) == facts
    assert w.stated == facts
    assert describe(facts) == "clock locked at 1500 MHz, one call every 20 ms, times vary by design"


def test_nothing_is_stated_by_default(copying: Settings) -> None:
    with gpuwatch.window(settings=copying) as w:
        let_pass(0.1, "the body takes this time")
    assert declared(w, copying) == {}
    assert describe(w.stated) == ""


def test_decorator_states_the_parts_in_each_window(copying: Settings) -> None:
    @gpuwatch.window(every=0.5, settings=copying)
    def work() -> None:
        let_pass(0.05, "the body takes this time")

    work()
    assert work.window.stated == {"every_s": 0.5}  # type: ignore[attr-defined]  # functions take attributes


@pytest.mark.parametrize(
    ("stated", "says"),
    [
        ({"locked_mhz": 0}, "locked_mhz: expected the SM clock in MHz"),
        ({"locked_mhz": "1500"}, "locked_mhz: expected the SM clock in MHz"),
        ({"locked_mhz": 1.5e9}, "locked_mhz: expected the SM clock in MHz"),
        ({"locked_mhz": float("nan")}, "locked_mhz: expected the SM clock in MHz"),
        ({"locked_mhz": 10**400}, "locked_mhz: expected the SM clock in MHz"),
        ({"every": -1}, "every: expected seconds"),
        ({"every": True}, "every: expected seconds"),
        ({"varies": "yes"}, "varies: expected True or False"),
    ],
)
def test_wrong_parts_are_refused_in_one_line(stated: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        gpuwatch.window(**stated)
    assert "\n" not in str(caught.value)


def test_declared_parts_are_checked(copying: Settings) -> None:
    with gpuwatch.window(settings=copying) as w:
        with pytest.raises(UsageError, match="locked_mhz: expected"):
            w.declare(locked_mhz=-5)
        w.declare(varies=True)
    assert declared(w, copying) == {"varies": True}
