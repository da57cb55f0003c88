"""What the user tunes: theme, rate, keys; remembered, and every action in the palette."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, ClassVar

from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.command import CommandPalette, Provider
from textual.screen import Screen
from textual.theme import Theme
from textual.timer import Timer

from annotate.output import report
from gpuwatch.tui.contrast import make_legible
from gpuwatch.tui.preferences import RATES_HZ, PreferencesFile, checked_keys

RATE_HZ = 4.0


def _explanations() -> type[Provider]:
    from gpuwatch.tui.screens.explain_screen import ExplanationProvider

    return ExplanationProvider


class PreferencesApp(App[None]):
    """An app that draws so many times a second, looks and listens as its user wants."""

    COMMANDS: ClassVar[Any] = App.COMMANDS | {_explanations}  # textual's own type for it
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("t", "light", "light/dark", id="light", show=False, tooltip="Light or dark; the palette has every theme"),
        Binding("plus,equals_sign", "rate(1)", "faster", id="faster", show=False, tooltip="More pictures a second"),
        Binding("minus", "rate(-1)", "slower", id="slower", show=False, tooltip="Fewer pictures a second"),
    ]

    def __init__(self, memory: PreferencesFile, rate_hz: float | None) -> None:
        super().__init__()
        self._memory = memory
        self._rate_hz = rate_hz or memory.kept.rate_hz or RATE_HZ
        self._timer: Timer | None = None

    def get_css_variables(self) -> dict[str, str]:
        return make_legible(super().get_css_variables())

    def tick(self) -> None:
        """What is done so many times a second."""

    def begin(self) -> None:
        """Once mounted: as it was left, and from now on every change is kept."""
        kept = self._memory.kept
        complaints = [self._memory.complaint] if self._memory.complaint else []
        if kept.theme is not None:
            if kept.theme in self.available_themes:
                self.theme = kept.theme
            else:
                complaints.append(f"{self._memory.path}: theme: expected one of the palette's, found {kept.theme!r}")
        if kept.keys:
            if (wrong := checked_keys(kept.keys, self.actions())) is None:
                self.set_keymap(kept.keys)
            else:
                complaints.append(f"{self._memory.path}: {wrong}; no key is changed")
        for complaint in complaints:
            self.notify(report.plain(complaint), severity="warning", timeout=8)
        self.theme_changed_signal.subscribe(self, self._theme_is)
        self._timer = self.set_interval(1 / self._rate_hz, self.tick)

    def actions(self) -> set[str]:
        """The names under which keys can be given to actions, of every screen of ours."""
        from gpuwatch.tui.screens.events_screen import EventsScreen
        from gpuwatch.tui.screens.gpu_screen import GpuScreen
        from gpuwatch.tui.screens.overview_screen import OverviewScreen
        from gpuwatch.tui.screens.processes_screen import ProcessesScreen
        from gpuwatch.tui.screens.screen_base import SecondaryScreen
        from gpuwatch.tui.screens.window_screen import WindowScreen

        every = [*PreferencesApp.BINDINGS, *self.BINDINGS]
        for screen in (OverviewScreen, SecondaryScreen, GpuScreen, WindowScreen, ProcessesScreen, EventsScreen):
            every += screen.BINDINGS
        return {binding.id for binding in Binding.make_bindings(every) if binding.id}

    def remember(self, **changed: Any) -> None:
        if (wrong := self._memory.remember(**changed)) is not None:
            self.notify(report.plain(wrong), severity="warning", timeout=8)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The palette holds every action: the app's, and the screen's it covers."""
        yield from (each for each in super().get_system_commands(screen) if each.title != "Keys")  # Help lists ours
        said: set[tuple[str, str]] = set()
        under = self.screen_stack[-2] if isinstance(self.screen, CommandPalette) else self.screen
        for node, bindings in ((self, [*PreferencesApp.BINDINGS, *self.BINDINGS]), (under, type(under).BINDINGS)):
            for binding in Binding.make_bindings(bindings):
                title = binding.description.capitalize()
                if binding.action == "quit" or not title or (title, binding.tooltip) in said or "number(" in binding.action:
                    continue
                said.add((title, binding.tooltip))
                help_text = binding.tooltip
                if "step(" in binding.action or "choose(" in binding.action:  # one name, several ways to go
                    title, help_text = f"{title} {help_text[0].lower()}{help_text[1:]}", ""
                yield SystemCommand(title, help_text, partial(self.run_action, binding.action, node))

    def action_light(self) -> None:
        self.theme = "textual-dark" if not self.current_theme.dark else "textual-light"

    def action_rate(self, by: int) -> None:
        place = min(range(len(RATES_HZ)), key=lambda index: abs(RATES_HZ[index] - self._rate_hz))
        self._rate_hz = RATES_HZ[min(max(place + by, 0), len(RATES_HZ) - 1)]
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_interval(1 / self._rate_hz, self.tick)
        self.remember(rate_hz=self._rate_hz)
        self.notify(f"{self._rate_hz:g} pictures a second", timeout=2)

    def _theme_is(self, theme: Theme) -> None:
        self.remember(theme=theme.name)
