"""Tests of the metrics page's series: known values only, and no driver call."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics

from annotate.evidence import Device
from annotate.rules import RULES
from annotate.verdict import Status
from gpuwatch.clock import VirtualClock
from gpuwatch.exporter.collector import Collector, DaemonFigures
from gpuwatch.exporter.counters import KNOWN_XIDS, LOADS, OTHER_XID
from gpuwatch.exporter.gpu_series import LEAST_STALE_NS
from gpuwatch.exporter.metrics import METRICS, RATIO_BUCKETS, MetricKind
from gpuwatch.sources.simulated import SCENES
from gpuwatch.sources.simulated.scenes import Fault, Mishap
from tests.gpuwatch.exporter.fleet import STORE, Fleet, Series, names, of, openmetrics_names, series


@pytest.fixture(scope="module")
def quartet() -> Fleet:
    fleet = Fleet("quartet", processes_count=1)
    fleet.play(4)
    return fleet


def test_scrape_makes_no_driver_call(quartet: Fleet) -> None:
    before = quartet.source.calls.copy()
    for _ in range(5):
        quartet.text()
    assert quartet.source.calls == before
    assert before["read"] > 100


def test_page_has_only_series_of_the_table(quartet: Fleet) -> None:
    """The metrics table lists every series of the page, with its labels and their allowed values."""
    ending = re.compile("_(bucket|count|sum)$")
    for name, has in quartet.scrape():
        bare = name if name in METRICS else ending.sub("", name)
        metric = METRICS[bare]
        labels = dict(has)
        assert set(labels) - {"le"} == set(metric.labels), name
        for label, values in metric.values.items():
            assert labels[label] in values or (label == "reason" and labels[label].startswith("unknown_bit_")), name


def test_page_shows_a_capped_gpu_in_base_units(quartet: Fleet) -> None:
    found, uuid = quartet.scrape(), quartet.uuids[0]
    device = quartet.machine.devices[0]
    assert device.sm_clock_max_mhz is not None
    said = quartet.tallies.of(uuid)
    assert said is not None
    assert said.fast is not None
    assert said.fast.sm_clock_mhz is not None
    assert of(found, "gpuwatch_gpu_clock_hertz", uuid=uuid, domain="sm") == said.fast.sm_clock_mhz * 1e6
    assert of(found, "gpuwatch_gpu_clock_limit_hertz", uuid=uuid, domain="sm", kind="max") == device.sm_clock_max_mhz * 1e6
    assert of(found, "gpuwatch_gpu_power_limit_watts", uuid=uuid, kind="enforced") == 700
    assert of(found, "gpuwatch_gpu_clock_event_active", uuid=uuid, reason="sw_power_cap") == 1
    assert of(found, "gpuwatch_gpu_clock_event_seconds_total", uuid=uuid, reason="sw_power_cap", source="driver")
    assert of(found, "gpuwatch_gpu_utilization_ratio", uuid=uuid, unit="gpu") == pytest.approx(1, abs=0.05)
    assert of(found, "gpuwatch_device_info", uuid=uuid, gpu="0", name="SIMULATED NVIDIA H200") == 1
    assert of(found, "gpuwatch_simulated") == 1


def test_page_has_no_nan_sentinel_or_invalid_ratio(quartet: Fleet) -> None:
    for (name, has), value in quartet.scrape().items():
        assert value == value, name
        assert abs(value) < 1e15, name
        if name.endswith("_ratio"):
            assert 0 <= value <= 1.2, (name, has)


def test_page_histograms_count_every_sample(quartet: Fleet) -> None:
    """Clock histograms are cumulative and count every fast row; the SM clock's histogram also counts every pulse."""
    found, uuid = quartet.scrape(), quartet.uuids[0]
    counts = [
        of(found, "gpuwatch_gpu_clock_ratio_bucket", uuid=uuid, domain="memory", load="busy", le=le)
        for le in (*map(str, RATIO_BUCKETS), "+Inf")
    ]
    assert counts == sorted(counts, key=lambda count: count or 0)
    by_load = [
        of(found, "gpuwatch_gpu_clock_ratio_count", uuid=uuid, domain="memory", load=load) or 0
        for load in ("busy", "idle", "unknown")
    ]
    assert sum(by_load) == of(found, "gpuwatch_samples_total", uuid=uuid, lane="fast")
    of_sm = [of(found, "gpuwatch_gpu_clock_ratio_count", uuid=uuid, domain="sm", load=load) or 0 for load in LOADS]
    pulses_count = of(found, "gpuwatch_samples_total", uuid=uuid, lane="pulse")
    assert pulses_count is not None
    assert sum(of_sm) == sum(by_load) + pulses_count
    assert pulses_count > 3 * sum(by_load)


