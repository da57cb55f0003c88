"""Tests of the contrast between text and background in every theme with fixed colours."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from textual.color import Color
from textual.theme import BUILTIN_THEMES

from gpuwatch.tui.contrast import LEAST_RATIO, WRITTEN_ON, contrast_ratio, make_legible
from gpuwatch.tui.text.words import Tone
from gpuwatch.tui.widgets.line_view import LineView
from gpuwatch.tui.widgets.status_line import Banner
from tests.gpuwatch.tui.frozen import ONE, travelling

THEMES = sorted(name for name in BUILTIN_THEMES if "ansi" not in name)  # ansi themes use the terminal's colours


def test_contrast_ratio_agrees_with_wcag() -> None:
    assert contrast_ratio(Color(0, 0, 0), Color(255, 255, 255)) == pytest.approx(21.0)
    assert contrast_ratio(Color(9, 9, 9), Color(9, 9, 9)) == pytest.approx(1.0)
    assert contrast_ratio(Color.parse("#767676"), Color(255, 255, 255)) == pytest.approx(4.54, abs=0.01), "the example of WCAG"


def test_every_theme_is_legible_on_the_screen() -> None:
    app = travelling(ONE)
    seen: dict[tuple[str, str], float] = {}

    async def lived() -> None:
        async with app.run_test(size=(100, 30)) as pilot:
            for theme in THEMES:
                app.theme = theme
                await pilot.pause()
                strips = app.screen.query(LineView).first()
                drawn = {str(tone): strips.get_component_rich_style(f"line-view--{tone}") for tone in Tone}
                for name, style in (drawn | {"banner": app.screen.query_one(Banner).rich_style}).items():
                    assert style.color is not None
                    assert style.bgcolor is not None
                    both = Color.from_rich_color(style.color), Color.from_rich_color(style.bgcolor)
                    seen[theme, name] = contrast_ratio(*both)
                variables = app.get_css_variables()
                for name, grounds in WRITTEN_ON.items():
                    for ground in grounds:
                        both = Color.parse(variables[name]), Color.parse(variables[ground])
                        seen[theme, f"{name} on {ground}"] = contrast_ratio(*both)

    asyncio.run(lived())
    assert len(seen) == len(THEMES) * (len(Tone) + 1 + sum(map(len, WRITTEN_ON.values())))
    assert {name: round(ratio, 2) for name, ratio in seen.items() if ratio < LEAST_RATIO - 0.05} == {}


def test_legible_and_terminal_colours_stay() -> None:
    grounds = dict(itertools.chain.from_iterable(((ground, "#000000") for ground in on) for on in WRITTEN_ON.values()))
    clear = {"text-warning": "#FFC473", **grounds}
    assert make_legible(clear) == clear
    own = {"text-warning": "ansi_yellow", "background": "ansi_default", "surface": "transparent", "panel": "transparent"}
    assert make_legible(own) == own
