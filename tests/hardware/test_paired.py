"""Tests of the program of paired windows without a GPU: bookkeeping, processes, and true values."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from annotate.capsule.pack import unpack
from annotate.evidence import Timings
from tests.annotate.builders import BEGIN_NS, evidence
from tests.gpuwatch.forked import daemons_of_windows
from tests.gpuwatch.live import ended
from tests.hardware import paired
from tests.hardware.paired_data import Kept, Row, references, truths
from tests.hardware.paired_disturbances import Disturbance, drawn
from tests.hardware.paired_neighbours import Neighbours
from tests.waiting import wait_until

STALL = Disturbance(family="host-stall", kind="sleep", depth=0.1)


@pytest.fixture(autouse=True)
def forked_processes() -> Iterator[None]:
    """Fork the workers, neighbours and daemons of a run, because importing their modules takes a second in each."""
    with daemons_of_windows():
        yield


def row(number: int, *, disturbed: bool = False, gap_s: float = 0.0, calls: int = 1000) -> Row:
    return Row(
        number=number, seed=1, work="pretence", mode="stamped", length_s=1.0, is_capped=False, run_id=str(number), calls_count=calls,
        disturbance=STALL if disturbed else None, window_s=1.0, events_s=1.0, longest_gap_s=gap_s,
    )  # fmt: skip


def pairs_of(*rows: Row) -> dict[str, tuple[str, str]]:
    return {key: (before.key, after.key) for key, (before, after) in references(rows).items()}


def kept(of: Row, took_s: float | None = None, clock_mhz: float | None = None) -> Kept:
    """Return a window of equal iterations, except for a longer tenth, at one clock or unstamped; or a window without times."""
    if took_s is None:
        return of, evidence(length_s=1.0)
    times = np.full(200, took_s)
    times[::10] *= 1.5
    clocks = None if clock_mhz is None else np.full(200, clock_mhz)
    at_ns = BEGIN_NS + np.arange(200) * 5_000_000
    return of, evidence(length_s=1.0, timings=Timings(at_ns, times, clocks))


def test_clean_window_is_a_reference_of_both_neighbours() -> None:
    assert pairs_of(row(1), row(2, disturbed=True), row(3), row(4, disturbed=True), row(5)) == {
        "2": ("1", "3"),
        "4": ("3", "5"),
    }


def test_stalled_reference_is_replaced_and_measured() -> None:
    """The next clean window replaces a stalled reference, and the stalled window gets references."""
    found = pairs_of(row(1), row(2, disturbed=True), row(3, gap_s=0.2), row(4), row(5, disturbed=True), row(6))
    assert found == {"2": ("1", "4"), "3": ("1", "4"), "5": ("4", "6")}


def test_pair_without_a_whole_reference_is_dropped() -> None:
    """Two disturbed windows with only a stall between them have no references, nor has a window at the edge."""
    rows = (row(1), row(2, disturbed=True), row(3, gap_s=0.2), row(4, disturbed=True), row(5), row(6, disturbed=True))
    assert pairs_of(*rows) == {}


def test_deviation_is_from_the_mean_of_both_references() -> None:
    found = truths(
        [
            kept(row(1, calls=1000), 1e-3, 1500.0),
            kept(row(2, calls=891, disturbed=True), 1.1e-3, 1500.0),
            kept(row(3, calls=980), 1e-3, 1500.0),
        ]
    )
    assert found["2"].deviation == pytest.approx(
        {"throughput": -0.1, "mean": 0.1, "median": 0.1, "median_at_one_clock": 0.1}, abs=1e-9
    )
    assert found["2"].references_differ["throughput"] == pytest.approx(1000 / 980 - 1)
    assert found["2"].by_events == pytest.approx(-0.1)
    assert (found["2"].before, found["2"].after) == ("1", "3")


def test_deviation_at_one_clock_needs_the_references_clocks() -> None:
    """A window at a clock outside the references' range, or without a clock, has no true value at one clock."""
    before, after = kept(row(1), 1e-3, 1500.0), kept(row(3), 1e-3, 1505.0)
    for clock_mhz in (1700.0, None):
        found = truths([before, kept(row(2, disturbed=True), 1e-3, clock_mhz), after])["2"].deviation
        assert sorted(found) == ["mean", "median", "throughput"]


