"""Windows of an H200 with a known true value: each disturbed window lies between two clean ones of the same work and process.

``h200-truth.capsule`` holds the evidence without times, and ``h200-truth-times.npz.xz`` holds the times.  Gaps between
iterations are in microseconds, durations in the timer's ticks of 32 ns, and clocks in half megahertz (0 without a stamp).
"""

from __future__ import annotations

import io
import json
import lzma
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from annotate.capsule.pack import pack, unpack
from annotate.evidence import Evidence, Timings

_FOLDER = Path(__file__).parent / "traces"
_EVIDENCE, _TIMES, _TRUTH = (_FOLDER / f"h200-truth{end}" for end in (".capsule", "-times.npz.xz", ".json"))
_TICK_S = 32e-9
_MICROSECOND_NS = 1000

Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class TruthWindow:
    """One disturbed window with the clean windows before and after it, and the true relative deviation of its throughput."""

    name: str
    before: Evidence
    disturbed: Evidence
    after: Evidence
    throughput_ratio: float
    clean_differ_ratio: float

    @property
    def clean(self) -> tuple[Evidence, Evidence]:
        return self.before, self.after

    @property
    def is_timed(self) -> bool:
        return self.disturbed.timings is not None


def truth_names(*, timed: bool = False) -> list[str]:
    """Return the names of all windows, or of those with times; the name of a window without times ends in -plain."""
    names = [str(row["name"]) for row in json.loads(_TRUTH.read_text(encoding="utf-8"))]
    return [name for name in names if not (timed and name.endswith("-plain"))]


@lru_cache(maxsize=1)
def truth_windows() -> Mapping[str, TruthWindow]:
    """Return all windows by name."""
    evidences = unpack(_EVIDENCE.read_bytes())
    rows = json.loads(_TRUTH.read_text(encoding="utf-8"))
    timed = with_times(evidences, _TIMES.read_bytes())
    return {
        row["name"]: TruthWindow(row["name"], before, disturbed, after, row["throughput"], row["refs_differ"])
        for row, before, disturbed, after in zip(rows, timed[::3], timed[1::3], timed[2::3], strict=True)
    }


def write(rows: list[dict[str, str | float]], evidences: list[Evidence]) -> None:
    """Write the windows: for each row the clean window before, the disturbed window and the clean window after."""
    kept = [{name: row[name] for name in ("name", "throughput", "refs_differ")} for row in rows]
    _TRUTH.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    _EVIDENCE.write_bytes(pack([replace(each, timings=None) for each in evidences]))
    _TIMES.write_bytes(times_of(evidences))


def times_of(evidences: Sequence[Evidence]) -> bytes:
    """Return the rounded times of windows as an xz file of arrays."""
    out = io.BytesIO()
    np.savez(out, allow_pickle=False, **dict(_arrays(evidences)))
    return lzma.compress(out.getvalue(), preset=9 | lzma.PRESET_EXTREME)


def with_times(evidences: Sequence[Evidence], times: bytes) -> list[Evidence]:
    """Return windows with the times from ``times_of``."""
    with np.load(io.BytesIO(lzma.decompress(times))) as arrays:
        return [replace(each, timings=_timings(arrays, i, each.window.begin_ns)) for i, each in enumerate(evidences)]


def _arrays(evidences: Sequence[Evidence]) -> Iterator[tuple[str, npt.NDArray[np.uint8]]]:
    for i, each in enumerate(evidences):
        timings = each.timings
        if timings is None:
            continue
        ticks = np.round(timings.took_s / _TICK_S).astype(np.int64)
        at_us = (timings.at_ns - each.window.begin_ns) // _MICROSECOND_NS
        gaps_us = np.diff(at_us, prepend=0) - _usual_us(ticks)
        clock = timings.sm_clock_mhz
        halves = np.zeros(len(ticks)) if clock is None else np.nan_to_num(np.round(clock * 2.0))
        for name, values in (("gap", gaps_us), ("took", ticks), ("clock", halves)):
            yield f"{i}/{name}", _planes(values.astype(np.int64))


def _timings(arrays: Mapping[str, npt.NDArray[np.uint8]], i: int, begin_ns: int) -> Timings | None:
    if f"{i}/took" not in arrays:
        return None
    gaps_us, ticks, halves = (_values(arrays[f"{i}/{name}"]) for name in ("gap", "took", "clock"))
    at_ns = begin_ns + np.cumsum(gaps_us + _usual_us(ticks)) * _MICROSECOND_NS
    return Timings(
        at_ns, np.asarray(ticks * _TICK_S, np.float64), np.asarray(np.where(halves > 0, halves / 2.0, np.nan), np.float64)
    )


def _usual_us(ticks: Array) -> Array:
    """Return the expected distances between start times without gaps."""
    return np.concatenate([[0], np.round(ticks[:-1] * (_TICK_S * 1e6)).astype(np.int64)])


def _planes(values: Array) -> npt.NDArray[np.uint8]:
    """Return the values' bytes in separate planes, so that nearly constant bytes are adjacent and compress well."""
    return np.ascontiguousarray(values.astype("<i4").view(np.uint8).reshape(-1, 4).T)


def _values(planes: npt.NDArray[np.uint8]) -> Array:
    return np.ascontiguousarray(planes.T).view("<i4").ravel().astype(np.int64)