def test_page_histogram_has_a_dip_between_two_scrapes() -> None:
    fleet = Fleet("mem-clock")
    fleet.play(4.5)
    before = fleet.scrape()
    fleet.play(3)
    after = fleet.scrape()
    dipped = "gpuwatch_gpu_clock_ratio_bucket"
    assert of(before, dipped, domain="memory", load="busy", le="0.8") == 0
    assert (of(after, dipped, domain="memory", load="busy", le="0.8") or 0) > 15
    assert of(after, "gpuwatch_gpu_clock_hertz", domain="memory") == 3201e6


def test_page_has_no_series_for_an_unsupported_field() -> None:
    """A field that the GPU does not support has no series, and the page marks the field as unsupported."""
    fleet = Fleet("steady-gemm", unsupported=frozenset({"energy_j", "memory_temperature_c", "power_cap_ns"}))
    fleet.play(2)
    found, uuid = fleet.scrape(), fleet.uuids[0]
    assert of(found, "gpuwatch_gpu_energy_joules_total", uuid=uuid) is None
    assert of(found, "gpuwatch_gpu_temperature_celsius", sensor="memory", uuid=uuid) is None
    assert of(found, "gpuwatch_gpu_temperature_celsius", sensor="core", uuid=uuid)
    assert of(found, "gpuwatch_gpu_field_supported", field="energy_j", uuid=uuid) == 0
    # Without the driver's counter the exporter sums samples, and the label ``source`` is ``sampled``.
    assert of(found, "gpuwatch_gpu_clock_event_seconds_total", reason="sw_power_cap", source="driver") is None
    sampled = of(found, "gpuwatch_gpu_clock_event_seconds_total", reason="sw_power_cap", source="sampled")
    assert sampled == pytest.approx(1.8, abs=0.2)


def test_page_drops_readings_of_a_lost_gpu_and_keeps_counts() -> None:
    fleet = Fleet("gpu-lost,steady-copy")
    fleet.play(4)
    lost, other = fleet.uuids
    there = fleet.scrape()
    fleet.play(2)
    fleet.report_event(lost, "xid", 79)
    gone = fleet.scrape()
    assert of(gone, "gpuwatch_gpu_up", uuid=lost) == 0
    assert of(gone, "gpuwatch_gpus", state="lost") == 1
    assert of(gone, "gpuwatch_up") == 1
    assert names(gone, uuid=lost) == {
        "gpuwatch_device_info", "gpuwatch_gpu_up", "gpuwatch_gpu_field_supported", "gpuwatch_sampling_period_seconds",
        "gpuwatch_reading_age_seconds", "gpuwatch_samples_total", "gpuwatch_samples_missed_total", "gpuwatch_losses_total",
        "gpuwatch_sampling_call_seconds_total", "gpuwatch_gpu_xid_errors_total", "gpuwatch_gpu_xid_last_timestamp_seconds",
        *(name for name in names(there) if name.startswith("gpuwatch_sample_lateness_seconds")),
    }  # fmt: skip
    assert (of(gone, "gpuwatch_reading_age_seconds", uuid=lost, lane="fast") or 0) > 0.8
    assert of(gone, "gpuwatch_losses_total", uuid=lost, lane="fast") == 1
    assert of(gone, "gpuwatch_gpu_xid_errors_total", uuid=lost, xid="79") == 1
    assert names(gone, uuid=other) >= names(there, uuid=lost) - names(gone, uuid=lost)


def test_page_counters_do_not_decrease_across_a_loss() -> None:
    fleet = Fleet("gpu-lost")
    last: Series = {}
    for _ in range(24):
        fleet.play(0.5)
        found = fleet.scrape()
        for key, value in found.items():
            metric = METRICS.get(key[0])
            counts = metric.kind is MetricKind.COUNTER if metric else not key[0].endswith("_sum")
            if counts:
                assert value >= last.get(key, 0), key
                last[key] = value
    assert of(found, "gpuwatch_gpu_up") == 1
    assert (of(found, "gpuwatch_losses_total", lane="fast") or 0) >= 1


DRIVERS = {"energy_j": 900.0, "ecc_uncorrected_count": 2, "power_brake_ns": 60 * 10**9, "pcie_replay_count": 4}


def counted(found: Series) -> tuple[float | None, ...]:
    """Return four of the driver's counters on a page, in the order of ``DRIVERS``."""
    return (
        of(found, "gpuwatch_gpu_energy_joules_total"),
        of(found, "gpuwatch_gpu_ecc_errors_total", kind="uncorrected"),
        of(found, "gpuwatch_gpu_clock_event_seconds_total", reason="hw_power_brake_slowdown", source="driver"),
        of(found, "gpuwatch_gpu_pcie_replays_total"),
    )


