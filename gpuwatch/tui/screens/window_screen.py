"""The screen of one window: verdicts, findings with figures and remedies, and the jump to a finding's moment."""

import asyncio
from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType

from annotate.output import report
from annotate.verdict import Finding, Verdict
from gpuwatch.errors import GpuwatchError
from gpuwatch.tui.data_interfaces import HistorySource, ScreenContent
from gpuwatch.tui.requests import ExplainNames, GoToMoment
from gpuwatch.tui.screens.screen_base import ChoosingScreen, SecondaryScreen
from gpuwatch.tui.text import finding_words, words
from gpuwatch.tui.text.words import Piece, Tone
from gpuwatch.tui.widgets.row_list import RowList
from gpuwatch.wire.shown import Shown


class WindowScreen(ChoosingScreen, SecondaryScreen):
    """The findings of one window, worst first."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "choose(-1)", "choose", id="up", show=False, tooltip="The finding above"),
        Binding("down", "choose(1)", "choose", id="down", show=False, tooltip="The finding below"),
        Binding("enter", "open", "jump", id="open", key_display="⏎", tooltip="Go back to the time of the finding"),
        Binding("e", "explain", "explain", id="explain", tooltip="The page of the finding's rule"),
        Binding("c", "copy", "copy", id="copy", tooltip="Copy the verdict as Markdown to the terminal's clipboard"),
        # The footer fits nine keys in 80 columns; the page's text names this key.
        Binding("a", "all", "all", id="all", show=False, tooltip="Show clear and unchecked rules too"),
        Binding("left", "app.step(-1)", "earlier", id="earlier", show=False, tooltip="By 1 s"),
    ]

    def __init__(self, run: str, past: HistorySource | None, content: ScreenContent) -> None:
        super().__init__()
        self._run = run
        self._past = past
        self._window: Shown | None = None
        self._content = content
        self._verdicts: Sequence[Verdict] = ()
        self._asked: str | None = None  # the window's status when its verdicts were queried
        self._why = "reading the verdict" if past is not None else "no store holds the verdict"
        self._every = False

    def show_content(self, content: ScreenContent) -> None:
        self._content = content
        found = next((each for each in content.live.windows if each.run == self._run), None)
        self._window = found or self._window
        status = found.status if found is not None else self._asked or ""
        if self._past is not None and not self._verdicts and status != self._asked:
            self._asked = status
            self.run_worker(self._ask(self._past))
        self.draw()

    async def _ask(self, past: HistorySource) -> None:
        try:
            self._verdicts = await asyncio.to_thread(past.verdicts, self._run)
            self._why = "no verdict yet"
        except GpuwatchError as error:
            self._why = str(error)
        if self._chosen is None and self._verdicts:
            self._chosen = next(iter(self._findings()), None)
        self.draw()

    def _findings(self) -> dict[str, tuple[Verdict, Finding]]:
        return {
            f"{number} {finding.rule}": (verdict, finding)
            for number, verdict in enumerate(self._verdicts)
            for finding in verdict.causes
        }

    def draw(self) -> None:
        if not self.is_attached:
            return
        rows: list[tuple[str | None, list[Piece]]] = []
        for number, verdict in enumerate(self._verdicts):
            head, tail = finding_words.around(verdict, self.columns, every=self._every)
            if number == 0:
                began = (
                    f"    began {self._content.format_time(verdict.begin_ns)}, {verdict.claim}, run {report.plain(self._run)}"
                )
                head.insert(1, [Piece(words.cut(began, self.columns), Tone.DIM)])
            rows += [(None, line) for line in head]
            for finding in verdict.causes:
                block = finding_words.lines(finding, self._content.format_time, self.columns)
                rows += [(f"{number} {finding.rule}", line) for line in block]
            rows += [(None, line) for line in (*tail, [])]
        if not self._verdicts:
            why = [Piece(words.cut(f"  {report.plain(self._why)}", self.columns), Tone.DIM)]
            rows = [(None, self._title()), (None, why)]
        self.query_one(RowList).show_rows(rows, self._chosen)

    def _title(self) -> list[Piece]:
        window = self._window
        if window is None:
            return [Piece(words.cut(f"window {report.plain(self._run)}", self.columns))]
        chip = words.status(window.status)
        label = words.cut(report.plain(window.label or window.run), max(self.columns - len(chip.name) - 4, 8))
        return [Piece(f"{chip.letter} {chip.name}  ", chip.tone), Piece(label)]

    def names(self) -> list[str]:
        return list(self._findings())

    def action_open(self) -> None:
        chosen = self._findings().get(self._chosen or "")
        if chosen is not None:
            verdict, finding = chosen
            self.post_message(GoToMoment(finding.span_ns[0] if finding.span_ns else verdict.begin_ns, verdict.device_uuid))
        elif self._window is not None:
            self.post_message(GoToMoment(self._window.begin_ns, next(iter(self._window.uuids), None)))

    def action_explain(self) -> None:
        chosen = self._findings().get(self._chosen or "")
        if chosen is not None:
            self.post_message(ExplainNames((chosen[1].rule,)))
        else:
            self.notify("no finding to explain; Ctrl+P explains any rule", timeout=4)

    def action_copy(self) -> None:
        if not self._verdicts:
            self.notify("no verdict to copy yet", severity="warning", timeout=4)
            return
        self.app.copy_to_clipboard("\n".join(report.markdown(verdict) for verdict in self._verdicts))
        self.notify(
            "copied the verdict to the terminal's clipboard as Markdown (OSC 52; tmux: set -g set-clipboard on)", timeout=6
        )

    def action_all(self) -> None:
        self._every = not self._every
        self.draw()
