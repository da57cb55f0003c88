"""Tests of the secondary screens."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Footer, Markdown

from annotate.output import report
from gpuwatch.errors import DaemonError
from gpuwatch.tui.app import TopApp
from gpuwatch.tui.preferences import PreferencesFile
from gpuwatch.tui.screens.explain_screen import ExplainScreen, ExplanationProvider
from gpuwatch.tui.screens.gpu_screen import GpuScreen
from gpuwatch.tui.screens.help_screen import HelpScreen
from gpuwatch.tui.screens.overview_screen import OverviewScreen, WindowList
from gpuwatch.tui.screens.processes_screen import ProcessesScreen
from gpuwatch.tui.screens.window_screen import WindowScreen
from gpuwatch.tui.widgets.gpu_list import GpuList
from gpuwatch.tui.widgets.row_list import RowList
from gpuwatch.tui.widgets.status_line import StatusLine
from gpuwatch.tui.widgets.text_lines import TextLines
from gpuwatch.view.live import Live
from tests.gpuwatch.tui.frozen import EIGHT, GONE, VERDICT, gpu, travelling
from tests.gpuwatch.tui.test_app import until
from tests.gpuwatch.tui.test_time_travel import shown, used


def test_enter_opens_a_line_and_a_number_opens_a_gpu() -> None:
    app = travelling(EIGHT)

    async def use(pilot: Pilot[None]) -> None:
        await pilot.press("down", "down", "enter")
        await until(pilot, lambda: isinstance(app.screen, GpuScreen))
        assert isinstance(app.screen, GpuScreen)
        assert app.screen.uuid == "GPU-00000001"
        await pilot.press("escape", "3")
        assert isinstance(app.screen, GpuScreen)
        assert app.screen.uuid == "GPU-00000003"
        await pilot.press("escape", "9")
        assert isinstance(app.screen, OverviewScreen), "there is no GPU 9"

    used(app, use)


def test_click_chooses_and_double_click_opens() -> None:
    app = travelling(EIGHT)

    async def use(pilot: Pilot[None]) -> None:
        await pilot.click(WindowList, offset=(5, 3))
        await pilot.press("enter")
        assert isinstance(app.screen, WindowScreen)
        await pilot.press("escape")
        await pilot.click(GpuList, offset=(5, 4), times=2)
        await until(pilot, lambda: isinstance(app.screen, GpuScreen))
        assert isinstance(app.screen, GpuScreen)
        assert app.screen.uuid == "GPU-00000001"

    used(app, use)


def test_open_window_shows_hazards_so_far_and_no_verdict() -> None:
    """The list shows an open window's hazards so far, and the window's screen shows `no verdict yet`."""
    app = travelling(EIGHT)

    async def use(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "so far: foreign process, power cap" in shown(app, WindowList))
        await pilot.click(WindowList, offset=(5, 1), times=2)
        await until(pilot, lambda: isinstance(app.screen, WindowScreen) and "no verdict yet" in shown(app, RowList))
        await pilot.press("c", "e")
        assert any("no verdict to copy" in each.message for each in app._notifications)

    used(app, use)


def test_c_copies_the_verdict_as_markdown() -> None:
    app = travelling(EIGHT)

    async def use(pilot: Pilot[None]) -> None:
        await pilot.click(WindowList, offset=(5, 3), times=2)
        await until(pilot, lambda: isinstance(app.screen, WindowScreen) and "REJECTED  gemm" in shown(app, RowList))
        await pilot.press("c")
        assert app.clipboard == report.markdown(VERDICT)
        assert any("clipboard as Markdown" in each.message for each in app._notifications)
        await pilot.press("a")
        await until(pilot, lambda: "clear: clock-drift" in shown(app, RowList))

    used(app, use)


def _keys_end(app: TopApp) -> int:
    """Return the column after the last key's name in the line of keys."""
    return max(key.region.right for key in app.screen.query_one(Footer).children) - 1  # each ends with a space


@pytest.mark.parametrize(
    ("pictures", "first", "state"), [([EIGHT], (), "LIVE"), ([EIGHT, GONE], (), "GONE"), ([EIGHT], ("left",), "PAST")]
)
def test_every_screen_shows_its_keys_in_eighty_columns(
    pictures: list[Live | DaemonError], first: tuple[str, ...], state: str
) -> None:
    app = travelling(*pictures)

    async def use(pilot: Pilot[None]) -> None:
        await pilot.press(*first)
        for keys in ((), ("0",), ("p",), ("v",), ("up", "enter")):  # up without a selection selects the last window
            await until(pilot, lambda: state in shown(app, StatusLine))
            await pilot.press(*keys)
            await until(pilot, lambda: state in shown(app, StatusLine) and bool(app.screen.query_one(Footer).children))
            await pilot.pause()
            assert _keys_end(app) <= 80, app.screen
            await pilot.press("escape")

    used(app, use, (80, 24))


def test_e_explains_a_finding() -> None:
    app = travelling(EIGHT)

    async def use(pilot: Pilot[None]) -> None:
        await pilot.click(WindowList, offset=(5, 3), times=2)
        await until(pilot, lambda: isinstance(app.screen, WindowScreen) and "contention-process" in shown(app, RowList))
        await pilot.press("e")
        await until(
            pilot, lambda: isinstance(app.screen, ExplainScreen) and "Why it matters" in app.screen.query_one(Markdown).source
        )
        await pilot.press("escape")
        assert isinstance(app.screen, WindowScreen)

    used(app, use)