def count(fleet: Fleet, **counts: float) -> None:
    """Set the values of the driver's counters."""
    tally = fleet.tallies.of(fleet.uuids[0])
    assert tally is not None
    assert tally.fast is not None
    assert tally.slow is not None
    nothing: dict[str, Any] = dict.fromkeys(counts)
    told: dict[str, Any] = dict(counts)
    tally.fast, tally.slow = replace(tally.fast, **nothing), replace(tally.slow, **told)


def test_page_follows_counters_of_a_reloaded_driver() -> None:
    """The page shows a reloaded driver's lower counters, so that Prometheus can detect the reset."""
    fleet = Fleet("steady-copy")
    fleet.play(2)
    count(fleet, **DRIVERS)
    assert counted(fleet.scrape()) == (900, 2, 60, 4)
    count(fleet, **dict.fromkeys(DRIVERS, 0))
    assert counted(fleet.scrape()) == (0, 0, 0, 0)


def test_restarted_daemon_shows_the_drivers_counters() -> None:
    """A restarted daemon shows the driver's counters without offsets, so that Prometheus detects no reset."""
    fleet = Fleet("steady-copy")
    fleet.play(2)
    count(fleet, **DRIVERS)
    fleet.text()
    count(fleet, **{**DRIVERS, "power_brake_ns": 10 * 10**9})  # the driver reloads while the first daemon runs
    before = counted(fleet.scrape())
    daemon = DaemonFigures(lambda: STORE, lambda: 0, lambda: 0, fleet.clock.now_ns)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector(fleet.machine, daemon, fleet.tallies, fleet.outcomes))
    assert counted(series(generate_latest(registry).decode())) == before
    assert before[2] == 10


def test_page_counters_start_at_zero() -> None:
    """Counts of Xids, findings, windows and samples start at zero, even for a GPU without readings."""
    found = Fleet("steady-copy").scrape()
    for number in (*KNOWN_XIDS, OTHER_XID):
        assert of(found, "gpuwatch_gpu_xid_errors_total", xid=number) == 0
        assert of(found, "gpuwatch_gpu_xid_last_timestamp_seconds", xid=number) is None
    counted_findings = [value for (name, _), value in found.items() if name == "gpuwatch_findings_total"]
    assert counted_findings == [0] * 3 * len(RULES)
    for status in Status:
        assert of(found, "gpuwatch_windows_total", status=status.value) == 0
        assert of(found, "gpuwatch_window_duration_seconds_bucket", status=status.value, le="10.0") == 0
    assert of(found, "gpuwatch_judging_seconds_bucket", le="0.2") == 0
    assert of(found, "gpuwatch_store_rows_dropped_total") == 0
    for lane in ("fast", "pulse"):
        assert of(found, "gpuwatch_samples_total", lane=lane) == of(found, "gpuwatch_samples_missed_total", lane=lane) == 0


def test_page_drops_readings_of_a_stale_lane() -> None:
    fleet = Fleet("steady-copy")
    fleet.play(2)
    tally = fleet.tallies.of(fleet.uuids[0])
    assert tally is not None
    before = fleet.scrape()
    assert of(before, "gpuwatch_gpu_energy_joules_total") is not None
    assert tally.slow is not None
    tally.slow = replace(tally.slow, at_ns=tally.slow.at_ns - 2 * LEAST_STALE_NS)
    assert of(fleet.scrape(), "gpuwatch_gpu_energy_joules_total") is None
    assert of(fleet.scrape(), "gpuwatch_gpu_clock_hertz", domain="sm") is not None


def test_page_shows_an_unknown_reason_by_its_bit() -> None:
    fleet = Fleet("steady-copy")
    fleet.play(1)
    tally = fleet.tallies.of(fleet.uuids[0])
    assert tally is not None
    assert tally.fast is not None
    tally.fast = replace(tally.fast, event_reasons_mask=(tally.fast.event_reasons_mask or 0) | 1 << 12)
    tally.held_ns[1 << 12] = 2_500_000_000
    found = fleet.scrape()
    assert of(found, "gpuwatch_gpu_clock_event_active", reason="unknown_bit_12") == 1
    assert of(found, "gpuwatch_gpu_clock_event_seconds_total", reason="unknown_bit_12", source="sampled") == 2.5


def test_page_of_a_mig_board_has_only_the_boards_uuid() -> None:
    fleet = Fleet("mig")
    fleet.play(2)
    found = fleet.scrape()
    assert of(found, "gpuwatch_gpu_mig_mode") == 1
    assert {value for name, has in found for label, value in has if label == "uuid"} == set(fleet.uuids)


def test_page_counts_memory_errors_and_xids() -> None:
    """ECC errors and Xids count, except an Xid of an unknown GPU."""
    fleet = Fleet("ecc-error")
    fleet.play(8)
    fleet.report_event(fleet.uuids[0], "xid", 48)
    fleet.report_event("GPU-unknown", "xid", 13)
    found = fleet.scrape()
    assert of(found, "gpuwatch_gpu_ecc_errors_total", kind="uncorrected") == 1
    assert of(found, "gpuwatch_gpu_xid_errors_total", xid="48") == 1
    assert of(found, "gpuwatch_gpu_xid_errors_total", xid="13") == 0


