"""One GPU's history, its visible range, and the queries for missing parts."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

from gpuwatch.tui.background_queries import HistoryFetcher
from gpuwatch.tui.data_interfaces import HistorySource, ScreenContent
from gpuwatch.tui.gpu_history import GpuHistory
from gpuwatch.tui.text.gpu_chart import ChartView
from gpuwatch.tui.time_range import TimeRange, Viewport
from gpuwatch.view.live import LiveGpu
from gpuwatch.wire.shown import Shown

DRAWN_NS = 450_000_000  # draw live curves at every second answer (4 answers per second)
FETCHED_NS = 1_000_000_000  # interval of queries for readings between live answers
LATER_NS = 1_000_000_000  # query the windows again after the end of the range moved this far
_LIVE_ONLY = "curves hold only the live answers to this screen"


class GpuTimeline:
    """The data behind the screen of one GPU; the range stays when the user changes to another GPU."""

    def __init__(self, uuid: str, past: HistorySource | None) -> None:
        self._past = past
        self.range = TimeRange()
        self._span_ns: tuple[int, int] | None = None  # first and last moment of the past
        self._later: tuple[int, tuple[Shown, ...]] | None = None  # in the past: the end of the range, and the windows then
        self.turn_to(uuid)

    def turn_to(self, uuid: str) -> None:
        """Switch to another GPU with an empty history."""
        self.uuid, self.history, self._fetcher = uuid, GpuHistory(), HistoryFetcher(self._past)

    def viewport(self, content: ScreenContent, cells_count: int) -> Viewport:
        """Return the times and the width that position the range."""
        last_ns = self._span_ns[1] if self._span_ns is not None else 0
        newest_ns = content.live.at_ns if content.past_ns is None else max(last_ns, content.past_ns)
        whole_ns = self._span_ns if content.live.source.startswith("replay:") else None
        return Viewport(newest_ns, content.past_ns, max(cells_count, 1), whole_ns, self.history.first_ns)

    def redraw_every_ns(self, viewport: Viewport) -> int:
        """Return the least time between drawings; a longer range is drawn less often."""
        return min(max(DRAWN_NS, self.range.dot_ns(viewport) // 2), 2_000_000_000)

    def view(self, gpu: LiveGpu, content: ScreenContent, viewport: Viewport) -> ChartView:
        begin_ns, end_ns = self.range.edges(viewport)
        refusal = self._fetcher.refusal
        return ChartView(
            trace=self.history.trace,
            device=replace(gpu.device, power_limit_w=gpu.said("power_limit_w") or gpu.device.power_limit_w),
            begin_ns=begin_ns,
            end_ns=end_ns,
            zero_ns=viewport.past_ns if viewport.past_ns is not None else content.live.at_ns,
            format_time=content.format_time,
            cursor_ns=self.range.cursor(viewport),
            windows=self._later[1] if self._later is not None and viewport.past_ns is not None else content.live.windows,
            notice=_LIVE_ONLY if self._past is None else f"{refusal}; {_LIVE_ONLY}" if refusal is not None else None,
        )

    def next_fetch(self, viewport: Viewport, at_ns: int) -> Callable[[], Awaitable[None]] | None:
        """Return the next query, or None if the visible range is complete, or no query may run now."""
        if not self._fetcher.can_fetch(at_ns):
            return None
        begin_ns, range_end_ns = self.range.edges(viewport)
        end_ns = min(range_end_ns, viewport.newest_ns)
        is_following = viewport.past_ns is None and self.range.end_ns is None
        interval_ns = self.history.next_query(begin_ns, end_ns, every_ns=FETCHED_NS if is_following else 0)
        if interval_ns is not None:
            return partial(self._fetch_trace, interval_ns, viewport.newest_ns, at_ns)
        if viewport.past_ns is not None and (self._later is None or abs(self._later[0] - end_ns) >= LATER_NS):
            return partial(self._fetch_windows, end_ns, at_ns)
        return None

    async def _fetch_trace(self, interval_ns: tuple[int, int], now_ns: int, at_ns: int) -> None:
        history, uuid = self.history, self.uuid
        answer = await self._fetcher.fetch(lambda past: (past.trace(uuid, *interval_ns), past.span_ns()), at_ns)
        if answer is not None:
            trace, self._span_ns = answer
            history.add_answer(trace, *interval_ns, now_ns=now_ns)

    async def _fetch_windows(self, end_ns: int, at_ns: int) -> None:
        """Read the windows as of the end of the range; at the displayed moment, some would still be open."""
        live = await self._fetcher.fetch(lambda past: past.live(end_ns), at_ns)
        if live is not None:
            self._later = end_ns, live.windows
