"""Tests of the daemon's answer to `readings`."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import replace
from pathlib import Path
from threading import Thread

import msgspec
import pytest

from annotate.evidence import SIGNALS, Device, Event, Lane, Process, ProcessList, Reading
from gpuwatch.client.connection import connect
from gpuwatch.client.window import window
from gpuwatch.config.settings import Settings
from gpuwatch.errors import DaemonError
from gpuwatch.interfaces import Observed, Sweep, WatchedGpu
from gpuwatch.store import Run
from gpuwatch.view import live, snapshot
from gpuwatch.view.snapshot import WatchedMachine
from gpuwatch.wire import messages
from gpuwatch.wire.shown import ShownGpu
from tests.gpuwatch.live import running
from tests.waiting import let_pass, wait_until

DEVICE = Device(uuid="GPU-1", name="NVIDIA H200", sm_clock_max_mhz=1980)
FAST = Reading(uuid="GPU-1", lane=Lane.FAST, at_ns=200, took_ns=5, sm_clock_mhz=1500, event_reasons_mask=0x204)
SLOW = Reading(uuid="GPU-1", lane=Lane.SLOW, at_ns=100, took_ns=5, temperature_c=40, power_limit_w=700.0)
PROCESS_LIST = ProcessList(uuid="GPU-1", at_ns=150, took_ns=5, processes=(Process(pid=7, name="python", memory_bytes=5),))
RUN = Run(
    id="r1", label="gemm", claim="sustained", policy={}, boot_id="b", begin_ns=1, end_ns=2, begun_wall_s=0.0, pid=7, uid=0,
    user=None, process=None, uuids=("GPU-1",), pids=frozenset({7}), declared={}, host=None, status="flagged", why="", parent=None,
    source="nvml", simulated=False, verdicts=(),
)  # fmt: skip


def watched(uuid: str = "GPU-1", lost: str | None = None) -> WatchedGpu:
    return WatchedGpu(replace(DEVICE, uuid=uuid), 0, lost, {Lane.FAST: 10}, {})


def sweeps(*seen: Observed) -> dict[tuple[str, Lane], Sweep]:
    lanes = {ProcessList: Lane.PROCESSES, Event: Lane.EVENTS}
    found = [(each, getattr(each, "lane", lanes.get(type(each)))) for each in seen]
    return {("GPU-1", lane): Sweep("GPU-1", lane, 0, 0, 0, each) for each, lane in found if lane is not None}


def told(*seen: Observed, since_ns: int = 0, runs: tuple[Run, ...] = ()) -> messages.Readings:
    machine = WatchedMachine(source="nvml", gpus=[watched()], latest=sweeps(*seen))
    answer = snapshot.readings(machine, runs, at_ns=300, since_ns=since_ns)
    again = messages.decode_reply(messages.encode(answer))
    assert isinstance(again, messages.Readings)
    return again


def test_rows_and_process_list_survive_a_round_trip() -> None:
    (gpu,) = live.of(told(FAST, SLOW, PROCESS_LIST)).gpus
    assert gpu.device == DEVICE
    assert gpu.rows == {Lane.FAST: FAST, Lane.SLOW: SLOW}
    assert gpu.process_list == PROCESS_LIST
    assert gpu.period_ns == {Lane.FAST: 10}


def test_signal_is_found_in_any_lane() -> None:
    (gpu,) = live.of(told(FAST, SLOW)).gpus
    assert gpu.said("sm_clock_mhz") == 1500
    assert gpu.said("temperature_c") == 40
    assert gpu.said("energy_j") is None


def test_old_rows_are_omitted_and_taken_from_last_answer() -> None:
    before = live.of(told(FAST, SLOW, PROCESS_LIST))
    answer = told(replace(FAST, at_ns=250, sm_clock_mhz=1400), SLOW, PROCESS_LIST, since_ns=200)
    assert [row["lane"] for row in answer.gpus[0].rows] == ["fast"]
    assert answer.gpus[0].process_list is None
    (gpu,) = live.of(answer, before).gpus
    assert (gpu.said("sm_clock_mhz"), gpu.said("temperature_c"), gpu.process_list) == (1400, 40, PROCESS_LIST)


def test_largest_answer_is_one_line_of_the_protocol() -> None:
    long = "ü" * 4000
    crowd = ProcessList(
        uuid="GPU-1", at_ns=1, took_ns=1,
        processes=tuple(Process(pid=n, name=long, user=long, memory_bytes=n, utilization_ratio=0.123456789, started_s=1.7e9 + 0.1234567) for n in range(1000)),
    )  # fmt: skip
    amounts = {name: 123_456_789_012_345 for name, of_lane in SIGNALS.items() if of_lane in (Lane.FAST, Lane.SLOW)}
    every_signal = msgspec.convert(
        msgspec.to_builtins(FAST) | {n: v for n, v in amounts.items() if not n.endswith("_mode")}, Reading
    )
    rows = sweeps(every_signal, replace(every_signal, lane=Lane.SLOW), crowd)
    every = {(f"GPU-{n}", lane): sweep for n in range(200) for (_, lane), sweep in rows.items()}
    runs = [replace(RUN, label=long, why=long, pids=frozenset(range(10**6, 10**6 + 500))) for _ in range(100)]
    many = [watched(f"GPU-{n}", long) for n in range(200)]
    machine = WatchedMachine(source=long, absence=long, unanswered=[long] * 200, gpus=many, latest=every)
    answer = snapshot.readings(machine, runs, at_ns=2)
    assert len(messages.encode(answer)) < messages.LINE_BYTES
    assert (answer.gpus_left_out_count, answer.windows_left_out_count) == (136, 68)
    gpu = live.of(answer).gpus[0]
    assert gpu.processes_left_out_count == 1000 - messages.SHOWN_PROCESSES_COUNT
    assert gpu.process_list is not None
    assert gpu.process_list.processes[0].pid == 999, "the processes with most memory are shown"


def test_unanswered_gpus_are_listed() -> None:
    """GPUs that do not answer are listed; the field is left out if empty."""
    answer = snapshot.readings(WatchedMachine(source="nvml", unanswered=["GPU 1: no answer for 3 s"]), (), at_ns=300)
    again = messages.decode_reply(messages.encode(answer))
    assert isinstance(again, messages.Readings)
    assert live.of(again).unanswered == ("GPU 1: no answer for 3 s",)
    assert b"unanswered" not in messages.encode(told(FAST)), "an empty field is left out"
    assert live.of(told(FAST)).unanswered == ()


def test_hazards_of_a_window_are_its_rules_worst_first() -> None:
    """A window's hazards are the rules with findings that are not accepted, worst first."""
    findings = [
        {"rule": "noisy", "answered": "found", "severity": "note"}, {"rule": "clear", "answered": "clear", "severity": None},
        {"rule": "accepted", "answered": "found", "severity": "reject", "accepted": True},
        {"rule": "contention-process", "answered": "found", "severity": "reject"},
    ]  # fmt: skip
    (shown,) = told(runs=(replace(RUN, verdicts=({"findings": findings},)),)).windows
    assert shown.hazards == ["contention-process", "noisy"]


