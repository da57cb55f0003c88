"""Which screen opens on which wish, over the one there is; and the way back."""

from __future__ import annotations

from textual import on
from textual.screen import Screen

from gpuwatch.tui import requests
from gpuwatch.tui.data_interfaces import Past
from gpuwatch.tui.preferences import Memory
from gpuwatch.tui.preferences_app import Tuned
from gpuwatch.tui.screens.help_screen import Help


class Doors(Tuned):
    """A screen is imported when it is first wanted: the first picture waits for none of them."""

    def __init__(self, memory: Memory, rate_hz: float | None, past: Past | None) -> None:
        super().__init__(memory, rate_hz)
        self._past = past

    def draw(self) -> None:
        """Tell the topmost screen what there is to show."""

    async def action_back(self) -> None:
        if len(self.screen_stack) > 1:
            self.pop_screen()
            self.draw()

    async def _over(self, screen: Screen[None]) -> None:
        await self.push_screen(screen)
        self.draw()

    async def action_processes(self) -> None:
        from gpuwatch.tui.screens.processes_screen import Processes

        if not isinstance(self.screen, Processes):
            await self._over(Processes(self._memory.kept.sort or ""))

    async def action_events(self) -> None:
        from gpuwatch.tui.screens.events_screen import Events

        if not isinstance(self.screen, Events):
            await self._over(Events(self._past))

    async def action_help(self) -> None:
        await self.push_screen(Help(list(self.screen.active_bindings.values()), self._memory.path, self.actions()))

    @on(requests.OpenGpu)
    async def open_gpu(self, wish: requests.OpenGpu) -> None:
        from gpuwatch.tui.screens.gpu_screen import Gpu

        await self._over(Gpu(wish.uuid, self._past))

    @on(requests.OpenWindow)
    async def open_window(self, wish: requests.OpenWindow) -> None:
        from gpuwatch.tui.screens.window_screen import Judged

        await self._over(Judged(wish.run, self._past))

    @on(requests.ExplainThese)
    async def explain(self, wish: requests.ExplainThese) -> None:
        from gpuwatch.tui.screens.explain_screen import Explain

        await self.push_screen(Explain(wish.names))

    @on(requests.Redraw)
    def redraw(self) -> None:
        self.draw()

    @on(requests.SortedBy)
    def sorted_by(self, wish: requests.SortedBy) -> None:
        self.remember(sort=wish.name)
