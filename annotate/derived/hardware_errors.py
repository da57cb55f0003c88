"""Errors that a GPU reported during a window: counters, row remaps and events."""

from collections.abc import Mapping
from dataclasses import dataclass

from annotate.evidence import Evidence, Fact, Increase

_GRAVE = {"ecc_uncorrected_count": "uncorrectable memory error"}
_SLIGHT = {"ecc_corrected_count": "corrected memory error", "remapped_rows_count": "remapped memory row"}
_REMAPS = {"remap_pending_count": "a row remap waits for a reset", "remap_failed_count": "a row remap failed"}


@dataclass(frozen=True, slots=True)
class HardwareErrors:
    """Grave and slight errors in words, the counters that were not read, and the counts."""

    grave: tuple[str, ...]
    slight: tuple[str, ...]
    unread: tuple[str, ...]
    facts: Mapping[str, Fact]


def hardware_errors(evidence: Evidence, *, replays_count: float, replays_per_minute_count: float) -> HardwareErrors:
    """Collect all reported errors and all unread counters.

    PCIe replays are an error above the larger of ``replays_count`` and the rate times the observed minutes.
    """
    window = evidence.window
    rises = {name: evidence.increase(name) for name in (*_GRAVE, *_SLIGHT)}
    remaps = {text: _was_on(evidence, name) for name, text in _REMAPS.items()}
    replays = evidence.increase("pcie_replay_count")
    facts: dict[str, Fact] = {name: rise.amount for name, rise in rises.items() if rise is not None}
    slight = _counted(rises, _SLIGHT)
    if replays is not None:
        facts["pcie_replay_count"] = replays.amount
        if replays.amount > max(replays_count, replays_per_minute_count * replays.span_ns / 60e9):
            slight.append(f"{replays.amount:.0f} PCIe replays")
    unread = [f"{text}s" for name, text in (_GRAVE | _SLIGHT).items() if rises[name] is None]
    unread += [f"whether {text}" for text, stands in remaps.items() if stands is None]
    unread += ["PCIe replays"] if replays is None else []
    events = [event for event in evidence.trace.events if window.begin_ns <= event.at_ns <= window.end_ns]
    slight += [
        f"a memory error event {(event.at_ns - window.begin_ns) / 1e9:.1f} s into the window"
        for event in events
        if event.kind == "ecc"
    ]
    grave = _counted(rises, _GRAVE) + [text for text, stands in remaps.items() if stands]
    grave += [f"Xid {event.value}" if event.value is not None else "an Xid message" for event in events if event.kind == "xid"]
    return HardwareErrors(tuple(grave), tuple(slight), tuple(unread), facts)


def _counted(rises: Mapping[str, Increase | None], texts: Mapping[str, str]) -> list[str]:
    found = [
        (rise.amount, texts[name]) for name, rise in rises.items() if name in texts and rise is not None and rise.amount > 0
    ]
    return [f"{amount:.0f} {text}{'' if amount == 1 else 's'}" for amount, text in found]


def _was_on(evidence: Evidence, name: str) -> bool | None:
    """Return whether a state was on in the window or the 11 s before it, or None if it was not read."""
    column, window = evidence.trace.column(name), evidence.window
    near = column.where((column.at_ns >= window.begin_ns - 11_000_000_000) & (column.at_ns <= window.end_ns)).observed
    return bool((near.values > 0).any()) if len(near) else None
