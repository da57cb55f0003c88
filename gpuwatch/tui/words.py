"""What a screen says of GPUs and windows, as pieces of text with a tone; nothing here knows a terminal.

Every tone that can be a reason for a bad number comes with a letter or a word, so that nothing is told by colour alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from annotate import report
from annotate.evidence import Lane, Reason, Visibility
from gpuwatch import wire
from gpuwatch.live import Live, LiveGpu

NOTHING = "–"  # not observed
STALE_PERIODS = 3
WIDE_COLUMNS = 116  # from here on there is room for bars
BAR_COUNT = 8
LEAST_STALE_S = 2.0  # a sampler that is late by less is late, not silent


class Tone(StrEnum):
    """How a piece is meant; a screen has a colour for each."""

    PLAIN = "plain"
    DIM = "dim"
    GOOD = "good"
    NOTE = "note"
    WARN = "warn"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Piece:
    text: str
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True)
class Chip:
    """One clock event reason as a screen names it."""

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
_KNOWN_MASK = sum(reason.value for reason in CHIPS)

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
    "!": "power at its limit, or within 5 °C of slow-down; !! past it",
    "o F": "processes of your open windows (own), and others (Foreign)",
    "≥": "a container's view: others may be on the GPU unseen",
    "so far": "seen while the window is open: no verdict yet",
    "STALE": "the GPU's sampler has told nothing for so long",
    "–": "not observed",
}


def chips(mask: int | None) -> list[Chip]:
    """The reasons in a mask, gravest first; bits nobody named are shown as the number they are."""
    if mask is None:
        return [Chip(NOTHING, "not observed", Tone.DIM)]
    found = [chip for reason, chip in CHIPS.items() if mask & reason.value]
    unknown = mask & ~_KNOWN_MASK
    if unknown:
        found.append(Chip(UNKNOWN.letter, f"bits {unknown:#x}", UNKNOWN.tone))
    return found or [Chip("·", "none", Tone.DIM)]


def reasons(mask: int | None, room: int) -> list[Piece]:
    """Chips with their names where they fit, else their letters alone."""
    found = chips(mask)
    named = [Piece(f"{chip.letter} {chip.name}", chip.tone) for chip in found]
    if sum(len(piece.text) + 2 for piece in named) - 2 > room:
        named = [Piece(chip.letter, chip.tone) for chip in found]
    return [
        piece for index, each in enumerate(named) for piece in ([Piece("  " if room > 30 else " ")] if index else []) + [each]
    ]


def name(gpu: LiveGpu) -> str:
    """What people call a board: without its maker, who is always the same."""
    words = [word for word in report.plain(gpu.device.name).split() if word not in ("NVIDIA", "SIMULATED", "GeForce")]
    mig = gpu.said("mig_mode")
    return (" ".join(words) or NOTHING) + (" MIG" if (gpu.device.mig_mode if mig is None else mig) else "")


def clock(gpu: LiveGpu) -> Piece:
    """The SM clock against its maximum; in colour only where a reason says that something holds it."""
    mhz, most = gpu.said("sm_clock_mhz"), gpu.device.sm_clock_max_mhz
    held = any(chip.tone in (Tone.WARN, Tone.BAD) for chip in chips(gpu.said("event_reasons_mask")))
    tone = Tone.PLAIN if not held else Tone.WARN
    if mhz is None:
        return Piece(NOTHING, Tone.DIM)
    return Piece(f"{mhz}/{most} {mhz / most:4.0%}" if most else f"{mhz}", tone)


def power(gpu: LiveGpu) -> Piece:
    """Board power against the enforced limit; ``!`` where it touches it."""
    watts, limit = gpu.said("power_w"), gpu.said("power_limit_w") or gpu.device.power_limit_w
    if watts is None:
        return Piece(NOTHING, Tone.DIM)
    at_limit = limit is not None and watts >= 0.98 * limit
    text = f"{watts:.0f}/{limit:.0f}" if limit is not None else f"{watts:.0f}"
    return Piece(text + ("!" if at_limit else " "), Tone.WARN if at_limit else Tone.PLAIN)


def temperature(gpu: LiveGpu) -> Piece:
    """Temperature against where the hardware slows down; ``!`` within 5 °C of it, ``!!`` past it."""
    degrees, most = gpu.said("temperature_c"), gpu.device.temperature_slowdown_c
    if degrees is None:
        return Piece(NOTHING, Tone.DIM)
    if not most:
        return Piece(f"{degrees}  ")
    mark, tone = ("!!", Tone.BAD) if degrees >= most else ("! ", Tone.WARN) if degrees >= most - 5 else ("  ", Tone.PLAIN)
    return Piece(f"{degrees}/{most}{mark}", tone)


def utilisation(gpu: LiveGpu) -> Piece:
    ratio = gpu.said("utilization_ratio")
    return Piece(NOTHING, Tone.DIM) if ratio is None else Piece(f"{ratio:.0%}", Tone.DIM if ratio == 0 else Tone.PLAIN)


def memory(gpu: LiveGpu) -> Piece:
    used, total = gpu.said("memory_used_bytes"), gpu.device.memory_total_bytes
    if used is None:
        return Piece(NOTHING, Tone.DIM)
    return Piece(f"{_gb(used)}/{_gb(total)}" if total else _gb(used))


def _gb(amount: int) -> str:
    return f"{amount / 1e9:.1f}" if amount < 9.95e9 else f"{amount / 1e9:.0f}"


def processes(gpu: LiveGpu, windows: Sequence[wire.Shown]) -> Piece:
    """How many are on it; while a window of yours is open there, which are its own (o) and which foreign (F)."""
    if gpu.census is None:
        return Piece(NOTHING, Tone.DIM)
    pids = {process.pid for process in gpu.census.processes}
    seen = "" if gpu.census.visibility is not Visibility.NAMESPACE else "≥"
    count = len(pids) + gpu.processes_left_out_count
    covering = [each for each in windows if each.end_ns is None and (gpu.device.uuid in each.uuids or pids & set(each.pids))]
    if not covering:
        return Piece(f"{seen}{count}", Tone.DIM if not count else Tone.PLAIN)
    own = len(pids & {pid for each in covering for pid in each.pids})
    foreign = count - own
    return Piece(f"{own}o {seen}{foreign}F", Tone.WARN if foreign else Tone.PLAIN)


def stale_s(gpu: LiveGpu, now_ns: int) -> float | None:
    """How long its fast lane has told nothing, if that is longer than it should; None while it is well."""
    age_s = gpu.age_s(now_ns)
    if age_s is None or age_s <= max(LEAST_STALE_S, STALE_PERIODS * gpu.period_ns.get(Lane.FAST, 0) / 1e9):
        return None
    return age_s


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the GPUs' table: its heading and how wide it is."""

    heading: str
    width: int
    left: bool = False