def test_unknown_lane_is_ignored_and_bad_answer_is_refused() -> None:
    """A newer daemon's unknown lane is ignored; a malformed answer is refused."""
    answer = told(FAST)
    newer = msgspec.structs.replace(answer, gpus=[msgspec.structs.replace(answer.gpus[0], rows=[{"lane": "dense"}])])
    assert live.of(newer).gpus[0].rows == {}
    with pytest.raises(DaemonError, match="expected a Device from the daemon, found"):
        live.of(msgspec.structs.replace(answer, gpus=[ShownGpu(device={"name": 3})]))


def test_daemon_answer_has_its_gpus_and_windows(two_gpus: Settings) -> None:
    looker = live.Looker(two_gpus)
    first, second = looker.look(), looker.look()
    looker.close()
    assert first.simulated
    assert len(first.gpus) == 2
    for gpu in second.gpus:
        assert gpu.said("sm_clock_mhz") > 0
        assert gpu.process_list is not None
    with connect(two_gpus, start=False) as client:
        run = client.open(label="seen").run
        (window,) = [each for each in live.of(client.readings()).windows if each.run == run]
        assert (window.label, window.status, window.end_ns) == ("seen", "open", None)


def test_process_use_holds_until_the_next_reading(two_gpus: Settings) -> None:
    told: list[float | None] = []
    with connect(two_gpus, start=False) as client:
        client.open(label="asked each second")

        def ratio() -> float | None:
            process_list = live.of(client.readings()).gpus[0].process_list
            return process_list.processes[0].utilization_ratio if process_list and process_list.processes else None

        wait_until(lambda: ratio() is not None, what="the process's use was read")
        for _ in range(30):
            told.append(ratio())
            let_pass(0.05, "process lists are read five times a second, the use of processes once")
    assert None not in told


def test_windows_judged_before_a_restart_are_still_recent(tmp_path: Path) -> None:
    with running(tmp_path) as first:
        for label in ("older", "newer"):
            with window(label, sync=False, settings=first.settings) as judged:
                pass
            status = judged.verdict.status
    with running(tmp_path) as second, connect(second.settings, start=False) as client:
        client.open(label="open")
        # The daemon reads the store in parallel with requests.
        wait_until(lambda: len(live.of(client.readings()).windows) == 3, what="the daemon lists three windows")
        shown = live.of(client.readings()).windows
    assert [each.label for each in shown] == ["open", "newer", "older"]
    assert shown[1].status == status


def test_looker_without_start_starts_no_daemon(two_gpus: Settings) -> None:
    """With ``start=False`` neither the first nor the second request starts a daemon."""
    looker = live.Looker(replace(two_gpus, socket=two_gpus.socket.with_name("nobody")), start=False)
    for _ in range(2):
        with pytest.raises(DaemonError, match="no daemon answers"):
            looker.look()


def relay(listener: socket.socket, target: Path) -> None:
    """Connect clients with a daemon; the first connection ends after the greeting, as if the daemon exited."""
    for is_first in (True, False):
        near, far = listener.accept()[0], socket.socket(socket.AF_UNIX)
        far.connect(str(target))
        with near, far, near.makefile("rb") as asked, far.makefile("rb") as answered:
            while line := asked.readline():
                far.sendall(line)
                near.sendall(answered.readline())
                if is_first:
                    break


def test_looker_asks_the_next_daemon_after_one_exits(two_gpus: Settings, tmp_path: Path) -> None:
    """A looker connects to the next daemon if the first one exits between greeting and request."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        Thread(target=relay, args=(listener, two_gpus.socket), daemon=True).start()
        with contextlib.closing(live.Looker(replace(two_gpus, socket=tmp_path / "s"), start=False)) as looker:
            assert len(looker.look().gpus) == 2
            assert len(looker.look().gpus) == 2
