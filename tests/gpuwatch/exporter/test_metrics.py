"""Tests of the metric table, on which dashboards and alerts rely."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from annotate.evidence import SIGNALS, Lane, Reason, signals
from annotate.verdict import Status
from dashboards.dcgm import ALIASES
from gpuwatch.exporter.gpu_series import REASON_NAMES
from gpuwatch.exporter.metrics import GPU, LANES, METRICS, REASON_CLASSES, MetricKind
from tests.gpuwatch.exporter.other_exporters import DCGM, NVIDIA_SMI, OPENTELEMETRY

GOLDEN = Path(__file__).parent / "metrics.golden"


def frozen() -> str:
    return "".join(
        f"{metric.name} {metric.kind.value} {{{','.join(metric.labels)}}}"
        + "".join(f" {label}={'|'.join(values)}" for label, values in metric.values.items())
        + (f" le={'|'.join(f'{bound:g}' for bound in metric.buckets)}" if metric.buckets else "")
        + "\n"
        for metric in METRICS.values()
    )


def test_metric_table_matches_the_golden_file() -> None:
    """Every metric matches the golden file; after an intended addition, GPUWATCH_GOLDEN=1 rewrites the file."""
    if os.environ.get("GPUWATCH_GOLDEN"):
        GOLDEN.write_text(frozen())
    assert frozen() == GOLDEN.read_text()


def test_metric_names_follow_the_conventions() -> None:
    for name, metric in METRICS.items():
        assert re.fullmatch("gpuwatch(_[a-z]+)+", name), name
        assert name.endswith("_total") == (metric.kind is MetricKind.COUNTER), name
        assert name.endswith("_info") == (metric.kind is MetricKind.INFO), name
        assert bool(metric.buckets) == (metric.kind is MetricKind.HISTOGRAM), name
        assert metric.help.endswith("."), name
        assert metric.of, name
        assert not re.search("_(mhz|ms|ns|us|percent|mib|mw|count)(_|$)", name), name


def test_metric_labels_identify_a_gpu_by_uuid_and_position() -> None:
    identity = set(METRICS["gpuwatch_device_info"].labels) - set(GPU)
    for name, metric in METRICS.items():
        if name != "gpuwatch_device_info":
            assert not identity & set(metric.labels), name
        if "uuid" in metric.labels:
            assert metric.labels[:2] == GPU, name


@pytest.mark.parametrize("word", ["window", "run", "label", "user", "command", "cmdline", "hostname", "instance", "job"])
def test_metric_labels_exclude_user_data_and_target_labels(word: str) -> None:
    assert not any(word in metric.labels for metric in METRICS.values())


def test_metric_label_values_match_the_evidence() -> None:
    assert {reason.value for reason in Reason} == set(REASON_NAMES)
    assert tuple(REASON_NAMES.values()) == tuple(REASON_CLASSES)
    assert set(LANES) <= {lane.value for lane in Lane}
    assert set(METRICS["gpuwatch_windows_total"].values["status"]) == set(Status)


def test_metric_table_names_every_fast_and_slow_signal() -> None:
    said = " ".join(metric.of for metric in METRICS.values())
    shown = {name for name in SIGNALS if re.search(rf"\b{name}\b", said)}
    assert {*signals(Lane.FAST), *signals(Lane.SLOW)} - shown == set()


def test_dcgm_names_of_the_rules_are_in_the_table() -> None:
    assert {alias.name for alias in ALIASES} <= {theirs for theirs, _, _ in DCGM}


@pytest.mark.parametrize("table", [DCGM, NVIDIA_SMI, OPENTELEMETRY])
def test_queries_for_other_names_use_known_metrics(table: tuple[tuple[str, str, str], ...]) -> None:
    for theirs, ours, _ in table:
        for name in re.findall("gpuwatch_[a-z_]+", ours):
            bare = name if name in METRICS else re.sub("_(bucket|count|sum)$", "", name)
            assert bare in METRICS, theirs
