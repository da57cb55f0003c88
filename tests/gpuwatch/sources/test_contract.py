"""Tests of the contract that every source fulfils."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from annotate.evidence import COUNTERS, SIGNALS, Lane, PowerRecord, ProcessList, Reading, Visibility, signals
from gpuwatch.clock import MonotonicClock, VirtualClock
from gpuwatch.errors import DeviceLostError
from gpuwatch.interfaces import Clock, Source
from gpuwatch.sources.replay import Replay
from gpuwatch.sources.simulated import Simulated, simulate
from tests.gpuwatch.sources.logs import TRACES, log_of

NEVER = threading.Event()


def nvml(_: Path, clock: Clock) -> Source:
    from gpuwatch.sources.nvml import Nvml

    return Nvml()


def simulated(_: Path, clock: Clock) -> Source:
    return Simulated("steady-gemm,neighbour,mig", clock)


def replayed_archive(_: Path, clock: Clock) -> Source:
    return Replay(TRACES / "scenarios.npz", clock)


def replayed_log(folder: Path, clock: Clock) -> Source:
    path = folder / "nvidia-smi.csv"
    path.write_text(log_of(gpus=2, rows=200))
    return Replay(path, clock)


def replayed_capsule(folder: Path, clock: Clock) -> Source:
    from annotate.capsule.pack import pack

    path = folder / "recording"
    path.write_bytes(pack(simulate("neighbour")))
    return Replay(path, clock)


MAKERS = [simulated, replayed_archive, replayed_log, replayed_capsule, pytest.param(nvml, marks=pytest.mark.gpu)]


@pytest.fixture(params=MAKERS)
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Source, Clock]]:
    make: Callable[[Path, Clock], Source] = request.param
    clock: Clock = MonotonicClock() if make is nvml else VirtualClock()
    source = make(tmp_path, clock)
    yield source, clock
    source.close()


def advance(clock: Clock, seconds: float) -> None:
    clock.wait_until(clock.now_ns() + round(seconds * 1e9), NEVER)


def test_source_devices_have_identities(made: tuple[Source, Clock]) -> None:
    """Each device has a unique UUID, and a name with SIMULATED if and only if the source is simulated."""
    source, _ = made
    devices = source.devices()
    assert devices
    assert len({device.uuid for device in devices}) == len(devices)
    for device in devices:
        assert device.uuid
        assert device.name
        assert device.simulated is source.simulated
        assert ("SIMULATED" in device.name) is source.simulated
    boards = {device.uuid for device in devices if device.parent_uuid is None}
    assert {device.parent_uuid for device in devices if device.parent_uuid} <= boards


def test_source_name_is_a_specification(made: tuple[Source, Clock]) -> None:
    """A source's name starts with a kind of source that ``--source`` accepts."""
    source, _ = made
    assert source.name.partition(":")[0] in ("nvml", "simulated", "replay")


@pytest.mark.parametrize("lane", [Lane.FAST, Lane.SLOW, Lane.EDGE])
def test_reading_holds_only_requested_signals(made: tuple[Source, Clock], lane: Lane) -> None:
    """A reading has the requested UUID and lane, and None for every signal that was not requested."""
    source, clock = made
    advance(clock, 0.5)
    names = signals(lane)[::2]
    for device in source.devices():
        before_ns = clock.now_ns()
        reading = source.read(device.uuid, lane, names)
        assert (reading.uuid, reading.lane) == (device.uuid, lane)
        assert before_ns <= reading.at_ns <= clock.now_ns()
        assert reading.took_ns >= 0
        assert all(getattr(reading, name) is None for name in SIGNALS if name not in names)


def test_fast_signal_is_readable_in_the_slow_lane(made: tuple[Source, Clock]) -> None:
    source, clock = made
    advance(clock, 0.5)
    reading = source.read(source.devices()[0].uuid, Lane.SLOW, ["temperature_c"])
    assert reading.lane is Lane.SLOW
    assert reading.temperature_c is not None


def test_every_board_has_clock_and_temperature(made: tuple[Source, Clock]) -> None:
    """The fast lane reads a clock above 0 and a temperature for every board."""
    source, clock = made
    advance(clock, 0.5)
    for device in source.devices():
        if device.parent_uuid is None:
            reading = source.read(device.uuid, Lane.FAST, signals(Lane.FAST))
            assert reading.sm_clock_mhz is not None
            assert reading.sm_clock_mhz > 0
            assert reading.temperature_c is not None


