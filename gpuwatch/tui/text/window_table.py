"""The table of open and recent windows, as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from annotate.output import report
from gpuwatch.tui.text.words import NOTHING, Piece, Tone, cut, span, status
from gpuwatch.view.live import Live
from gpuwatch.wire import messages


def window_lines(live: Live, width: int, so_far: Mapping[str, Sequence[str]] | None = None) -> Iterator[list[Piece]]:
    """Draw open and recent windows, newest first, with verdicts and findings; of open ones the hazards seen ``so_far``."""
    places = {gpu.device.uuid: str(position) for position, gpu in enumerate(live.gpus)}
    label_width = 14 if width < 90 else 22 if width < 110 else 28
    yield [Piece(f"  {'verdict':<10}{'window':<{label_width}} {'GPU':<4}{'length':>8}{'ended':>11}  found", Tone.DIM)]
    for each in live.windows:
        chip = status(each.status)
        over_ns = (each.end_ns if each.end_ns is not None else live.at_ns) - each.begin_ns
        ended = "open" if each.end_ns is None else f"{span(max(0, live.at_ns - each.end_ns) / 1e9)} ago"
        gpus = ",".join(places.get(uuid, "?") for uuid in each.uuids) or NOTHING
        used = 12 + label_width + 1 + 4 + 8 + 11 + 2
        yield [
            Piece(f"{chip.letter} {chip.name:<10}", chip.tone),
            Piece(f"{cut(report.plain(each.label or each.run), label_width):<{label_width}} {cut(gpus, 3):<4}"),
            Piece(f"{span(max(0, over_ns) / 1e9):>8}{ended:>11}  ", Tone.PLAIN if each.end_ns is None else Tone.DIM),
            Piece(cut(_found(each, so_far or {}), max(width - used, 8)), Tone.PLAIN if each.end_ns is not None else Tone.NOTE),
        ]
    if not live.windows:
        # A window of a simulated GPU is one of that daemon's: a plain command would go to another.
        hint = "" if live.simulated else ": gpuwatch run -- python bench.py"
        yield [Piece(f"  none yet{hint}", Tone.DIM)]
    elif live.windows_left_out_count:
        yield [Piece(f"  and {live.windows_left_out_count} more: gpuwatch audit", Tone.DIM)]


def _found(window: messages.Shown, so_far: Mapping[str, Sequence[str]]) -> str:
    if window.end_ns is None and (seen := so_far.get(window.run)):
        return f"so far: {', '.join(seen)}"
    return ", ".join(window.hazards) or report.plain(window.why)
