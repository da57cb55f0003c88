"""Tests of a recorded page: two H200s, scraped during a window with a power-capped GEMM on the first.

2026-11-22, driver 580.159.04; the identities of the cards are masked.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from gpuwatch.exporter.metrics import METRICS, RARE
from tests.gpuwatch.programs import program

PAGE = Path(__file__).parents[2] / "traces" / "h200-scrape.om"


@pytest.fixture(scope="module")
def families() -> dict[str, Family]:
    found = text_string_to_metric_families(PAGE.read_text())  # type: ignore[no-untyped-call]
    return {family.name: family for family in found}


def value(families: dict[str, Family], name: str, **labels: str) -> float:
    """Return the value of the only sample with this name and these labels."""
    (found,) = (
        sample.value
        for family in families.values()
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )
    return float(found)


def test_h200_page_has_only_families_of_the_table(families: dict[str, Family]) -> None:
    """The table has every family of the page; the page has at least 80 % of the table's GPU families except rare readings."""
    known = {name.removesuffix("_total").removesuffix("_info") for name in METRICS}
    assert set(families) <= known
    of_gpus = {
        name.removesuffix("_total").removesuffix("_info")
        for name, metric in METRICS.items()
        if metric.labels[:1] == ("uuid",) and metric.of != RARE  # rare readings were added after this page
    }
    # Absent are processes (not requested), Xids (their counts did not start at zero when the page was recorded) and canaries.
    assert len(of_gpus & set(families)) >= 0.8 * len(of_gpus)


def test_h200_page_shows_the_busy_gpu_power_capped(families: dict[str, Family]) -> None:
    """Only the busy GPU has over 600 W and the reason ``sw_power_cap``; the driver counts over 8 s under this reason."""
    assert value(families, "gpuwatch_gpu_clock_event_active", gpu="0", reason="sw_power_cap") == 1
    assert value(families, "gpuwatch_gpu_clock_event_active", gpu="1", reason="sw_power_cap") == 0
    assert value(families, "gpuwatch_gpu_power_watts", gpu="0", kind="instant") > 600
    assert value(families, "gpuwatch_gpu_power_watts", gpu="1", kind="instant") < 100
    assert value(families, "gpuwatch_gpu_power_peak_watts", gpu="0") > 700
    capped_s = value(families, "gpuwatch_gpu_clock_event_seconds_total", gpu="0", reason="sw_power_cap", source="driver")
    assert capped_s > 8


def test_h200_page_histogram_has_low_clocks(families: dict[str, Family]) -> None:
    low = value(families, "gpuwatch_gpu_clock_ratio_bucket", gpu="0", domain="sm", load="busy", le="0.8")
    all_of_them = value(families, "gpuwatch_gpu_clock_ratio_count", gpu="0", domain="sm", load="busy")
    assert 0.5 < low / all_of_them < 1


def test_h200_page_before_was_made_within_20_ms(families: dict[str, Family]) -> None:
    """The page before this page was made within 20 ms; the GPUs of this page are real, and at least one answers."""
    assert value(families, "gpuwatch_scrape_seconds_sum") < 0.02
    assert value(families, "gpuwatch_simulated") == 0
    assert value(families, "gpuwatch_up") == 1


def test_h200_page_passes_promtool(families: dict[str, Family]) -> None:
    class Read:
        def collect(self) -> list[Family]:
            return list(families.values())

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Read())
    checked = subprocess.run(
        [program("promtool"), "check", "metrics"], input=generate_latest(registry), capture_output=True, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")