def columns(width: int) -> list[Column]:
    """What fits: bars on a wide screen, reasons the rest of the line."""
    bar = [Column("", BAR_COUNT, left=True)] if width >= WIDE_COLUMNS else []
    return [
        Column("GPU", 3), Column("", 8 if width < 100 else 16, left=True), Column("SM MHz/max", 14), *bar,
        Column("W/limit", 8), *bar, Column("°C/slow ", 8), Column("util", 4), Column("GB/total", 8), Column("procs", 6),
    ]  # fmt: skip


def bar(ratio: float | None) -> str:
    """A length in eighths of a character; over full is full."""
    if ratio is None:
        return ""
    eighths = round(min(max(ratio, 0.0), 1.0) * BAR_COUNT * 8)
    return "█" * (eighths // 8) + (" ▏▎▍▌▋▊▉"[eighths % 8] if eighths % 8 else "")


def _ratio(amount: float | None, most: float | None) -> float | None:
    return amount / most if amount is not None and most else None


def _fitted(piece: Piece, column: Column) -> Piece:
    text = piece.text if len(piece.text) <= column.width else piece.text[: column.width - 1] + "…"
    return Piece(text.ljust(column.width) if column.left else text.rjust(column.width), piece.tone)


def gpu_lines(live: Live, width: int) -> Iterator[list[Piece]]:
    """The table of all GPUs, its heading first."""
    wanted = columns(width)
    used = sum(column.width for column in wanted) + len(wanted)
    yield [
        piece for column in wanted for piece in (_fitted(Piece(column.heading, Tone.DIM), column), Piece(" "))
    ] + [Piece("clock event reasons" if width - used >= 19 else "reasons", Tone.DIM)]  # fmt: skip
    for position, gpu in enumerate(live.gpus):
        yield _gpu_line(position, gpu, live, wanted, max(width - used, 3))
    if live.gpus_left_out_count:
        yield [Piece(f"and {counted(live.gpus_left_out_count, 'more GPU')}", Tone.DIM)]


def _gpu_line(position: int, gpu: LiveGpu, live: Live, wanted: Sequence[Column], room: int) -> list[Piece]:
    head = [Piece(str(position)), Piece(name(gpu))]
    if gpu.lost is not None or Lane.FAST not in gpu.rows:
        why = f"LOST  {report.plain(gpu.lost)}" if gpu.lost is not None else "no reading of this time"
        start = [piece for each, column in zip(head, wanted, strict=False) for piece in (_fitted(each, column), Piece(" "))]
        left = sum(column.width + 1 for column in wanted[2:]) + room
        return [*start, Piece(cut(why, left), Tone.BAD if gpu.lost is not None else Tone.DIM)]
    stale = stale_s(gpu, live.at_ns)
    wide = len(wanted) == len(columns(WIDE_COLUMNS))
    limit = gpu.said("power_limit_w") or gpu.device.power_limit_w
    bars = [bar(_ratio(gpu.said("sm_clock_mhz"), gpu.device.sm_clock_max_mhz)), bar(_ratio(gpu.said("power_w"), limit))]
    held, drawn = clock(gpu), power(gpu)
    cells = [
        *head, held, *([Piece(bars[0], held.tone)] if wide else []), drawn, *([Piece(bars[1], drawn.tone)] if wide else []),
        temperature(gpu), utilisation(gpu), memory(gpu), processes(gpu, live.windows),
    ]  # fmt: skip
    cells = [Piece(cell.text, Tone.DIM) for cell in cells] if stale is not None else cells
    end = [Piece(f"STALE {stale:.0f} s", Tone.BAD)] if stale is not None else reasons(gpu.said("event_reasons_mask"), room)
    return [piece for each, column in zip(cells, wanted, strict=True) for piece in (_fitted(each, column), Piece(" "))] + end


def window_lines(live: Live, width: int, so_far: Mapping[str, Sequence[str]] | None = None) -> Iterator[list[Piece]]:
    """Open and recent windows, newest first, their verdicts and what was found; of open ones what was seen ``so_far``."""
    places = {gpu.device.uuid: str(position) for position, gpu in enumerate(live.gpus)}
    label_width = 14 if width < 90 else 22 if width < 110 else 28
    yield [Piece(f"  {'verdict':<10}{'window':<{label_width}} {'GPU':<4}{'length':>8}{'ended':>11}  found", Tone.DIM)]
    for each in live.windows:
        chip = STATUSES.get(each.status, Chip("?", report.plain(each.status), Tone.NOTE))
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
        yield [Piece("  none yet: gpuwatch run -- python bench.py", Tone.DIM)]
    elif live.windows_left_out_count:
        yield [Piece(f"  and {live.windows_left_out_count} more: gpuwatch audit", Tone.DIM)]


def _found(window: wire.Shown, so_far: Mapping[str, Sequence[str]]) -> str:
    if window.end_ns is None and (seen := so_far.get(window.run)):
        return f"so far: {', '.join(seen)}"
    return ", ".join(window.hazards) or report.plain(window.why)


def absence_lines(live: Live) -> list[list[Piece]]:
    """Why there is no GPU, and what to do."""
    return [
        [Piece("no GPU to watch", Tone.BAD), Piece(f": {report.plain(live.absence or 'the source names none')}")],
        [Piece("`gpuwatch doctor` says why; --source simulated shows invented ones", Tone.DIM)],
    ]


def counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def span(seconds: float) -> str:
    """A length of time in at most six characters."""
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    if seconds < 5970:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 356_400 else f"{seconds / 86_400:.0f} d"


def ago(seconds: float) -> str:
    """A length of time in its two largest units: 41 s, 3 min 12 s, 2 h 05 min, 3 d 4 h."""
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


def text(lines: Iterator[list[Piece]] | Sequence[list[Piece]]) -> str:
    """The words alone, to paste."""
    return "\n".join("".join(piece.text for piece in line).rstrip() for line in lines)
