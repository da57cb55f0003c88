"""The first line: whether what is shown is now, and if not, when."""

from __future__ import annotations

from enum import StrEnum

from annotate.evidence import Lane
from annotate.output import report
from gpuwatch.tui.data_interfaces import Showing
from gpuwatch.tui.text import gpu_words, words
from gpuwatch.tui.text.words import Piece, Tone
from gpuwatch.tui.widgets.text_lines import Lines


class Seen(StrEnum):
    """What the screen stands for."""

    ASKING = "ASKING"
    LIVE = "LIVE"
    PAUSED = "PAUSED"
    STALE = "STALE"
    GONE = "GONE"
    PAST = "PAST"


_TONES = {
    Seen.ASKING: Tone.NOTE, Seen.LIVE: Tone.GOOD, Seen.PAUSED: Tone.NOTE, Seen.STALE: Tone.BAD, Seen.GONE: Tone.BAD,
    Seen.PAST: Tone.WARN,
}  # fmt: skip
_MARKS = {Seen.ASKING: "…", Seen.LIVE: "●", Seen.PAUSED: "‖", Seen.STALE: "!", Seen.GONE: "×", Seen.PAST: "◂"}


def seen(showing: Showing) -> Seen:
    live = showing.live
    if showing.past_ns is not None:
        return Seen.PAST
    if showing.why is not None:
        return Seen.GONE
    if live is None:
        return Seen.ASKING
    if showing.paused:
        return Seen.PAUSED
    answering = [gpu for gpu in live.gpus if gpu.lost is None and Lane.FAST in gpu.rows]
    stale = [gpu for gpu in answering if gpu_words.stale_s(gpu, live.at_ns) is not None]
    return Seen.STALE if answering and len(stale) == len(answering) else Seen.LIVE


class State(Lines):
    """LIVE, PAUSED, STALE, GONE with the reason, or PAST and how long ago; how many GPUs and windows, and the time of it."""

    def tell(self, showing: Showing, width: int, now_ns: int | None = None) -> None:
        """``now_ns`` is when now is, on the axis of what is shown; None where there is no now."""
        state, live = seen(showing), showing.live
        line = [Piece(" gpuwatch  "), Piece(f"{_MARKS[state]} {state.value}", _TONES[state])]
        if live is not None:
            line += [Piece(f"  {showing.at(live.at_ns)}", Tone.PLAIN if state is Seen.PAST else Tone.DIM)]
        if state is Seen.PAST and live is not None and now_ns is not None:
            line += [Piece(f", {words.ago(max(0, now_ns - live.at_ns) / 1e9)} ago", Tone.PLAIN)]
        room = width - sum(len(piece.text) for piece in line)
        if state is Seen.GONE:
            line += [Piece(words.cut(f"  r starts one; {report.plain(showing.why or '')}", room))]
        elif live is None:
            line += [Piece(words.cut("  the daemon is asked, or started", room), Tone.DIM)]
        else:
            opened = sum(each.end_ns is None for each in live.windows)
            gpus, windows = words.counted(len(live.gpus), "GPU"), words.counted(opened, "open window")
            back = "; l goes back to live" if state is Seen.PAST and now_ns is not None else ""
            said = f"  {gpus}, {windows}"
            line += [Piece(words.cut(said + (back if len(said + back) <= room else ""), room), Tone.DIM)]
        self.show([line])
