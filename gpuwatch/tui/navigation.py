"""Which screen opens on which wish, over the one there is; and the way back."""

from __future__ import annotations

from textual import on
from textual.screen import Screen

from gpuwatch.tui import requests
from gpuwatch.tui.data_interfaces import HistorySource
from gpuwatch.tui.preferences import PreferencesFile
from gpuwatch.tui.preferences_app import PreferencesApp
from gpuwatch.tui.screens.help_screen import HelpScreen


class NavigationApp(PreferencesApp):
    """A screen is imported when it is first wanted: the first picture waits for none of them."""

    def __init__(self, memory: PreferencesFile, rate_hz: float | None, past: HistorySource | None) -> None:
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
        from gpuwatch.tui.screens.processes_screen import ProcessesScreen

        if not isinstance(self.screen, ProcessesScreen):
            await self._over(ProcessesScreen(self._memory.kept.sort or ""))

    async def action_events(self) -> None:
        from gpuwatch.tui.screens.events_screen import EventsScreen

        if not isinstance(self.screen, EventsScreen):
            await self._over(EventsScreen(self._past))

    async def action_help(self) -> None:
        await self.push_screen(HelpScreen(list(self.screen.active_bindings.values()), self._memory.path, self.actions()))

    @on(requests.OpenGpu)
    async def open_gpu(self, request: requests.OpenGpu) -> None:
        from gpuwatch.tui.screens.gpu_screen import GpuScreen

        await self._over(GpuScreen(request.uuid, self._past))

    @on(requests.OpenWindow)
    async def open_window(self, request: requests.OpenWindow) -> None:
        from gpuwatch.tui.screens.window_screen import WindowScreen

        await self._over(WindowScreen(request.run, self._past))

    @on(requests.ExplainNames)
    async def explain(self, request: requests.ExplainNames) -> None:
        from gpuwatch.tui.screens.explain_screen import ExplainScreen

        await self.push_screen(ExplainScreen(request.names))

    @on(requests.Redraw)
    def redraw(self) -> None:
        self.draw()

    @on(requests.StoreSortOrder)
    def sorted_by(self, request: requests.StoreSortOrder) -> None:
        self.remember(sort=request.name)
