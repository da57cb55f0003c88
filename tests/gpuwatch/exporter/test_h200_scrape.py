"""Tests on a real page: a daemon of two H200s, scraped during a window around a GEMM on the first, under its cap.

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
    """Return the one sample with these labels."""
    (found,) = (
        sample.value
        for family in families.values()
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )
    return float(found)


def test_every_family_is_one_of_the_table(families: dict[str, Family]) -> None:
    known = {name.removesuffix("_total").removesuffix("_info") for name in METRICS}
    assert set(families) <= known
    of_gpus = {
        name.removesuffix("_total").removesuffix("_info")
        for name, metric in METRICS.items()
        if metric.labels[:1] == ("uuid",) and metric.of != RARE  # families added after this page
    }
    # Absent on a healthy pair of GPUs: processes were not requested, no Xid came, no clock was locked.
    assert len(of_gpus & set(families)) >= 0.8 * len(of_gpus)


def test_h200_page_shows_power_holding_the_busy_clock(families: dict[str, Family]) -> None:
    """The page shows power as the limit of the busy GPU's clock."""
    assert value(families, "gpuwatch_gpu_clock_event_active", gpu="0", reason="sw_power_cap") == 1
    assert value(families, "gpuwatch_gpu_clock_event_active", gpu="1", reason="sw_power_cap") == 0
    assert value(families, "gpuwatch_gpu_power_watts", gpu="0", kind="instant") > 600
    assert value(families, "gpuwatch_gpu_power_watts", gpu="1", kind="instant") < 100
    assert value(families, "gpuwatch_gpu_power_peak_watts", gpu="0") > 700
    capped_s = value(families, "gpuwatch_gpu_clock_event_seconds_total", gpu="0", reason="sw_power_cap", source="driver")
    assert capped_s > 8


def test_dips_between_two_scrapes_are_in_its_histogram(families: dict[str, Family]) -> None:
    low = value(families, "gpuwatch_gpu_clock_ratio_bucket", gpu="0", domain="sm", load="busy", le="0.8")
    all_of_them = value(families, "gpuwatch_gpu_clock_ratio_count", gpu="0", domain="sm", load="busy")
    assert 0.5 < low / all_of_them < 1


def test_it_was_made_in_time_and_simulates_nothing(families: dict[str, Family]) -> None:
    assert value(families, "gpuwatch_scrape_seconds_sum") < 0.02
    assert value(families, "gpuwatch_simulated") == 0
    assert value(families, "gpuwatch_up") == 1


def test_promtool_finds_nothing_to_say_of_it(families: dict[str, Family]) -> None:
    class Read:
        def collect(self) -> list[Family]:
            return list(families.values())

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Read())
    checked = subprocess.run(
        [program("promtool"), "check", "metrics"], input=generate_latest(registry), capture_output=True, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")
