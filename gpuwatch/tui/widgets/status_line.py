"""The first line of every screen: now, or when; and what was found."""

from __future__ import annotations

from enum import StrEnum

from annotate.evidence import Lane
from annotate.output import report
from gpuwatch.tui.data_interfaces import ScreenContent
from gpuwatch.tui.text import gpu_words, words
from gpuwatch.tui.text.words import Piece, Tone
from gpuwatch.tui.widgets.text_lines import TextLines


class ScreenState(StrEnum):
    """The relation of the screen to now."""

    ASKING = "ASKING"
    LIVE = "LIVE"
    PAUSED = "PAUSED"
    STALE = "STALE"
    GONE = "GONE"
    PAST = "PAST"


_LOOKS = {  # mark and tone
    ScreenState.ASKING: ("…", Tone.NOTE),
    ScreenState.LIVE: ("●", Tone.GOOD),
    ScreenState.PAUSED: ("‖", Tone.NOTE),
    ScreenState.STALE: ("!", Tone.BAD),
    ScreenState.GONE: ("×", Tone.BAD),
    ScreenState.PAST: ("◂", Tone.WARN),
}


def screen_state(content: ScreenContent) -> ScreenState:
    """Return what the screen shows."""
    live = content.live
    if content.past_ns is not None:
        return ScreenState.PAST
    if content.problem is not None:
        return ScreenState.GONE
    if live is None:
        return ScreenState.ASKING
    if content.is_paused:
        return ScreenState.PAUSED
    answering = [gpu for gpu in live.gpus if gpu.lost is None and Lane.FAST in gpu.rows]
    stale = [gpu for gpu in answering if gpu_words.stale_s(gpu, live.at_ns) is not None]
    return ScreenState.STALE if answering and len(stale) == len(answering) else ScreenState.LIVE


class StatusLine(TextLines):
    """LIVE, PAUSED, STALE, GONE with the reason, or PAST and how long ago; the time, and the number of GPUs and windows."""

    def show_content(self, content: ScreenContent, width: int, now_ns: int | None = None) -> None:
        """Show the state; ``now_ns`` is now on the axis of the content, None where there is no now."""
        state, live = screen_state(content), content.live
        mark, tone = _LOOKS[state]
        line = [Piece(" gpuwatch  "), Piece(f"{mark} {state.value}", tone)]
        if live is not None:
            line += [Piece(f"  {content.format_time(live.at_ns)}", Tone.PLAIN if state is ScreenState.PAST else Tone.DIM)]
        if state is ScreenState.PAST and live is not None and now_ns is not None:
            line += [Piece(f", {words.ago(max(0, now_ns - live.at_ns) / 1e9)} ago", Tone.PLAIN)]
        room = width - sum(len(piece.text) for piece in line)
        if state is ScreenState.GONE:
            line += [Piece(words.cut(f"  r starts one; {report.plain(content.problem or '')}", room))]
        elif live is None:
            line += [Piece(words.cut("  the daemon is asked, or started", room), Tone.DIM)]
        else:
            opened = sum(each.end_ns is None for each in live.windows)
            gpus, windows = words.counted(len(live.gpus), "GPU"), words.counted(opened, "open window")
            back = "; l goes back to live" if state is ScreenState.PAST and now_ns is not None else ""
            said = f"  {gpus}, {windows}"
            line += [Piece(words.cut(said + (back if len(said + back) <= room else ""), room), Tone.DIM)]
        self.show([line])
