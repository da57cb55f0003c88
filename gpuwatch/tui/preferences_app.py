"""The user's stored theme, redraw rate and keys, and the commands of the palette."""

from collections.abc import Iterable
from functools import partial
from typing import Any, ClassVar

from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.command import CommandPalette, Provider
from textual.screen import Screen
from textual.timer import Timer

from annotate.output import report
from gpuwatch.tui.contrast import make_legible
from gpuwatch.tui.preferences import RATES_HZ, PreferencesFile, check_keys

RATE_HZ = 4.0


def _explanation_provider() -> type[Provider]:
    from gpuwatch.tui.screens.explain_screen import ExplanationProvider

    return ExplanationProvider


class PreferencesApp(App[None]):
    """An app with its user's theme, keys and redraw rate."""

    COMMANDS: ClassVar[Any] = App.COMMANDS | {_explanation_provider}  # Any: textual's own annotation
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "t",
            "light",
            "light/dark",
            id="light",
            show=False,
            tooltip="Change the theme; the palette lists all themes",
        ),
        Binding("plus,equals_sign", "rate(1)", "faster", id="faster", show=False, tooltip="Draw more frames per second"),
        Binding("minus", "rate(-1)", "slower", id="slower", show=False, tooltip="Draw fewer frames per second"),
    ]

    def __init__(self, preferences_file: PreferencesFile, rate_hz: float | None) -> None:
        super().__init__()
        self._preferences_file = preferences_file
        self._rate_hz = rate_hz or preferences_file.preferences.rate_hz or RATE_HZ
        self._timer: Timer | None = None

    def get_css_variables(self) -> dict[str, str]:
        return make_legible(super().get_css_variables())

    def tick(self) -> None:
        """Poll and redraw, at the redraw rate; the base class does nothing."""

    def apply_preferences(self) -> None:
        """Apply the stored preferences after the mount, start the redraw timer, and store later changes of the theme."""
        stored, path = self._preferences_file.preferences, self._preferences_file.path
        complaints = [self._preferences_file.complaint] if self._preferences_file.complaint else []
        if stored.theme is not None:
            if stored.theme in self.available_themes:
                self.theme = stored.theme
            else:
                complaints.append(f"{path}: theme: expected a theme of the palette, found {stored.theme!r}")
        if stored.keys:
            if (problem := check_keys(stored.keys, self.action_names())) is None:
                self.set_keymap(stored.keys)
            else:
                complaints.append(f"{path}: {problem}; no key is changed")
        for complaint in complaints:
            self.notify(report.plain(complaint), severity="warning", timeout=8)
        self.theme_changed_signal.subscribe(self, lambda theme: self.store_preferences(theme=theme.name))
        self._timer = self.set_interval(1 / self._rate_hz, self.tick)

    def action_names(self) -> set[str]:
        """Return the names of the actions whose keys the user can change, on every screen of gpuwatch."""
        from gpuwatch.tui.screens import (
            events_screen,
            gpu_screen,
            overview_screen,
            processes_screen,
            screen_base,
            window_screen,
        )

        every = [
            *self._app_bindings(),
            *overview_screen.OverviewScreen.BINDINGS,
            *screen_base.SecondaryScreen.BINDINGS,
            *gpu_screen.GpuScreen.BINDINGS,
            *window_screen.WindowScreen.BINDINGS,
            *processes_screen.ProcessesScreen.BINDINGS,
            *events_screen.EventsScreen.BINDINGS,
        ]
        return {binding.id for binding in Binding.make_bindings(every) if binding.id}

    def _app_bindings(self) -> list[BindingType]:
        """Return the bindings of the app and of its gpuwatch bases, without textual's own bindings."""
        classes = [each for each in reversed(type(self).__mro__) if issubclass(each, PreferencesApp)]
        return [binding for each in classes for binding in vars(each).get("BINDINGS", [])]

    def store_preferences(self, **changed: Any) -> None:
        if (problem := self._preferences_file.store(**changed)) is not None:
            self.notify(report.plain(problem), severity="warning", timeout=8)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Yield the palette's commands: textual's own, and the actions of the app and of the topmost screen."""
        yield from (each for each in super().get_system_commands(screen) if each.title != "Keys")  # the help lists these keys
        offered: set[tuple[str, str]] = set()
        under = self.screen_stack[-2] if isinstance(self.screen, CommandPalette) else self.screen
        for node, bindings in ((self, self._app_bindings()), (under, type(under).BINDINGS)):
            for binding in Binding.make_bindings(bindings):
                title = binding.description.capitalize()
                if binding.action == "quit" or not title or (title, binding.tooltip) in offered or "number(" in binding.action:
                    continue
                offered.add((title, binding.tooltip))
                help_text = binding.tooltip
                if "step(" in binding.action or "choose(" in binding.action:  # one name may have several bindings
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
        self.store_preferences(rate_hz=self._rate_hz)
        self.notify(f"{self._rate_hz:g} frames per second", timeout=2)
