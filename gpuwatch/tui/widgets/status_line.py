"""The first lines of every screen: the moment, the counts, and a banner over simulated or replayed data."""

from enum import StrEnum
from pathlib import Path

from annotate.evidence import Lane
from annotate.output import report
from gpuwatch.tui.data_interfaces import ScreenContent
from gpuwatch.tui.text import gpu_words, words
from gpuwatch.tui.text.words import Piece, Tone
from gpuwatch.tui.widgets.text_lines import TextLines
from gpuwatch.view.live import Live

LEAST_COLUMNS, LEAST_LINES = 80, 24  # least size that fits every key and the table of a few GPUs
STARTABLE = ("unreachable", "gone")  # codes of failures after which a daemon can be started
_SILENT = (*STARTABLE, "silent", "bad-answer")  # other codes are refusals by a running daemon


class ScreenState(StrEnum):
    """The age and origin of the displayed content."""

    ASKING = "ASKING"
    LIVE = "LIVE"
    PAUSED = "PAUSED"
    STALE = "STALE"
    GONE = "GONE"
    REFUSED = "REFUSED"
    PAST = "PAST"


_LOOKS = {  # mark and tone
    ScreenState.ASKING: ("…", Tone.NOTE),
    ScreenState.LIVE: ("●", Tone.GOOD),
    ScreenState.PAUSED: ("‖", Tone.NOTE),
    ScreenState.STALE: ("!", Tone.BAD),
    ScreenState.GONE: ("×", Tone.BAD),
    ScreenState.REFUSED: ("×", Tone.BAD),
    ScreenState.PAST: ("◂", Tone.WARN),
}


def screen_state(content: ScreenContent | None, problem: str | None, code: str = "gone") -> ScreenState:
    """Return the state of the screen; ASKING until the first answer.  ``code`` is the problem's, as in DaemonError."""
    if content is not None and content.past_ns is not None:
        return ScreenState.PAST
    if problem is not None:
        return ScreenState.GONE if code in _SILENT else ScreenState.REFUSED
    if content is None:
        return ScreenState.ASKING
    if content.is_paused:
        return ScreenState.PAUSED
    answering = [gpu for gpu in content.live.gpus if gpu.lost is None and Lane.FAST in gpu.rows]
    stale = [gpu for gpu in answering if gpu_words.stale_s(gpu, content.live.at_ns) is not None]
    return ScreenState.STALE if answering and len(stale) == len(answering) else ScreenState.LIVE


class StatusLine(TextLines):
    """The screen's state, the displayed time, and the numbers of GPUs and open windows."""

    def show_content(
        self, content: ScreenContent | None, state: ScreenState, width: int, now_ns: int | None, *, is_small: bool = False
    ) -> None:
        """Show the state; ``now_ns`` is the time of the last live answer, None without one.

        ``is_small`` means a terminal smaller than the screens need; a note then replaces the counts of GPUs and windows.
        """
        mark, tone = _LOOKS[state]
        line, back = [Piece(" gpuwatch  "), Piece(f"{mark} {state.value}", tone)], ""
        if content is not None:
            at_ns = content.live.at_ns
            line += [Piece(f"  {content.format_time(at_ns)}", Tone.PLAIN if state is ScreenState.PAST else Tone.DIM)]
            if state is ScreenState.PAST and now_ns is not None:
                line += [Piece(f", {words.ago(max(0, now_ns - at_ns) / 1e9)} ago", Tone.PLAIN)]
                back = "; l goes back to live"
        room = width - sum(len(piece.text) for piece in line)
        if state in (ScreenState.GONE, ScreenState.REFUSED):  # ``Notice`` gives the reason
            self.show([line])
            return
        if content is None:
            line += [Piece(words.cut("  connecting to the daemon, or starting one", room), Tone.DIM)]
        else:
            opened_count = sum(each.end_ns is None for each in content.live.windows)
            said = (
                f"  enlarge to {LEAST_COLUMNS}×{LEAST_LINES}: some text is cut off"
                if is_small
                else f"  {words.counted(len(content.live.gpus), 'GPU')}, {words.counted(opened_count, 'open window')}"
            )
            line += [Piece(words.cut(said + (back if len(said + back) <= room else ""), room), Tone.DIM)]
        self.show([line])


class Notice(TextLines):
    """The reason why the daemon gives no readings, in full, and the key that helps."""

    def show_problem(self, state: ScreenState, problem: str | None, code: str) -> None:
        self.display = problem is not None and state in (ScreenState.GONE, ScreenState.REFUSED)
        if state is ScreenState.REFUSED:
            helps = "After that daemon has stopped, r starts another."
        else:
            helps = "r starts a daemon." if code in STARTABLE else ""
        self.show([[Piece(f"{report.plain(problem or '')}. {helps}".rstrip())]])


class Banner(TextLines):
    """A line shown over simulated GPUs and recordings."""

    def show_live(self, live: Live) -> None:
        replayed = live.source.startswith("replay:")
        self.display = live.simulated or replayed
        word, why = ("REPLAY", "a recording, not now") if replayed else ("SIMULATED", words.simulated_why(live))
        name = Path(live.source.removeprefix("replay:")).name if replayed else live.source
        self.show([[Piece(f" {word}  {why}: {report.plain(name)}  {word} ")]])
