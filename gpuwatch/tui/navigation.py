"""Navigation to the screens that open over the first one."""

from textual import on
from textual.screen import Screen

from gpuwatch.tui import requests
from gpuwatch.tui.data_interfaces import HistorySource, ScreenContent
from gpuwatch.tui.preferences import PreferencesFile
from gpuwatch.tui.preferences_app import PreferencesApp
from gpuwatch.tui.screens.help_screen import HelpScreen


class NavigationApp(PreferencesApp):
    """An app that opens and closes screens.

    Except for the help, a screen is imported when the user first opens it: the first picture does not wait for imports.
    """

    def __init__(self, preferences_file: PreferencesFile, rate_hz: float | None, past: HistorySource | None) -> None:
        super().__init__(preferences_file, rate_hz)
        self._past = past
        self.content: ScreenContent | None = None  # content of the last drawing

    def draw(self) -> None:
        """Hand the topmost screen its content."""

    async def action_back(self) -> None:
        if len(self.screen_stack) > 1:
            self.pop_screen()
            self.draw()

    async def _open(self, screen: Screen[None]) -> None:
        await self.push_screen(screen)
        self.draw()

    async def action_processes(self) -> None:
        from gpuwatch.tui.screens.processes_screen import ProcessesScreen

        if not isinstance(self.screen, ProcessesScreen):
            await self._open(ProcessesScreen(self._preferences_file.preferences.sort or ""))

    async def action_events(self) -> None:
        from gpuwatch.tui.screens.events_screen import EventsScreen

        if not isinstance(self.screen, EventsScreen):
            await self._open(EventsScreen(self._past))

    async def action_help(self) -> None:
        await self.push_screen(
            HelpScreen(list(self.screen.active_bindings.values()), self._preferences_file.path, self.action_names())
        )

    @on(requests.OpenGpu)
    async def open_gpu(self, request: requests.OpenGpu) -> None:
        from gpuwatch.tui.screens.gpu_screen import GpuScreen

        if self.content is not None:
            await self._open(GpuScreen(request.uuid, self._past, self.content))

    @on(requests.OpenWindow)
    async def open_window(self, request: requests.OpenWindow) -> None:
        from gpuwatch.tui.screens.window_screen import WindowScreen

        if self.content is not None:
            await self._open(WindowScreen(request.run, self._past, self.content))

    @on(requests.ExplainNames)
    async def explain(self, request: requests.ExplainNames) -> None:
        from gpuwatch.tui.screens.explain_screen import ExplainScreen

        await self.push_screen(ExplainScreen(request.names))

    @on(requests.Redraw)
    def redraw(self) -> None:
        self.draw()

    @on(requests.StoreSortOrder)
    def store_sort_order(self, request: requests.StoreSortOrder) -> None:
        self.store_preferences(sort=request.name)
