"""Tests of gpuwatch run with a stated clock, period and variation."""

from __future__ import annotations

import pytest

from gpuwatch.config.settings import Settings
from gpuwatch.store import Reader
from tests.gpuwatch.cli.test_run import run


def test_run_stores_and_prints_the_stated_claim(daemon: Settings) -> None:
    stated = ("--claim", "fixed-clock", "--locked-mhz", "1500", "--every", "20ms", "--varies")
    ended = run("--name", "stated", *stated, "--", "sleep", "0.3", settings=daemon)
    assert ended.returncode == 0
    assert "stated: clock locked at 1500 MHz, one call every 20 ms, times vary by design" in ended.stderr
    with Reader(daemon.state) as reader:
        (kept,) = reader.runs(label="stated")
    assert {name: kept.declared[name] for name in ("locked_mhz", "every_s", "varies")} == {
        "locked_mhz": 1500.0,
        "every_s": 0.02,
        "varies": True,
    }


@pytest.mark.parametrize(
    ("option", "says"),
    [
        (("--locked-mhz", "-3"), "--locked-mhz: expected the SM clock in MHz"),
        (("--every", "often"), "--every: expected a duration with its unit"),
        (("--every", "0s"), "--every: expected seconds"),
    ],
)
def test_run_refuses_a_bad_stated_claim_without_traceback(option: tuple[str, str], says: str) -> None:
    ended = run(*option, "--", "true")
    assert ended.returncode == 125
    assert says in " ".join(ended.stderr.split())
    assert "Traceback" not in ended.stderr