def test_page_bounds_the_xid_labels() -> None:
    fleet = Fleet("steady-copy")
    for number in range(1000):
        fleet.report_event(fleet.uuids[0], "xid", number)
    found = fleet.scrape()
    assert sum(name == "gpuwatch_gpu_xid_errors_total" for name, _ in found) == 65
    assert of(found, "gpuwatch_gpu_xid_errors_total", xid="other") == 1000 - 64
    assert of(found, "gpuwatch_gpu_xid_errors_total", xid="119") == 1


def test_page_shows_processes_only_on_request(quartet: Fleet) -> None:
    """With ``processes_count=1`` the page shows one process per GPU, and by default no process."""
    found = quartet.scrape()
    per_gpu = [has for name, has in found if name == "gpuwatch_process_gpu_memory_bytes"]
    assert len(per_gpu) == len(quartet.uuids)
    assert of(found, "gpuwatch_gpu_processes", uuid=quartet.uuids[2], kind="compute") == 2
    fleet = Fleet("steady-copy")
    fleet.play(1)
    assert "gpuwatch_process_gpu_memory_bytes" not in names(fleet.scrape())


def test_page_power_peak_is_of_the_last_minute() -> None:
    hot = replace(SCENES["steady-copy"], mishaps=(Mishap(fault=Fault.POWER_LIMIT, begin_s=6, value=300.0),))
    fleet = Fleet([hot])
    fleet.play(5)
    first = of(fleet.scrape(), "gpuwatch_gpu_power_peak_watts")
    tally = fleet.tallies.of(fleet.uuids[0])
    assert first is not None
    assert tally is not None
    # Two successive scrapes get the same peak, and a minute later the peak expires.
    assert of(fleet.scrape(), "gpuwatch_gpu_power_peak_watts") == first
    assert tally.peak_w(fleet.clock.now_ns() + 61_000_000_000) is None


def test_page_in_openmetrics_passes_the_strict_parser(quartet: Fleet) -> None:
    text: str = openmetrics(quartet.registry).decode()  # type: ignore[no-untyped-call]
    found = set(openmetrics_names(text))
    assert "gpuwatch_gpu_energy_joules_total" in found
    assert "gpuwatch_device_info" in found


def test_page_without_a_driver_has_up_zero() -> None:
    fleet = Fleet("steady-copy")
    fleet.machine.samplers.clear()
    fleet.machine.source_name, fleet.machine.simulated = "nvml", False
    found = fleet.scrape()
    assert of(found, "gpuwatch_up") == 0
    assert of(found, "gpuwatch_simulated") == 0
    assert of(found, "gpuwatch_gpus", state="answering") == 0
    assert not names(found, gpu="0")
    fleet.machine.looked = False  # before the source is open, it is unknown if the source is simulated
    assert of(fleet.scrape(), "gpuwatch_simulated") is None


def test_page_stays_after_a_lost_driver() -> None:
    """After the loss of the driver the page has no readings and keeps the store's figures."""
    fleet = Fleet("steady-gemm,steady-copy")
    fleet.play(1)
    assert of(fleet.scrape(), "gpuwatch_up") == 1
    fleet.lose_driver()
    found = fleet.scrape()
    assert of(found, "gpuwatch_up") == 0
    assert of(found, "gpuwatch_gpus", state="lost") == 2
    assert "gpuwatch_gpu_clock_hertz" not in names(found)
    assert of(found, "gpuwatch_store_bytes", part="readings")


def test_page_names_a_gpu_without_samples() -> None:
    clock = VirtualClock()
    fleet = Fleet("steady-copy", clock=clock)  # the test plays nothing, so no sweep arrives
    found = fleet.scrape()
    assert of(found, "gpuwatch_device_info") == 1
    assert "gpuwatch_gpu_clock_hertz" not in names(found)
    assert isinstance(fleet.machine.devices[0], Device)


def test_page_shows_the_time_of_the_last_export() -> None:
    """The page has the time of the last export; before the first export there is no series."""
    fleet = Fleet("steady-copy")
    assert of(fleet.scrape(), "gpuwatch_export_last_success_time_seconds") is None
    daemon = DaemonFigures(lambda: {**STORE, "exported_wall_s": 1.79e9}, lambda: 0, lambda: 0, fleet.clock.now_ns)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector(fleet.machine, daemon, fleet.tallies, fleet.outcomes))
    found = series(generate_latest(registry).decode())
    assert of(found, "gpuwatch_export_last_success_time_seconds") == 1.79e9
