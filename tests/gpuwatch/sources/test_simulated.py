"""Tests of the simulated GPU."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest

from annotate.evidence import Evidence, Lane, Ownership, Reason, Visibility, signals
from gpuwatch.clock import VirtualClock
from gpuwatch.errors import DeviceLostError, SourceGoneError, UsageError
from gpuwatch.sources.simulated import FLEETS, OWN_PID, SCENES, Simulated, simulate

NEVER = threading.Event()
FAST = signals(Lane.FAST)


def at(source: Simulated, clock: VirtualClock, seconds: float) -> None:
    clock.wait_until(source.epoch_ns + round(seconds * 1e9), NEVER)


def opened(scenes: str, seconds: float, *, seed: int = 0) -> tuple[Simulated, VirtualClock, str]:
    clock = VirtualClock()
    source = Simulated(scenes, clock, seed=seed)
    at(source, clock, seconds)
    return source, clock, source.devices()[0].uuid


def one(scene: str, *, seed: int = 0) -> Evidence:
    return simulate(scene, seed=seed)[0]


def share(piece: Evidence, counter: str) -> float:
    increase = piece.increase(counter)
    assert increase is not None
    return increase.ratio


def test_simulated_devices_are_marked() -> None:
    """Every device is marked as simulated in its flag, its name and its UUID."""
    source, _, _ = opened("fleet,mig", 1.0)
    assert source.simulated
    for device in source.devices():
        assert device.simulated
        assert "SIMULATED" in device.name
        assert "51301a7e" in device.uuid


def test_simulation_is_the_same_for_the_same_seed_only() -> None:
    first, second, other = one("steady-gemm"), one("steady-gemm"), one("steady-gemm", seed=1)
    for name, column in first.trace.columns.items():
        assert np.array_equal(column.values, second.trace.column(name).values, equal_nan=True), name
    assert not np.array_equal(first.trace.column("power_w").values, other.trace.column("power_w").values)


def test_simulated_reading_is_independent_of_earlier_reads() -> None:
    rare, _, uuid = opened("steady-gemm", 6.0)
    often, clock = Simulated("steady-gemm", VirtualClock()), None
    clock = VirtualClock()
    often = Simulated("steady-gemm", clock)
    for i in range(1, 601):
        at(often, clock, i / 100)
        often.read(uuid, Lane.FAST, FAST)
    assert rare.read(uuid, Lane.FAST, FAST) == often.read(uuid, Lane.FAST, FAST)


def test_simulated_idle_gpu_is_at_the_idle_clock() -> None:
    source, _, uuid = opened("idle", 3.0)
    reading = source.read(uuid, Lane.FAST, FAST)
    assert (reading.sm_clock_mhz, reading.event_reasons_mask, reading.utilization_ratio) == (825, Reason.GPU_IDLE, 0.0)
    assert reading.power_w == pytest.approx(82, abs=1)
    assert source.read_process_list(uuid).processes == ()


def test_simulated_copy_is_at_maximum_clock_and_uncapped() -> None:
    piece = one("steady-copy")
    assert set(piece.within("sm_clock_mhz").values) == {1980.0}
    assert share(piece, "power_cap_ns") == 0.0


def test_simulated_steady_product_is_always_capped() -> None:
    piece = one("steady-gemm")
    assert share(piece, "power_violation_ns") == pytest.approx(1.0)
    assert piece.within("event_reasons_mask").values.min() == Reason.SW_POWER_CAP
    assert np.mean(piece.within("power_average_w").values) == pytest.approx(690, abs=5)


def test_simulated_cap_engages_56_to_85_ms_after_load() -> None:
    clock = VirtualClock()
    source = Simulated("from-idle", clock)
    uuid = source.devices()[0].uuid
    begin_s = SCENES["from-idle"].bench[0]
    onset_s = None
    for milli in range(0, 300, 5):
        at(source, clock, begin_s + milli / 1000)
        if source.read(uuid, Lane.EDGE, ("power_violation_ns",)).power_violation_ns != before(source, uuid):
            onset_s = milli / 1000
            break
    assert onset_s is not None
    assert 0.056 <= onset_s <= 0.085  # 56 to 75 ms on the H200 (docs/HARDWARE.md), plus two steps


def before(source: Simulated, uuid: str) -> int:
    """Return the start value of the continuous cap counter."""
    value = source._gpus[uuid].driver.offset_ns
    assert value >= 0
    return value


def test_simulated_page_changes_every_hundred_milliseconds() -> None:
    clock = VirtualClock()
    source = Simulated("steady-gemm", clock)
    uuid = source.devices()[0].uuid
    changes = []
    last = None
    for milli in range(4000, 6000, 5):
        at(source, clock, milli / 1000)
        value = source.read(uuid, Lane.FAST, ("power_w",)).power_w
        if last is not None and value != last:
            changes.append(milli)
        last = value
    assert np.diff(changes) == pytest.approx(100, abs=5)


def test_simulated_cap_counter_steps_every_100_ms() -> None:
    """The cap counter steps by about 100 ms, while the violation time increases continuously."""
    clock = VirtualClock()
    source = Simulated("steady-gemm", clock)
    uuid = source.devices()[0].uuid
    rows = []
    for milli in range(4000, 5000, 5):
        at(source, clock, milli / 1000)
        reading = source.read(uuid, Lane.EDGE, ("power_cap_ns", "power_violation_ns"))
        rows.append((reading.power_cap_ns, reading.power_violation_ns))
    stepped, running = np.array(rows).T
    assert set(np.diff(running)) == {5_000_000}
    assert len(set(stepped)) <= 12
    assert set(np.diff(stepped)) <= {0, 95_000_000, 100_000_000, 105_000_000}


def test_simulated_average_power_is_a_trailing_second() -> None:
    piece = one("from-idle")
    begin_ns = piece.window.begin_ns
    average = piece.trace.within("power_average_w", begin_ns, begin_ns + 900_000_000, step_ns=100_000_000).values
    climbs = np.diff(average)[1:]  # a straight line, while the instant value jumps
    assert climbs.mean() == pytest.approx(60, abs=8)
    assert climbs.std() < 8
    instant = piece.trace.within("power_w", begin_ns + 200_000_000, begin_ns + 900_000_000).values
    assert instant.min() > 600


def test_simulated_dense_power_matches_the_energy_counter() -> None:
    piece = one("steady-gemm")
    energy = piece.increase("energy_j")
    assert energy is not None
    dense = piece.trace.dense_power
    inside = (dense.at_ns > energy.begin_ns) & (dense.at_ns <= energy.end_ns)
    assert dense.values[inside].mean() * energy.span_ns / 1e9 == pytest.approx(energy.amount, rel=0.01)


def test_simulated_neighbour_halves_throughput() -> None:
    """With a neighbour, iterations take 0.87 times as long, and half as many run."""
    alone, shared = one("steady-gemm"), one("neighbour")
    assert alone.timings is not None
    assert shared.timings is not None
    assert np.median(shared.timings.took_s) / np.median(alone.timings.took_s) == pytest.approx(0.87, abs=0.03)
    assert len(shared.timings.took_s) / len(alone.timings.took_s) == pytest.approx(0.52, abs=0.03)
    own, other = shared.trace.process_lists[-2].processes
    assert (own.ownership, other.ownership) == (Ownership.OWN, Ownership.FOREIGN)
    assert (own.utilization_ratio, other.utilization_ratio) == (0.46, 0.54)


def test_hidden_neighbour_shows_in_utilization_and_memory() -> None:
    """The process list omits a hidden neighbour; the utilisation record and the used memory include the neighbour."""
    source, clock, uuid = opened("hidden-neighbour", 3.0)
    assert [process.pid for process in source.read_process_list(uuid).processes] == [OWN_PID]
    at(source, clock, 4.0)
    source.read_process_list(uuid, utilization=True)
    at(source, clock, 5.0)
    process_list = source.read_process_list(uuid, utilization=True)
    hidden = process_list.processes[1]
    assert (hidden.listed, hidden.memory_bytes, hidden.utilization_ratio) == (False, None, 0.54)
    assert process_list.visibility is Visibility.NAMESPACE
    used = source.read(uuid, Lane.FAST, FAST).memory_used_bytes
    reserved = source.devices()[0].memory_reserved_bytes
    own = process_list.processes[0].memory_bytes
    assert used is not None
    assert reserved is not None
    assert own is not None
    assert used - reserved - own > 500_000_000


def test_simulated_late_launches_leave_the_gpu_idle() -> None:
    piece = one("cpu-hogs")
    assert piece.timings is not None
    assert np.median(piece.within("utilization_ratio").values) == pytest.approx(0.07, abs=0.02)
    assert piece.within("sm_clock_mhz").values.min() == 1980
    assert np.percentile(piece.timings.took_s, 99) > 0.06
    assert piece.host.run_wait_s is not None


def test_simulated_heat_is_counted_and_limited() -> None:
    """Software thermal slow-down takes over 30 % of the window, and the temperature stays at most 90 °C."""
    piece = one("thermal")
    assert share(piece, "sw_thermal_ns") > 0.3
    assert piece.within("temperature_c").values.max() <= 90


@pytest.mark.parametrize(
    ("scene", "reason", "counter"),
    [
        ("hw-slowdown", Reason.HW_SLOWDOWN, None),
        ("power-brake", Reason.HW_POWER_BRAKE, "power_brake_ns"),
        ("sync-boost", Reason.SYNC_BOOST, "sync_boost_ns"),
    ],
)
def test_simulated_fault_has_reason_counter_and_low_clock(scene: str, reason: Reason, counter: str | None) -> None:
    piece = one(scene)
    masks = piece.within("event_reasons_mask").values.astype(int)
    assert any(mask & reason for mask in masks)
    assert piece.within("sm_clock_mhz").values.min() < 1900
    if counter is not None:
        increase = piece.increase(counter)
        assert increase is not None
        assert increase.amount > 0


def test_simulated_lower_memory_clock_slows_copies() -> None:
    piece = one("mem-clock")
    assert piece.timings is not None
    assert set(piece.within("mem_clock_mhz").values) == {3201.0, 2201.0}
    assert piece.timings.took_s.max() / piece.timings.took_s.min() == pytest.approx(3201 / 2201, rel=0.05)


def test_simulated_limit_change_shows_in_setting_and_power() -> None:
    piece = one("setting-change")
    assert set(piece.trace.column("power_limit_w").values) == {700.0, 500.0}
    last_s = piece.trace.within("power_w", piece.window.end_ns - 1_000_000_000, piece.window.end_ns).values
    assert last_s.mean() == pytest.approx(493, abs=15)


def test_simulated_memory_error_has_an_event_and_a_count() -> None:
    piece = one("ecc-error")
    assert [(event.kind, event.value) for event in piece.trace.events] == [("xid", 48)]
    errors = piece.increase("ecc_uncorrected_count")
    assert errors is not None
    assert errors.amount == 1


def test_simulated_lost_gpu_answers_again() -> None:
    """Reading a lost GPU raises DeviceLostError until the GPU is back; other GPUs answer, and the evidence has the gap."""
    source, clock, _ = opened("gpu-lost,steady-copy", 6.0)
    other = source.devices()[0].uuid
    at(source, clock, 6.1)
    lost = "GPU-51301a7e-0000-0000-0000-000000000000"
    assert other != lost
    with pytest.raises(DeviceLostError):
        source.read(lost, Lane.FAST, FAST)
    assert source.read(other, Lane.FAST, FAST).sm_clock_mhz == 1980
    at(source, clock, 7.5)
    assert source.read(lost, Lane.FAST, FAST).sm_clock_mhz == 1980
    piece = one("gpu-lost")
    assert any(gap.lane is Lane.FAST and 1.9e9 < gap.end_ns - gap.begin_ns < 2.1e9 for gap in piece.trace.gaps)


def test_simulated_adopted_process_replaces_the_scenes_own() -> None:
    source, clock, uuid = opened("neighbour", 5.0)
    source.read_process_list(uuid, utilization=True)
    source.adopt(uuid, 4242)
    at(source, clock, 6.0)
    process_list = source.read_process_list(uuid, utilization=True)
    assert [(process.pid, process.utilization_ratio) for process in process_list.processes] == [(4242, 0.46), (60_101, 0.54)]
    with pytest.raises(DeviceLostError):
        source.adopt("GPU-none", 1)


def test_simulated_mig_instance_reports_only_memory() -> None:
    source, _, _ = opened("mig", 3.0)
    board, first, second = source.devices()
    assert board.mig_mode
    assert (first.parent_uuid, second.parent_uuid) == (board.uuid, board.uuid)
    reading = source.read(first.uuid, Lane.FAST, FAST)
    assert reading.memory_used_bytes is not None
    assert reading.sm_clock_mhz is None


def test_simulated_gpm_needs_two_distant_samples() -> None:
    """GPM gives no value at the first sample and 50 ms later, and a value 0.5 s later."""
    source, clock, uuid = opened("steady-gemm", 4.0)
    assert source.read(uuid, Lane.SLOW, ("tensor_activity_ratio",)).tensor_activity_ratio is None
    at(source, clock, 4.05)
    assert source.read(uuid, Lane.SLOW, ("tensor_activity_ratio",)).tensor_activity_ratio is None
    at(source, clock, 4.5)
    assert source.read(uuid, Lane.SLOW, ("tensor_activity_ratio",)).tensor_activity_ratio == pytest.approx(0.89)


def test_simulated_event_arrives_once_at_its_time() -> None:
    source, clock, _ = opened("ecc-error", 1.0)
    assert [event.value for event in source.events(60.0)] == [48]
    assert clock.now_ns() - source.epoch_ns == pytest.approx(5.5e9, abs=1e6)
    assert source.events(0.5) == ()


def test_simulated_scene_repeats_after_its_length() -> None:
    source, clock, uuid = opened("from-idle", 5.5)
    length_s = SCENES["from-idle"].length_s
    first = source.read(uuid, Lane.FAST, FAST).utilization_ratio
    at(source, clock, length_s + 2.0)
    assert source.read(uuid, Lane.FAST, FAST).utilization_ratio == 0.0
    at(source, clock, length_s + 5.5)
    assert source.read(uuid, Lane.FAST, FAST).utilization_ratio == pytest.approx(first, abs=0.02)


def test_simulated_reads_have_a_cost() -> None:
    source, _, uuid = opened("steady-gemm", 1.0)

    def cost_us(*names: str) -> float:
        return source.read(uuid, Lane.SLOW, names).took_ns / 1e3

    assert cost_us("sm_clock_mhz") < 1
    assert cost_us("power_cap_ns") == pytest.approx(2.6)
    assert cost_us("energy_j") > 1000


def test_scene_benchmark_ends_within_8_s() -> None:
    for scene in SCENES.values():
        assert 0 < scene.bench[0] < scene.bench[1] <= 8.0, scene.name
        assert scene.says


def test_simulated_fleet_has_one_gpu_per_scene() -> None:
    assert len(FLEETS["fleet"]) == 8
    pieces = simulate("quartet", timings=False)
    assert [piece.window.label for piece in pieces] == list(FLEETS["quartet"])
    assert len({piece.device.uuid for piece in pieces if piece.device}) == 4


@pytest.mark.parametrize(
    "refused",
    [lambda: Simulated("steady-gem", VirtualClock()), lambda: Simulated("", VirtualClock()) and simulate("nothing-like-it")],
)
def test_simulated_unknown_scene_error_has_a_suggestion(refused: Callable[[], object]) -> None:
    with pytest.raises(UsageError, match=r"did you mean 'steady-gemm'|known: steady-copy"):
        refused()


def test_simulated_read_after_close_raises_source_gone() -> None:
    source, _, uuid = opened("steady-copy", 1.0)
    source.close()
    with pytest.raises(SourceGoneError):
        source.read(uuid, Lane.FAST, FAST)
