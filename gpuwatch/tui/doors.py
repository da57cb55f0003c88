"""Which screen opens on which wish, over the one there is; and the way back."""

from __future__ import annotations

from textual import on
from textual.screen import Screen

from gpuwatch.tui import wishes
from gpuwatch.tui.help import Help
from gpuwatch.tui.kept import Memory
from gpuwatch.tui.seams import Past
from gpuwatch.tui.tuned import Tuned


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
        from gpuwatch.tui.processes import Processes

        if not isinstance(self.screen, Processes):
            await self._over(Processes(self._memory.kept.sort or ""))

    async def action_events(self) -> None:
        from gpuwatch.tui.events import Events

        if not isinstance(self.screen, Events):
            await self._over(Events(self._past))

    async def action_help(self) -> None:
        await self.push_screen(Help(list(self.screen.active_bindings.values()), self._memory.path, self.actions()))

    @on(wishes.OpenGpu)
    async def open_gpu(self, wish: wishes.OpenGpu) -> None:
        from gpuwatch.tui.gpu import Gpu

        await self._over(Gpu(wish.uuid, self._past))

    @on(wishes.OpenWindow)
    async def open_window(self, wish: wishes.OpenWindow) -> None:
        from gpuwatch.tui.judged import Judged

        await self._over(Judged(wish.run, self._past))

    @on(wishes.ExplainThese)
    async def explain(self, wish: wishes.ExplainThese) -> None:
        from gpuwatch.tui.explain import Explain

        await self.push_screen(Explain(wish.names))

    @on(wishes.Redraw)
    def redraw(self) -> None:
        self.draw()

    @on(wishes.SortedBy)
    def sorted_by(self, wish: wishes.SortedBy) -> None:
        self.remember(sort=wish.name)
