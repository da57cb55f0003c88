"""Windows of a daemon without GPUs, with a mock judge."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from annotate.evidence import Device
from gpuwatch.daemon.flush import Flushing
from gpuwatch.daemon.judged_windows import JudgedWindows
from gpuwatch.daemon.judgement import Judgement
from gpuwatch.daemon.tracked_window import WindowServices
from gpuwatch.daemon.user_turns import UserThreads
from gpuwatch.daemon.windows import Windows
from gpuwatch.host.processes import Identities
from gpuwatch.store import Store
from gpuwatch.wire import messages

MINE, THEIRS, ROOT = 1000, 1001, 0


class NoGpus:
    """A machine without GPUs, edges or process lists."""

    uuids: tuple[str, ...] = ()
    unanswered: tuple[str, ...] = ()
    name = "nvml"
    is_simulated = False
    absence = "no driver"

    @property
    def devices(self) -> Mapping[str, Device]:
        return {}

    @property
    def source(self) -> NoGpus:
        return self

    edges = latest = source

    def window_opened(self, uuids: object) -> None: ...
    def window_closed(self, uuids: object) -> None: ...
    async def edge(self, uuids: object) -> None: ...
    async def read_power(self, uuids: object) -> None: ...
    def process_list(self, uuid: str) -> None: ...
    async def hand_over(self, uuids: object) -> tuple[str, ...]:
        return ()


class MockJudge:
    """A judge that gives an unproven verdict, or fails."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails
        self.asked: list[str] = []

    async def warm(self) -> None: ...

    async def judge(self, run: str, length_s: float = 0.0) -> Judgement:
        self.asked.append(run)
        if self.fails:
            raise ZeroDivisionError(run)
        return Judgement(why="nothing was seen")


def windows(
    store: Store,
    tmp_path: Path,
    judge: Any = None,
    *,
    gpus: Any = None,
    threads: Executor | None = None,
    flushing: Flushing | None = None,
    host_s: float = 60.0,
    identities: Identities | None = None,
    **options: Any,
) -> Windows:
    """Return windows over mock GPUs and a mock judge, which share no type with the real ones."""
    gpus, judge = gpus or NoGpus(), judge or MockJudge()
    pool = UserThreads(threads or ThreadPoolExecutor(2), patience_s=host_s)
    services = WindowServices(gpus=gpus, store=store, judge=judge, flushing=flushing or Flushing(store), threads=pool)
    services = replace(services, identities=identities or services.identities)
    return Windows(services, JudgedWindows(tmp_path / "state", "boot"), boot_id="boot", **options)


async def opened(held: Windows, uid: int) -> tuple[str, int]:
    run, _ = held.open(messages.Open(), pid=0, uid=uid)
    return run.id, run.begin_ns
