"""The screen of one GPU in a small app, and frozen histories."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from textual.app import App

from annotate.evidence import Column, Event, Gap, Process, ProcessList, Trace
from annotate.verdict import Verdict
from gpuwatch.errors import StoreError
from gpuwatch.tui.app import TopApp
from gpuwatch.tui.data_interfaces import HistorySource, ScreenContent
from gpuwatch.tui.screens.gpu_screen import GpuScreen
from gpuwatch.tui.widgets.status_line import StatusLine, screen_state
from gpuwatch.view.live import Live
from gpuwatch.wire.shown import Shown
from tests.gpuwatch.tui.frozen import NOW_NS, S


def format_time(at_ns: int) -> str:
    return time.strftime("%H:%M:%S", time.gmtime(at_ns / 1e9))


@dataclass
class Still:
    """A history source with a fixed trace, or with a refusal."""

    of: Trace = field(default_factory=Trace)
    span: tuple[int, int] | None = (0, NOW_NS)
    refusal: str | None = None
    asked: list[tuple[int, int]] = field(default_factory=list)
    later: tuple[Shown, ...] = ()

    def span_ns(self) -> tuple[int, int] | None:
        return self.span

    def trace(self, uuid: str, begin_ns: int, end_ns: int) -> Trace:
        self.asked.append((begin_ns, end_ns))
        if self.refusal is not None:
            raise StoreError(self.refusal)
        columns = {name: _part(column, begin_ns, end_ns) for name, column in self.of.columns.items()}
        return replace(
            self.of, columns=columns, dense_power=_part(self.of.dense_power, begin_ns, end_ns),
            process_lists=tuple(each for each in self.of.process_lists if begin_ns <= each.at_ns <= end_ns),
            events=tuple(each for each in self.of.events if begin_ns <= each.at_ns <= end_ns),
        )  # fmt: skip

    def live(self, at_ns: int) -> Live:
        return Live(at_ns=at_ns, source="nvml", windows=self.later)

    def events(self, begin_ns: int, end_ns: int) -> Sequence[Event]:
        return [event for event in self.of.events if begin_ns <= event.at_ns <= end_ns]

    def verdicts(self, run_id: str) -> Sequence[Verdict]:
        return []

    def close(self) -> None: ...


def _part(column: Column, begin_ns: int, end_ns: int) -> Column:
    rows = slice(*np.searchsorted(column.at_ns, [begin_ns, end_ns + 1]))
    return Column(column.at_ns[rows], column.values[rows])


def lived(length_s: int = 700) -> Trace:
    """Return a GPU's history: idle, computing, power-capped, silent for a while, hot, and computing until now."""
    begin_ns = NOW_NS - length_s * S
    at_ns = np.arange(begin_ns, NOW_NS, 50_000_000, dtype=np.int64)
    ago_s = (NOW_NS - at_ns) / 1e9
    busy, capped, hot = ago_s < 100, (ago_s < 80) & (ago_s > 12), (ago_s < 40) & (ago_s > 30)
    clock_mhz = np.where(busy, 1980.0, 345.0) - np.where(capped, 330 + 45 * np.sin(ago_s), 0.0) - np.where(hot, 500.0, 0.0)
    power_w = np.where(busy, 640.0, 78.0) + np.where(capped, 56 + 8 * np.sin(3 * ago_s), 0.0) - np.where(hot, 160.0, 0.0)
    heat_c = 31 + np.where(busy, 55 * (1 - np.exp(-(100 - np.minimum(ago_s, 100)) / 30)), 0.0)
    mask = np.where(busy, 0, 1) + np.where(capped, 0x4, 0) + np.where(hot, 0x48, 0)
    values = {
        "sm_clock_mhz": np.rint(clock_mhz), "power_w": power_w, "temperature_c": np.rint(heat_c),
        "event_reasons_mask": mask.astype(np.float64), "utilization_ratio": np.where(busy, 0.99, 0.0),
    }  # fmt: skip
    told = (ago_s > 56) | (ago_s < 49)
    dense_ns = np.arange(begin_ns, NOW_NS - 2 * S, 20_000_000, dtype=np.int64)
    dense_ns = dense_ns[(NOW_NS - dense_ns > 56 * S) | (NOW_NS - dense_ns < 49 * S)]
    dense_w = np.interp(dense_ns, at_ns, power_w) + np.where(
        np.interp(dense_ns, at_ns, busy) > 0, 40 * np.sin(dense_ns / 7e7), 0
    )
    ours, other = Process(pid=7, name="python", user="ada"), Process(pid=8, name="jupyter", user="alan")
    process_lists = tuple(
        ProcessList(uuid="GPU-00000000", at_ns=when, took_ns=1, processes=(ours, other) if when > NOW_NS - 30 * S else (ours,))
        for when in range(begin_ns, NOW_NS, S)
    )
    return Trace(
        columns={name: Column(at_ns[told], column[told]) for name, column in values.items()},
        dense_power=Column(dense_ns, dense_w), process_lists=process_lists,
        events=(Event(uuid="GPU-00000000", at_ns=NOW_NS - 35 * S, kind="xid", value=63),),
        gaps=(Gap(begin_ns=NOW_NS - 56 * S, end_ns=NOW_NS - 49 * S),),
    )  # fmt: skip


class Host(App[None]):
    """An app with only the screen of one GPU, and fixed content."""

    CSS = TopApp.CSS

    def __init__(self, content: ScreenContent, past: HistorySource | None, uuid: str = "GPU-00000000") -> None:
        super().__init__()
        self.animation_level = "none"
        self.detail = GpuScreen(uuid, past, content)
        self._told = content

    def on_mount(self) -> None:
        self.push_screen(self.detail)
        self.call_after_refresh(self.show_content, self._told)

    def show_content(self, content: ScreenContent) -> None:
        self._told = content
        for state in self.detail.query(StatusLine):
            state.show_content(content, screen_state(content, None), self.size.width - 1, NOW_NS)
        self.detail.show_content(content)

    def on_resize(self) -> None:
        if self.detail.is_mounted:
            self.show_content(self._told)

    async def action_back(self) -> None:
        self.pop_screen()