def test_plain_window_has_a_true_throughput_only() -> None:
    assert list(truths([kept(row(1)), kept(row(2, disturbed=True)), kept(row(3))])["2"].deviation) == ["throughput"]


def test_run_without_a_gpu_keeps_rows_and_evidence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Windows keep their order, each with its evidence, and a failing neighbour costs only its own window."""
    command = [str(tmp_path), "--seconds", "90", "--seed", "1", "--work", "pretence", "--mode", "stamped", "--rounds", "2"]
    families = ["host-stall", "neighbour-holds"]
    options = ["--families", *families, "--lengths", "0.3", "0.4", "--source", "simulated:steady-copy"]
    assert paired.main([*command, *options]) == 0
    said = json.loads((tmp_path / "paired-1.json").read_text())
    rows = said["windows"]
    assert [each["number"] for each in rows] == sorted(each["number"] for each in rows)
    assert {each["disturbance"]["family"] for each in rows if each["disturbance"]} == {"host-stall"}
    assert [each["disturbance"]["family"] for each in said["failed"]] == ["neighbour-holds"]
    assert all(each["calls_count"] > 0 and each["window_s"] > 0.3 for each in rows)
    assert said["uuid"].startswith("GPU-")
    assert said["date"]
    found = unpack((tmp_path / "paired-1-0.capsule").read_bytes())
    assert [len(each.timings.took_s) for each in found if each.timings] == [each["calls_count"] for each in rows]
    assert "host-stall 1" in capsys.readouterr().out


@pytest.mark.skipif(find_spec("torch") is not None, reason="with torch this work does not fail")
def test_failing_work_ends_only_its_session(tmp_path: Path) -> None:
    options = ["--seconds", "60", "--work", "decode", "pretence", "--rounds", "1", "--lengths", "0.3", "0.4"]
    assert paired.main([str(tmp_path), *options, "--families", "host-stall", "--source", "simulated:steady-copy"]) == 0
    rows = json.loads((tmp_path / "paired-0.json").read_text())["windows"]
    assert {each["work"] for each in rows} == {"pretence"}
    assert len(unpack((tmp_path / "paired-0-0.capsule").read_bytes())) == len(rows)


def test_run_without_time_takes_no_window(tmp_path: Path) -> None:
    options = ["--seconds", "1", "--work", "pretence", "--source", "simulated:steady-copy"]
    assert paired.main([str(tmp_path), *options]) == 0
    assert json.loads((tmp_path / "paired-0.json").read_text())["windows"] == []


@pytest.fixture
def neighbours() -> Iterator[Neighbours]:
    found = Neighbours(has_gpu=False)
    yield found
    found.close()


def test_neighbours_are_not_children_and_end_with_window(neighbours: Neighbours) -> None:
    of = replace(drawn("hogs", 1, 1, 1.0, 2), count=2)
    with neighbours.beside(of, 60.0) as pids:
        parents = {int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) for pid in pids}
        assert len(pids) == 2
        assert len(parents) == 1
        assert os.getpid() not in parents
    assert all(ended(pid) for pid in pids)


def test_neighbour_ends_after_its_lifetime(neighbours: Neighbours) -> None:
    with neighbours.beside(replace(drawn("hogs", 1, 1, 1.0, 2), count=1), 0.2) as pids:
        wait_until(lambda: all(ended(pid) for pid in pids), what="the neighbour's time is over")


def test_failing_neighbour_reports_the_reason(neighbours: Neighbours) -> None:
    with (
        pytest.raises(RuntimeError, match="the neighbour failed: RuntimeError: expected a GPU"),
        neighbours.beside(drawn("neighbour-slices", 1, 1, 1.0, 2), 60.0),
    ):
        pytest.fail("the neighbour was ready")
