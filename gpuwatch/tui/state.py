"""The first line: whether what is shown is now."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from annotate import report
from annotate.evidence import Lane
from gpuwatch.live import Live
from gpuwatch.tui import words
from gpuwatch.tui.lines import Lines
from gpuwatch.tui.words import Piece, Tone


class Seen(StrEnum):
    """What the screen stands for."""

    ASKING = "ASKING"
    LIVE = "LIVE"
    PAUSED = "PAUSED"
    STALE = "STALE"
    GONE = "GONE"


_TONES = {Seen.ASKING: Tone.NOTE, Seen.LIVE: Tone.GOOD, Seen.PAUSED: Tone.NOTE, Seen.STALE: Tone.BAD, Seen.GONE: Tone.BAD}
_MARKS = {Seen.ASKING: "…", Seen.LIVE: "●", Seen.PAUSED: "‖", Seen.STALE: "!", Seen.GONE: "×"}


def seen(live: Live | None, why: str | None, *, paused: bool) -> Seen:
    if why is not None:
        return Seen.GONE
    if live is None:
        return Seen.ASKING
    if paused:
        return Seen.PAUSED
    answering = [gpu for gpu in live.gpus if gpu.lost is None and Lane.FAST in gpu.rows]
    stale = [gpu for gpu in answering if words.stale_s(gpu, live.at_ns) is not None]
    return Seen.STALE if answering and len(stale) == len(answering) else Seen.LIVE


class State(Lines):
    """LIVE, PAUSED, STALE or GONE with the reason, how many GPUs and windows, and the time of what is shown."""

    def tell(self, live: Live | None, why: str | None, at: Callable[[int], str], *, paused: bool, width: int) -> Seen:
        state = seen(live, why, paused=paused)
        line = [Piece(" gpuwatch  "), Piece(f"{_MARKS[state]} {state.value}", _TONES[state])]
        if live is not None:
            line += [Piece(f"  {at(live.at_ns)}", Tone.DIM)]
        room = width - sum(len(piece.text) for piece in line)
        if state is Seen.GONE:
            line += [Piece(words.cut(f"  r starts one; {report.plain(why or '')}", room))]
        elif live is None:
            line += [Piece("  the daemon is asked, or started", Tone.DIM)]
        else:
            opened = sum(each.end_ns is None for each in live.windows)
            gpus, windows = words.counted(len(live.gpus), "GPU"), words.counted(opened, "open window")
            line += [Piece(words.cut(f"  {gpus}, {windows}", room), Tone.DIM)]
        self.show([line])
        return state
