"""Tests of the GPU's share of a timed call, and of its text in every report."""

from __future__ import annotations

import pytest

from annotate.derived.launch_share import declared_share, launch_share
from annotate.evidence import Fact
from annotate.judge import judge
from annotate.output import report
from tests.annotate.builders import evidence
from tests.annotate.occurrences.timing import every

AHEAD: dict[str, Fact] = {"timer": "events", "timer_overhead_s": 0.4e-6, "issue_s": 6e-6, "starved_ratio": 0.0}


def test_hidden_launch_costs_only_the_timers_overhead() -> None:
    found = launch_share(13.5e-6, 0.4e-6, 1000, issue_s=23.6e-6, gap_s=5e-6)
    assert found.gpu_ratio == pytest.approx(1 - 0.4 / 13.5)
    assert str(found) == (
        "GPU's share 97 %: 400 ns of 13.5 µs is launch; 1000 calls, the host needs 23.6 µs to launch one; 5 µs between readings"
    )


@pytest.mark.parametrize(
    ("given", "launch_s"),
    [
        ({"starved_ratio": 1.0, "issue_s": 8e-6}, 8e-6),
        ({"starved_ratio": 0.5, "issue_s": 8e-6}, 4e-6),
        ({"starved_ratio": 1.0, "issue_s": 50e-6}, 20e-6),  # limited by the call
        ({"starved_ratio": 1.0, "issue_s": 8e-6, "waited_s": 3e-6}, 3e-6),  # limited by the GPU's wait
        ({"starved_ratio": 1.0, "issue_s": 8e-6, "waited_s": 0.0}, 1e-6),  # at least the timer's overhead
        ({}, 1e-6),
    ],
)
def test_starved_call_includes_its_launch_time(given: dict[str, float], launch_s: float) -> None:
    assert launch_share(20e-6, 1e-6, 10, **given).launch_s == pytest.approx(launch_s)


def test_call_without_a_certain_gpu_part_has_no_excess() -> None:
    found = launch_share(20e-6, 0.0, 10, starved_ratio=1.0, issue_s=30e-6)
    assert (found.gpu_ratio, found.excess_ratio) == (0.0, None)
    assert str(found).startswith("GPU's share at least 0 %")


def test_share_counts_the_calls_of_a_batch() -> None:
    """The timer's overhead is divided by the calls of a reading."""
    found = declared_share(evidence(declared=AHEAD, timings=every(420e-6, took_s=20e-6, length_s=2.0, calls_count=20)))
    assert found is not None
    assert found.launch_s == pytest.approx(0.02e-6)
    assert found.launches_count % 20 == 0
    assert found.gap_s == pytest.approx(20e-6)


@pytest.mark.parametrize("without", ["timer", "issue_s", "starved_ratio"])
def test_share_of_undeclared_launches_is_not_known(without: str) -> None:
    declared = {name: fact for name, fact in AHEAD.items() if name != without}
    assert declared_share(evidence(declared=declared, timings=every(24e-6, took_s=20e-6, length_s=2.0))) is None


def test_share_appears_in_every_form_of_a_verdict() -> None:
    about = evidence(declared=AHEAD, timings=every(210e-6, took_s=200e-6, length_s=3.0))
    verdict = judge(about)
    line = "GPU's share 99.8 %: 400 ns of 200 µs is launch"
    assert line in report.text(verdict)
    assert line in report.html([verdict]).replace("&#x27;", "'")
    assert "share 99.8 %: 400 ns of 200 µs is launch" in report.markdown(verdict)
    facts = verdict.to_dict()["findings"][[each.rule for each in verdict.findings].index("host-bound")]["facts"]
    assert facts["launches_count"] == pytest.approx(3.0 / 210e-6, abs=2)
    assert (facts["issue_s"], facts["gap_s"]) == (6e-6, pytest.approx(10e-6))
