"""Tests of the rules about times on kernels recorded on a real H200: the findings of clean and of disturbed recordings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from annotate.budget import PRINTED_RATIO, Number
from annotate.claims import Claim
from annotate.evidence import Evidence, Timings, WindowRecord
from annotate.rule import Clear, Found, Severity
from annotate.rules import numbers, shape, warmup
from gpuwatch.sources.recordings import load

TRACES = Path(__file__).parents[1] / "traces"
TOLERANCE_RATIO = 0.01
RULES = (*warmup.RULES, *numbers.RULES, *shape.RULES)

# Findings worse than a note in the whole of each recording.
SPOILT = {
    "cold_start_gemm4k": {"cold-start"},
    "gpu_contention_gemm4k": {"outliers"},
    "burst_contention_gemm4k": set(),  # late iterations add 0.8 %, 13 turns of 2.3 ms among them: a note
    "cpu_contention_gemm4k": {
        "outliers",
        "bimodal",
    },  # the slower of the two speeds changes the mean, not the median
    "per_iteration_gemm16k": set(),  # three seconds from idle: telemetry shows the cap's onset
}
NOTED = {
    "clean_gemm2k": {"mean-vs-median-gap", "bimodal"},  # launch jitter of 20 µs calls is not an outlier
    "clean_gemm4k": set(),
    "power_cap_gemm16k": {"bimodal"},
    "natural_gemm16k_bf16": set(),
    "clean_copy1g": set(),
    "zeros_gemm16k": set(),
    "sleep100_gemm16k": set(),
}
# Recordings without a whole second of idle time, a neighbour or a lack of CPUs.  A scenario may start from idle.
CLEAN = (
    "clean_gemm2k", "clean_gemm4k", "power_cap_gemm16k", "zeros_gemm16k", "clean_copy1g", "warm_l2_gemv4k", "cold_l2_gemv4k",
    "natural_gemm4k_bf16", "natural_gemm16k_bf16", "natural_conv3x3", "natural_attention",
)  # fmt: skip


@cache
def recorded() -> dict[str, Evidence]:
    scenarios = {str(each.window.label): each for each in load(TRACES / "scenarios.npz") if each.timings is not None}
    for path in sorted([*TRACES.glob("natural_*.npz"), *TRACES.glob("per_iteration_*.npz")]):
        file = np.load(path)
        at_ns = file["t_ns"] if "t_ns" in file.files else np.round((file["t_s"] - file["t_s"][0]) * 1e9).astype(np.int64)
        timings = Timings(at_ns, file["ms"].astype(np.float64) * 1e-3, file["mhz"].astype(np.float64))
        window = WindowRecord(begin_ns=int(at_ns[0]), end_ns=int(at_ns[-1]) + 1, label=path.stem)
        scenarios[path.stem] = Evidence(window=window, timings=timings)
    return {name: each for name, each in scenarios.items() if each.timings is not None and len(each.timings.took_s)}


def found(about: Evidence) -> dict[str, Severity]:
    answers = {rule.name: rule.ask(about, Claim.SUSTAINED) for rule in RULES}
    return {name: made_of(answer) for name, answer in answers.items() if isinstance(answer, Found) and is_printed(answer)}


def is_printed(answer: Found) -> bool:
    """Return False for a hazard whose bounds are all below a tenth of the tolerance."""
    return not answer.bounds or max(bound.size_ratio for bound in answer.bounds) >= PRINTED_RATIO * TOLERANCE_RATIO


def made_of(answer: Found) -> Severity:
    """Return a finding's severity in a sustained verdict: by its bounds of the claimed numbers, if it has bounds."""
    if not answer.bounds:
        return answer.severity
    claimed = [bound.size_ratio for bound in answer.bounds if bound.number in (Number.THROUGHPUT, Number.MEAN)]
    return Severity.FLAG if max(claimed, default=0.0) > TOLERANCE_RATIO else Severity.NOTE


def sliding(about: Evidence, *, least_s: float) -> Iterator[Evidence]:
    """Yield windows of 2, 3, 4 and 6 s from ``least_s`` on, each starting a third of its length after the previous window."""
    begin_ns, end_ns = about.window.begin_ns, about.window.end_ns
    for length_s in (2.0, 3.0, 4.0, 6.0):
        length_ns = int(length_s * 1e9)
        if length_s >= least_s:
            for start_ns in range(begin_ns, end_ns - length_ns + 100_000_000, length_ns // 3):
                yield about.part(start_ns, start_ns + length_ns)


@pytest.mark.parametrize("name", sorted(recorded()))
def test_recording_is_flagged_only_for_its_hazards(name: str) -> None:
    """The findings above a note are exactly those of the recording's hazards."""
    worse = {rule for rule, severity in found(recorded()[name]).items() if severity is not Severity.NOTE}
    assert worse == SPOILT.get(name, set())


@pytest.mark.parametrize("name", sorted(NOTED))
def test_recording_has_the_expected_findings(name: str) -> None:
    assert set(found(recorded()[name])) == NOTED[name]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("gpu_contention_gemm4k", "time-slice"),
        ("burst_contention_gemm4k", "time-slice"),
        ("cpu_contention_gemm4k", "host"),
    ],
)
def test_pattern_of_outliers_shows_the_interruption(name: str, kind: str) -> None:
    answer = shape.outliers.ask(recorded()[name], Claim.SUSTAINED)
    assert isinstance(answer, Found)
    assert answer.facts["kind"] == kind


def test_capped_gemm_has_one_speed_at_one_clock() -> None:
    assert isinstance(shape.bimodal.ask(recorded()["natural_gemm16k_bf16"], Claim.SUSTAINED), Clear)


def test_clean_window_of_three_seconds_is_only_noted() -> None:
    """No clean window of three seconds or more has a finding above a note."""
    alarms: Counter[tuple[str, str]] = Counter()
    windows = 0
    for name in CLEAN:
        for about in sliding(recorded()[name], least_s=3.0):
            windows += 1
            alarms.update((name, rule) for rule, severity in found(about).items() if severity is not Severity.NOTE)
    assert windows >= 60
    assert not alarms


def test_most_windows_with_a_bursty_neighbour_show_time_slices() -> None:
    answers = [shape.outliers.ask(w, Claim.SUSTAINED) for w in sliding(recorded()["burst_contention_gemm4k"], least_s=2.0)]
    shown = [isinstance(answer, Found) and answer.facts["kind"] == "time-slice" for answer in answers]
    assert sum(shown) >= 0.9 * len(shown)


def test_window_short_of_cpus_has_both_findings() -> None:
    for about in sliding(recorded()["cpu_contention_gemm4k"], least_s=2.0):
        assert {"outliers", "mean-vs-median-gap"} <= set(found(about))
