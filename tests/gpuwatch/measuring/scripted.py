"""A GPU with scripted times, on a virtual clock that the work advances."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import StringIO
from typing import Any

import numpy as np

from annotate.declared import FACTS
from annotate.evidence import Device, OtherWork, Timings, Values
from annotate.user_policy import Policy
from annotate.verdict import Status, Verdict
from gpuwatch.measuring import BenchEnvironment, Measurement, bench
from gpuwatch.measuring.canary_record import CanaryRun
from gpuwatch.measuring.environment import TorchDevice
from gpuwatch.timers import TimedEntries, TimingPlan
from gpuwatch.wire.messages import FactValue

H200 = Device(
    uuid="GPU-1", name="NVIDIA H200", compute_capability="9.0", cuda_cores_count=132 * 128, sm_clock_max_mhz=1980,
    mem_clock_max_mhz=3201, memory_bus_bits_count=6144,
)  # fmt: skip
L2_BYTES = 50 << 20

# (start times of the entries in seconds, calls per entry) -> seconds per call, and MHz or None
Model = Callable[[Values, int], tuple[Values, Values | None]]


def constant(call_s: float, mhz: float | None = 1980.0, noise_ratio: float = 1e-3, seed: int = 1) -> Model:
    rng = np.random.default_rng(seed)

    def model(at_s: Values, calls: int) -> tuple[Values, Values | None]:
        took = np.asarray(call_s * (1.0 + noise_ratio * rng.standard_normal(len(at_s))), np.float64)
        return took, None if mhz is None else np.full(len(at_s), mhz)

    return model


@dataclass
class ScriptedTimer:
    """A timer that calls the work of one entry per take, and advances virtual time by the model's times."""

    model: Model
    name: str = "events"
    overhead: float = 1e-6
    gap_s: float = 0.0
    issue_s: float | None = 5e-6
    is_starved: bool = False
    now_ns: int = 1_000_000_000_000
    plans: list[TimingPlan] = field(default_factory=list)
    takes: list[int] = field(default_factory=list)

    def overhead_s(self) -> float:
        return self.overhead

    def rest(self) -> None:
        """Do nothing, because nothing runs between takes."""

    def take(self, plan: TimingPlan, entries_count: int) -> TimedEntries:
        self.plans.append(plan)
        self.takes.append(entries_count)
        if plan.before is not None:
            plan.before()
        for call in plan.entry():
            call()
        start_ns, calls = self.now_ns, plan.calls_count
        guess_s = float(self.model(np.array([(start_ns - 1_000_000_000_000) / 1e9]), calls)[0][0]) * calls
        at_s = (start_ns - 1_000_000_000_000) / 1e9 + (guess_s + self.gap_s) * np.arange(entries_count, dtype=np.float64)
        took_s, mhz = self.model(at_s, calls)
        steps_ns = ((took_s * calls + self.gap_s) * 1e9).astype(np.int64)
        at_ns = start_ns + np.concatenate([[0], np.cumsum(steps_ns)[:-1]])
        self.now_ns = int(start_ns + steps_ns.sum())
        busy_s = float(took_s.sum()) * calls if self.name != "host" else None
        starved_count = entries_count if self.is_starved else 0
        return TimedEntries(Timings(at_ns, took_s, mhz, calls), self.issue_s, busy_s, starved_count=starved_count)


def verdict(status: Status = Status.VALID, uuid: str | None = "GPU-1") -> Verdict:
    return Verdict(
        status=status, findings=(), claim="sustained", device_uuid=uuid, device_name="NVIDIA H200", policy=Policy().to_dict()
    )


@dataclass
class FakeWindow:
    verdicts: tuple[Verdict, ...]
    run_id: str | None
    declared: dict[str, FactValue] = field(default_factory=dict)
    recorded: list[Timings] = field(default_factory=list)
    other: list[OtherWork] = field(default_factory=list)

    @property
    def verdict(self) -> Verdict:
        return self.verdicts[0]

    def declare(self, **facts: FactValue) -> None:
        assert facts.keys() <= FACTS.keys()
        self.declared |= facts

    def record(self, times: Timings) -> None:
        self.recorded.append(times)

    def record_other_work(self, other: OtherWork) -> None:
        self.other.append(other)


@dataclass
class World:
    """The environment around a scripted timer; ``statuses`` are the windows' verdicts in turn, the last one repeated."""

    timer: ScriptedTimer
    statuses: tuple[Status, ...] = (Status.VALID,)
    gpu: TorchDevice | None = field(default_factory=lambda: TorchDevice(H200, L2_BYTES))
    uuid: str | None = "GPU-1"
    windows: list[FakeWindow] = field(default_factory=list)
    opened: list[dict[str, Any]] = field(default_factory=list)
    flushes: int = 0
    shown: StringIO = field(default_factory=StringIO)
    canary: CanaryRun | None = None

    def environment(self) -> BenchEnvironment:
        return BenchEnvironment(
            now_ns=lambda: self.timer.now_ns,
            start_daemon=lambda _: None,
            window=self._window,
            gpu=lambda: self.gpu,
            flush=self._flush,
            canary=lambda *_: self.canary,
            stream=self.shown,
        )

    @contextmanager
    def _entered(self) -> Iterator[FakeWindow]:
        status = self.statuses[min(len(self.windows), len(self.statuses) - 1)]
        window = FakeWindow((verdict(status, self.uuid),), f"run-{len(self.windows)}")
        self.windows.append(window)
        yield window

    def _window(self, label: str | None = None, **options: Any) -> Any:
        self.opened.append({"label": label, **options})
        return self._entered()

    def _flush(self, l2_bytes: int | None) -> tuple[Callable[[], None], int]:
        assert l2_bytes is not None

        def flush() -> None:
            self.flushes += 1

        return flush, 2 * l2_bytes


def nothing(*_: object) -> None:
    """Do no work; the model gives the time."""


def run(model: Model, world: World | None = None, **options: object) -> tuple[Measurement, World]:
    """Measure :func:`nothing` on a GPU with this model, or in ``world``; return the measurement and its environment."""
    world = world or World(ScriptedTimer(model))
    options = {"timer": world.timer, "seams": world.environment(), **options}
    return bench(nothing, **options), world  # type: ignore[arg-type]  # options are bench's own


def capped(at_s: Values, calls: int) -> tuple[Values, Values]:
    """Return times and clocks: 1980 MHz until the cap engages at 75 ms, then 1400 MHz with a swing of ±1 %."""
    mhz = np.where(at_s < 0.075, 1980.0, 1400.0 * (1.0 + 0.01 * np.sin(2 * np.pi * at_s)))
    return 1e-3 * 1400.0 / mhz, mhz
