"""Frozen machine states and histories for tests of the screens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from annotate.evidence import Column, Device, Event, Lane, Process, ProcessList, Reading, Trace
from annotate.verdict import Answered, Finding, Status, Verdict
from gpuwatch.errors import DaemonError, StoreError
from gpuwatch.tui.app import TopApp
from gpuwatch.tui.preferences import PreferencesFile
from gpuwatch.view.live import Live, LiveGpu, Looker
from gpuwatch.wire.shown import Shown

NOW_NS = 1_000_000_000_000
S = 1_000_000_000
RATE_HZ = 10.0  # low enough to draw few unneeded pictures, high enough for short tests


def gpu(
    number: int = 0,
    *,
    age_s: float = 0.0,
    lost: str | None = None,
    pids: Sequence[int] = (),
    name: str = "NVIDIA H200",
    **said: Any,
) -> LiveGpu:
    """Return a busy, power-capped GPU with these changes."""
    uuid = f"GPU-{number:08d}"
    device = Device(
        uuid=uuid, name=name, sm_clock_max_mhz=1980, power_limit_w=700.0, temperature_slowdown_c=87,
        memory_total_bytes=150_754_820_096,
    )  # fmt: skip
    at_ns = NOW_NS - round(age_s * S)
    row = Reading(
        uuid=uuid, lane=Lane.FAST, at_ns=at_ns, took_ns=1, sm_clock_mhz=1575, power_w=698.0, temperature_c=55,
        event_reasons_mask=0x4, utilization_ratio=0.98, memory_used_bytes=2_945_000_000,
    )  # fmt: skip
    process_list = ProcessList(uuid=uuid, at_ns=at_ns, took_ns=1, processes=tuple(Process(pid=pid) for pid in pids))
    return LiveGpu(
        device=device,
        lost=lost,
        period_ns={Lane.FAST: 50_000_000},
        rows={Lane.FAST: replace(row, **said)},
        process_list=process_list,
    )


def window(run: str, status: str, *, ago_s: float | None = 30.0, gpus: Sequence[int] = (0,), **more: Any) -> Shown:
    end_ns = None if ago_s is None else NOW_NS - round(ago_s * S)
    begin_ns = (NOW_NS if end_ns is None else end_ns) - 12 * S
    uuids = [f"GPU-{number:08d}" for number in gpus]
    return Shown(run=run, claim="sustained", status=status, begin_ns=begin_ns, end_ns=end_ns, uuids=uuids, **more)


WINDOWS = (
    window("5", "open", ago_s=None, label="gemm-4096", pids=[7], gpus=(0, 1)),
    window("4", "judging", ago_s=0.2, label="softmax"),
    window("3", "rejected", ago_s=14.0, label="gemm-4096", hazards=["contention-process", "power-limited"], gpus=(1,)),
    window("2", "flagged", ago_s=200.0, label="attention [bold]not markup[/] \x1b[31m", hazards=["regime-change"], gpus=(2,)),
    window("1", "unproven", ago_s=4000.0, why="no GPU was seen to be used", gpus=()),
    window("0", "valid", ago_s=90_000.0, label="copy"),
)
EIGHT = Live(
    at_ns=NOW_NS, source="nvml", windows=WINDOWS,
    gpus=(
        gpu(0, pids=[7]), gpu(1, pids=[7, 8]), gpu(2, event_reasons_mask=0, power_w=420.0, sm_clock_mhz=1980),
        gpu(3, event_reasons_mask=0x44, temperature_c=88, sm_clock_mhz=990),
        gpu(4, event_reasons_mask=0x1, sm_clock_mhz=345, power_w=76.0, utilization_ratio=0.0, temperature_c=28),
        gpu(5, event_reasons_mask=0x1004, temperature_c=83, mig_mode=True), gpu(6, age_s=7.0),
        gpu(7, lost="GPU is lost (Xid 79); it has fallen off the bus"),
    ),
)  # fmt: skip
ONE = Live(at_ns=NOW_NS, source="simulated:steady-gemm", simulated=True, gpus=(gpu(name="SIMULATED NVIDIA H200"),))
TWO = replace(EIGHT, gpus=EIGHT.gpus[:2])
NO_GPU = Live(at_ns=NOW_NS, source="nvml", absence="libnvidia-ml.so.1: cannot open shared object file")
STALE = replace(EIGHT, gpus=tuple(gpu(number, age_s=9.0) for number in range(2)), windows=())
GONE = DaemonError("the daemon went away (connection closed)", "gone")


@dataclass
class Frozen(Looker):
    """A source that returns the given answers, the last one repeatedly, and raises given errors."""

    pictures: list[Live | DaemonError]
    started_again: bool = False
    closed: bool = False
    looked_count: int = field(default=0)

    def look(self) -> Live:
        self.looked_count += 1
        now = self.pictures.pop(0) if len(self.pictures) > 1 else self.pictures[0]
        if isinstance(now, DaemonError):
            raise now
        return now

    def start_again(self) -> None:
        self.started_again = True

    def close(self) -> None:
        self.closed = True


def top(*pictures: Live | DaemonError, rate_hz: float = RATE_HZ) -> TopApp:
    return TopApp(Frozen(list(pictures)), rate_hz=rate_hz, format_time=lambda _: "14:02:31")


FINDINGS = (
    Finding(
        rule="contention-process", answered=Answered.FOUND, severity="reject", effect_ratio=0.12, span_ns=(NOW_NS - 20 * S, NOW_NS - 18 * S),
        says="process 8 (python3, user alice) used 20% of the GPU's time", remedy="Stop process 8 or measure on another GPU.",
        facts={"pid": 8, "busy_ratio": 0.2013, "true_clock_mhz": None, "user": "alice"},
    ),
    Finding(
        rule="power-limited", answered=Answered.FOUND, severity="note", says="the power cap held for 12.0 of 12.0 s",
        remedy="Quote the number with its clock and the power limit.", facts={"capped_ratio": 1.0},
    ),
    Finding(rule="clock-drift", answered=Answered.CLEAR),
    Finding(rule="outliers", answered=Answered.UNOBSERVED, says="the time of each iteration was not observed"),
)  # fmt: skip
VERDICT = Verdict(
    status=Status.REJECTED, findings=FINDINGS, claim="sustained", label="gemm-4096", device_uuid="GPU-00000001",
    device_name="NVIDIA H200", begin_ns=NOW_NS - 26 * S, end_ns=NOW_NS - 14 * S,
)  # fmt: skip
EVENTS = (
    Event(uuid="GPU-00000007", at_ns=NOW_NS - 300 * S, kind="xid", value=79, text="GPU has fallen off the bus"),
    Event(uuid="GPU-00000007", at_ns=NOW_NS - 299 * S, kind="lost", text="GPU is lost"),
)
KEPT_S = 100


def lived(number: int, begin_ns: int, end_ns: int) -> Trace:
    """Return the history of a GPU, by its number: capped, idle, hot, or silent for a while."""
    at_ns = np.arange(max(begin_ns, NOW_NS - KEPT_S * S), min(end_ns, NOW_NS) + 1, S // 10, dtype=np.int64)
    ago_s = (NOW_NS - at_ns) / 1e9 + 5 * number
    if number == 4:
        mask, mhz = np.full(len(at_ns), 1), np.full(len(at_ns), 345.0)
    else:
        busy, capped, hot = ago_s < 90, ago_s < 72, (ago_s < 40) & (ago_s > 25) & (number % 3 == 0)
        mask = np.where(busy, 0, 1) | np.where(capped & (number % 4 != 2), 0x4, 0) | np.where(hot, 0x40, 0)
        mhz = np.where(busy, 1980.0, 345.0) - np.where(capped, 330 + 60 * np.sin(ago_s), 0.0) - np.where(hot, 600.0, 0.0)
    told = (ago_s < 20) | (ago_s > 35) if number == 1 else np.ones(len(at_ns), bool)
    columns = {"sm_clock_mhz": mhz, "event_reasons_mask": mask.astype(np.float64)}
    return Trace(columns={name: Column(at_ns[told], column[told]) for name, column in columns.items()})


@dataclass
class FrozenPast:
    """A history of 100 s in which the first GPU's clock encodes the age of the moment."""

    picture: Live = EIGHT
    refuses: str | None = None
    asked_ns: list[int] = field(default_factory=list)
    closed: bool = False

    def span_ns(self) -> tuple[int, int] | None:
        return NOW_NS - KEPT_S * S, NOW_NS

    def live(self, at_ns: int) -> Live:
        self.asked_ns.append(at_ns)
        self._ask()
        ago_s = (NOW_NS - at_ns) // S
        first, *others = self.picture.gpus
        rows = {lane: replace(row, sm_clock_mhz=1000 + ago_s, at_ns=at_ns) for lane, row in first.rows.items()}
        windows = tuple(each for each in self.picture.windows if each.begin_ns <= at_ns)
        return replace(self.picture, at_ns=at_ns, gpus=(replace(first, rows=rows), *others), windows=windows)

    def trace(self, uuid: str, begin_ns: int, end_ns: int) -> Trace:
        self._ask()
        return lived(int(uuid.rpartition("-")[2]), begin_ns, end_ns)

    def events(self, begin_ns: int, end_ns: int) -> Sequence[Event]:
        self._ask()
        return [event for event in EVENTS if begin_ns <= event.at_ns <= end_ns]

    def verdicts(self, run_id: str) -> Sequence[Verdict]:
        self._ask()
        return (VERDICT,) if run_id == "3" else ()

    def close(self) -> None:
        self.closed = True

    def _ask(self) -> None:
        if self.refuses is not None:
            raise StoreError(self.refuses)


def clock_of(at_ns: int) -> str:
    """Format a moment on the tests' wall clock, where now is 14:02:31."""
    second = 14 * 3600 + 2 * 60 + 31 - (NOW_NS - at_ns) // S
    return f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"


def travelling(
    *pictures: Live | DaemonError,
    past: FrozenPast | None = None,
    rate_hz: float = RATE_HZ,
    preferences_file: PreferencesFile | None = None,
) -> TopApp:
    """Return a monitor with a past; without live answers, the monitor shows a recording."""
    looks = Frozen(list(pictures)) if pictures else None
    return TopApp(looks, past or FrozenPast(), rate_hz=rate_hz, format_time=clock_of, preferences_file=preferences_file)