def test_e_on_a_gpu_explains_its_clock_reasons() -> None:
    app = travelling(EIGHT)

    async def use(pilot: Pilot[None]) -> None:
        await pilot.press("down", "down", "down", "down", "e")
        await until(pilot, lambda: isinstance(app.screen, ExplainScreen) and "0x40" in app.screen.query_one(Markdown).source)
        assert "sw_power_cap" in app.screen.query_one(Markdown).source
        await pilot.press("q")
        assert isinstance(app.screen, OverviewScreen)

    used(app, use)


@pytest.mark.parametrize(
    ("mask", "words"),
    [(0, "no reason limits this GPU's clock"), (None, "the reasons behind this GPU's clock were not observed")],
)
def test_e_distinguishes_no_reason_from_no_observation(mask: int | None, words: str) -> None:
    app = travelling(replace(EIGHT, gpus=(gpu(event_reasons_mask=mask),), windows=()))

    async def use(pilot: Pilot[None]) -> None:
        await pilot.press("e")
        await until(pilot, lambda: [each.message for each in app._notifications] == [words])

    used(app, use)


def test_palette_explains_any_rule_or_reason() -> None:
    app = travelling(EIGHT)

    async def use(pilot: Pilot[None]) -> None:
        provider = ExplanationProvider(app.screen)
        await provider.startup()
        hits = [hit async for hit in provider.search("explain sw_power")]
        assert "Explain: sw_power_cap" in [hit.text for hit in hits]
        await pilot.press("ctrl+p", *"sw_power_cap")
        await pilot.pause(0.3)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, ExplainScreen))

    used(app, use)


def test_processes_have_owners_and_a_stored_sort_order(tmp_path: Path) -> None:
    """The processes screen marks own and foreign processes, and the monitor stores the sort order."""
    preferences_file = PreferencesFile(tmp_path / "top.json")
    app = travelling(EIGHT, preferences_file=preferences_file)

    async def use(pilot: Pilot[None]) -> None:
        await pilot.press("p")
        await until(pilot, lambda: isinstance(app.screen, ProcessesScreen))
        said = app.screen.query(TextLines).last().text
        assert "F foreign" in said
        assert "o own" in said
        await pilot.press("s")
        assert "by memory" in app.screen.query(TextLines).last().text

    used(app, use)
    assert json.loads((tmp_path / "top.json").read_text()) == {"sort": "memory"}
    assert PreferencesFile(tmp_path / "top.json").preferences.sort == "memory"


def test_theme_and_rate_are_stored_and_help_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "below" / "top.json"
    app = travelling(EIGHT, preferences_file=PreferencesFile(path))

    async def use(pilot: Pilot[None]) -> None:
        await pilot.press("t", "plus", "question_mark")
        assert isinstance(app.screen, HelpScreen)
        assert str(path) in shown(app, TextLines)

    used(app, use)
    assert json.loads(path.read_text()) == {"theme": "textual-light", "rate_hz": 10.0}
    again = travelling(EIGHT, preferences_file=PreferencesFile(path))

    async def look(pilot: Pilot[None]) -> None:
        assert not again.current_theme.dark

    used(again, look)


def test_user_keys_replace_default_keys(tmp_path: Path) -> None:
    """The user's keys replace the default keys, in the help too."""
    path = tmp_path / "top.json"
    path.write_text('{"keys": {"pause": "f5", "processes": "ctrl+o"}}')
    app = travelling(EIGHT, preferences_file=PreferencesFile(path))

    async def use(pilot: Pilot[None]) -> None:
        await pilot.press("space")
        assert "LIVE" in shown(app, StatusLine)
        await pilot.press("f5")
        await until(pilot, lambda: "PAUSED" in shown(app, StatusLine))
        await pilot.press("question_mark")
        assert "f5" in shown(app, TextLines)
        await pilot.press("escape", "ctrl+o")
        assert isinstance(app.screen, ProcessesScreen)

    used(app, use)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "Expecting property name"),
        ("[]", "expected an object, found list"),
        ('{"colour": 1}', "expected keys, rate_hz, sort, theme, found 'colour'"),
        ('{"rate_hz": 1000}', "rate_hz: expected one of 1, 2, 4, 10, found 1000"),
        ('{"theme": "no-such"}', "theme: expected a theme of the palette, found 'no-such'"),
        ('{"keys": {"explode": "x"}}', "keys: expected one of all, back"),
        ('{"keys": {"pause": "ctrl+nonsense"}}', "keys: pause: expected keys such as"),
        ('{"keys": []}', "keys: expected an object of actions and keys"),
    ],
)
def test_bad_preferences_are_reported_and_ignored(tmp_path: Path, content: str, said: str) -> None:
    """The monitor reports a mistake in the preferences file, ignores the file, and leaves the file unchanged."""
    path = tmp_path / "top.json"
    path.write_text(content)
    app = travelling(EIGHT, preferences_file=PreferencesFile(path))

    async def use(pilot: Pilot[None]) -> None:
        assert any(said in each.message and str(path) in each.message for each in app._notifications)
        await pilot.press("space")
        await until(pilot, lambda: "PAUSED" in shown(app, StatusLine))

    used(app, use)
    assert path.read_text() == content


def test_palette_holds_actions_of_the_screen() -> None:
    app = travelling(EIGHT)

    async def use(pilot: Pilot[None]) -> None:
        titles = [command.title for command in app.get_system_commands(app.screen)]
        assert {"Earlier by 1 s", "Later by 10 s", "Go to", "Live", "Processes", "Events", "Open", "Faster"} <= set(titles)
        assert {"Choose the GPU or window above", "Choose the GPU or window below"} <= set(titles)
        assert len(set(titles)) == len(titles)
        await pilot.press("p")
        assert "Sort" in {command.title for command in app.get_system_commands(app.screen)}

    used(app, use)