def test_reading_values_match_field_types_and_ranges(made: tuple[Source, Clock]) -> None:
    """Every value has the type of its field; ratios are 0 to 1, and all values but the temperature margin are at least 0."""
    source, clock = made
    types = {field.name: str(field.type) for field in fields(Reading)}
    for _ in range(3):
        advance(clock, 0.3)
        for device in source.devices():
            for lane in (Lane.FAST, Lane.SLOW, Lane.EDGE):
                reading = source.read(device.uuid, lane, signals(lane))
                for name in signals(lane):
                    value = getattr(reading, name)
                    if value is None:
                        continue
                    assert type(value).__name__ in types[name], name
                    if name.endswith("_ratio"):
                        assert 0.0 <= value <= 1.0, name
                    elif name != "temperature_margin_c":
                        assert value >= 0, name


def test_source_counters_never_decrease(made: tuple[Source, Clock]) -> None:
    source, clock = made
    uuid = source.devices()[0].uuid
    last: dict[str, float] = {}
    for _ in range(30):
        advance(clock, 0.03)
        for lane in (Lane.FAST, Lane.SLOW, Lane.EDGE):
            reading = source.read(uuid, lane, signals(lane))
            for name in COUNTERS & set(signals(lane)):
                value = getattr(reading, name)
                if value is not None:
                    assert value >= last.get(name, 0), name
                    last[name] = value


def test_source_reading_times_are_ordered(made: tuple[Source, Clock]) -> None:
    source, clock = made
    uuid = source.devices()[0].uuid
    times = []
    for _ in range(10):
        advance(clock, 0.011)
        times.append(source.read(uuid, Lane.FAST, ("power_w",)).at_ns)
    assert times == sorted(times)


def test_process_list_names_each_process_once(made: tuple[Source, Clock]) -> None:
    """A process list has unique PIDs, utilisations of 0 to 1, and no memory for unlisted processes."""
    source, clock = made
    for utilization in (False, True, True):
        advance(clock, 1.0)
        process_list = source.read_process_list(source.devices()[0].uuid, utilization=utilization)
        assert isinstance(process_list, ProcessList)
        assert process_list.visibility in Visibility
        pids = [process.pid for process in process_list.processes]
        assert len(set(pids)) == len(pids)
        for process in process_list.processes:
            assert process.utilization_ratio is None or 0.0 <= process.utilization_ratio <= 1.0
            assert process.listed or process.memory_bytes is None


def test_power_record_returns_each_sample_once(made: tuple[Source, Clock]) -> None:
    """Repeated reads of the power record return sorted samples without repetition, and none from the future."""
    source, clock = made
    uuid = source.devices()[0].uuid
    seen: list[int] = []
    for _ in range(4):
        advance(clock, 0.5)
        record = source.power_record(uuid)
        assert isinstance(record, PowerRecord)
        assert len(record.sample_at_ns) == len(record.sample_w)
        assert all(power_w >= 0 for power_w in record.sample_w)
        seen += record.sample_at_ns
        assert all(at_ns <= clock.now_ns() for at_ns in record.sample_at_ns)
    assert seen == sorted(set(seen))


def test_source_events_returns_after_its_timeout(made: tuple[Source, Clock]) -> None:
    """``events(0.2)`` returns a tuple, on a virtual clock within 2 s."""
    source, clock = made
    before_ns = clock.now_ns()
    events = source.events(0.2)
    assert isinstance(events, tuple)
    assert not isinstance(clock, VirtualClock) or clock.now_ns() - before_ns < 2e9


def test_source_unknown_uuid_is_a_lost_device(made: tuple[Source, Clock]) -> None:
    source, _ = made
    with pytest.raises(DeviceLostError):
        source.read("GPU-deadbeef-0000-0000-0000-000000000000", Lane.FAST, ("power_w",))
    with pytest.raises(DeviceLostError):
        source.read_process_list("GPU-deadbeef-0000-0000-0000-000000000000")


def test_source_serves_four_threads(made: tuple[Source, Clock]) -> None:
    """Four threads read rows, process lists and power records in parallel without an exception."""
    source, clock = made
    uuid = source.devices()[0].uuid
    advance(clock, 1.0)
    failures: list[BaseException] = []

    def read_repeatedly() -> None:
        try:
            for _ in range(20):
                source.read(uuid, Lane.FAST, signals(Lane.FAST))
                source.read_process_list(uuid, utilization=True)
                source.power_record(uuid)
        except Exception as error:  # noqa: BLE001 - the assertion shows any exception
            failures.append(error)

    threads = [threading.Thread(target=read_repeatedly) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_source_closes_twice(made: tuple[Source, Clock]) -> None:
    source, _ = made
    source.close()
    source.close()
