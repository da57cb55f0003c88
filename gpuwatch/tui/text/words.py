"""Pieces of text with a tone, and the letters for reasons and verdicts, independent of any terminal.

A tone that marks a reason for a bad number comes with a letter or a word: no meaning depends on colour alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from annotate.evidence import Reason
from annotate.output import report
from gpuwatch.view.live import Live

NOTHING = "–"  # not observed


class Tone(StrEnum):
    """The meaning of a piece of text; a screen maps each tone to a colour."""

    PLAIN = "plain"
    DIM = "dim"
    GOOD = "good"
    NOTE = "note"
    WARN = "warn"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of text with a tone."""

    text: str
    tone: Tone = Tone.PLAIN


def simulated_why(live: Live) -> str:
    """Return the words about simulated GPUs: the reason why no real GPU is shown, if known, else that the GPUs do not exist."""
    return f"{live.absence}: simulated GPUs" if live.absence else "these GPUs do not exist"


@dataclass(frozen=True, slots=True)
class Chip:
    """One clock event reason or one status of a window, as shown on a screen."""

    letter: str
    name: str
    tone: Tone


CHIPS: Mapping[Reason, Chip] = {
    Reason.HW_POWER_BRAKE: Chip("B", "power brake", Tone.BAD),
    Reason.HW_THERMAL: Chip("X", "hw thermal", Tone.BAD),
    Reason.SW_THERMAL: Chip("T", "sw thermal", Tone.BAD),
    Reason.HW_SLOWDOWN: Chip("H", "hw slowdown", Tone.BAD),
    Reason.SW_POWER_CAP: Chip("P", "power cap", Tone.WARN),
    Reason.SYNC_BOOST: Chip("S", "sync boost", Tone.WARN),
    Reason.APPLICATIONS_CLOCKS: Chip("A", "app clocks", Tone.NOTE),
    Reason.DISPLAY_CLOCK: Chip("D", "display", Tone.NOTE),
    Reason.GPU_IDLE: Chip("i", "idle", Tone.DIM),
}
UNKNOWN = Chip("?", "unknown bits", Tone.WARN)
KNOWN_MASK = sum(reason.value for reason in CHIPS)

STATUSES: Mapping[str, Chip] = {
    "valid": Chip("V", "VALID", Tone.GOOD),
    "flagged": Chip("F", "FLAGGED", Tone.WARN),
    "rejected": Chip("R", "REJECTED", Tone.BAD),
    "unproven": Chip("U", "UNPROVEN", Tone.NOTE),
    "open": Chip("o", "open", Tone.PLAIN),
    "closing": Chip("j", "closing", Tone.DIM),
    "judging": Chip("j", "judging", Tone.DIM),
}

MARKS: Mapping[str, str] = {
    "!": "from 98 % of the power limit, or from 5 °C below slow-down",
    "!!": "at or above the slow-down temperature",
    "o F": "processes of your open windows (own), and others (Foreign)",
    "≥": "a container's view: other processes may be on the GPU",
    "2 min": "the gravest reason of each cell; the line above: the lowest clock",
    "so far": "seen while the window is open: no verdict yet",
    "STALE": "the GPU's sampler has been silent for this long",
    "–": "not observed",
}


def chips(mask: int | None) -> list[Chip]:
    """Return the reasons in a mask, gravest first; unnamed bits by their number."""
    if mask is None:
        return [Chip(NOTHING, "not observed", Tone.DIM)]
    found = [chip for reason, chip in CHIPS.items() if mask & reason.value]
    if unknown := mask & ~KNOWN_MASK:
        found.append(Chip(UNKNOWN.letter, f"bits {unknown:#x}", UNKNOWN.tone))
    return found or [Chip("·", "none", Tone.DIM)]


def reasons(mask: int | None, room: int) -> list[Piece]:
    """Return chips with their names if they fit, else their letters alone."""
    found = chips(mask)
    named = [Piece(f"{chip.letter} {chip.name}", chip.tone) for chip in found]
    if sum(len(piece.text) + 2 for piece in named) - 2 > room:
        named = [Piece(chip.letter, chip.tone) for chip in found]
    return [
        piece for index, each in enumerate(named) for piece in ([Piece("  " if room > 30 else " ")] if index else []) + [each]
    ]


def status(said: str) -> Chip:
    """Return the chip of a window's status; a newer daemon may send an unknown one."""
    return STATUSES.get(said, Chip("?", report.plain(said), Tone.NOTE))


def counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def span(seconds: float) -> str:
    """Format a length of time in at most six characters."""
    if 0 < seconds < 0.095:
        return f"{seconds:.2f} s"
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    if seconds < 5970:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 356_400 else f"{seconds / 86_400:.0f} d"


def ago(seconds: float) -> str:
    """Format a length of time in its two largest units: 41 s, 3 min 12 s, 2 h 05 min, 3 d 4 h."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60:02} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"


def cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: max(most - 1, 0)] + "…"


def clip_pieces(pieces: Sequence[Piece], room: int) -> list[Piece]:
    """Cut a line to ``room`` columns, at the end of a whole piece if possible."""
    found: list[Piece] = []
    for piece in pieces:
        if len(piece.text) > room:
            return found or [Piece(cut(piece.text, room), piece.tone)]
        found.append(piece)
        room -= len(piece.text)
    return found


def text(lines: Iterator[list[Piece]] | Sequence[list[Piece]]) -> str:
    """Return lines as plain text, without tones and trailing spaces."""
    return "\n".join("".join(piece.text for piece in line).rstrip() for line in lines)
