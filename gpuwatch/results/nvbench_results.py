"""Reader of NVBench's JSON, and of the sample times and clocks that ``--jsonbin`` writes next to the JSON.

The format is 1.0.0; NVBench writes each sample's duration and true SM clock, but no start times.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from annotate.evidence import Values
from gpuwatch.errors import UsageError
from gpuwatch.results.bounded_file import as_clocks, as_seconds, decode
from gpuwatch.results.file_bytes import read_bytes
from gpuwatch.results.result_file import ResultFile, ResultSeries, checked

_TIMES, _CLOCKS = "nv/json/bin:nv/cold/sample_times", "nv/json/freqs-bin:nv/cold/sample_freqs"
_FIGURES = {
    "mean": "nv/cold/time/gpu/mean",
    "median": "nv/cold/time/gpu/median",
    "min": "nv/cold/time/gpu/min",
    "max": "nv/cold/time/gpu/max",
    "stdev": "nv/cold/time/gpu/stdev/absolute",
}
_CANNOT = (
    "when each sample ran",
    "the samples that NVBench discarded because the clock was low, after each of which it paused",
    "which card it was",
)
_MOST_STATES_COUNT = 100_000
_MOST_VALUES_COUNT = 8_000_000  # per file: NVBench writes one value per 25 bytes or more
_STATE_BYTES = 1 << 20  # per state: NVBench writes some 10 kB


class _SummaryValue(msgspec.Struct):
    name: str
    value: str | float | int | None = None


class _StateSummary(msgspec.Struct):
    tag: str
    data: list[_SummaryValue] = []

    def find(self, name: str) -> str:
        return next((str(each.value) for each in self.data if each.name == name and each.value is not None), "")


class _BenchmarkState(msgspec.Struct):
    name: str
    device: int | None = None
    is_skipped: bool = False
    skip_reason: str | None = None
    summaries: msgspec.Raw = msgspec.Raw(b"[]")  # decoded state by state, to save memory


class _NvBenchmark(msgspec.Struct):
    name: str
    states: list[_BenchmarkState] | None = None


class _NvDevice(msgspec.Struct):
    id: int
    name: str


class _NvFile(msgspec.Struct):
    benchmarks: list[_NvBenchmark]
    devices: list[_NvDevice] = []


def read_nvbench(path: Path, blob: bytes) -> ResultFile:
    """Read a file of NVBench.

    Raises ValueError: for a damaged file.
    """
    if (count := blob.count(b",")) > _MOST_VALUES_COUNT:
        raise ValueError(f"expected at most {_MOST_VALUES_COUNT} values, found {count}")
    found = decode(blob, _NvFile)
    gpus = {each.id: each.name for each in found.devices}
    states = [(bench, state) for bench in found.benchmarks for state in bench.states or ()]
    if len(states) > _MOST_STATES_COUNT:
        raise ValueError(f"expected at most {_MOST_STATES_COUNT} states, found {len(states)}")
    series = tuple(_series(path.parent, bench, state, gpus) for bench, state in states)
    cannot = _CANNOT if any(len(each.took_s) for each in series) else ("single samples: run it with --jsonbin", *_CANNOT)
    if series and not any(each.sm_clock_mhz is not None for each in series):
        cannot = ("the clock of each sample: a newer NVBench writes it with --jsonbin", *cannot)
    return ResultFile(tool="NVBench", series=series, cannot=cannot)


def _summaries(state: _BenchmarkState) -> dict[str, _StateSummary]:
    if (size_bytes := len(memoryview(state.summaries))) > _STATE_BYTES:
        raise ValueError(f"{state.name}: expected at most {_STATE_BYTES} bytes of summaries, found {size_bytes}")
    found = [] if state.summaries == msgspec.Raw(b"null") else decode(state.summaries, list[_StateSummary])
    return {each.tag: each for each in found}


def _series(folder: Path, bench: _NvBenchmark, state: _BenchmarkState, gpus: dict[int, str]) -> ResultSeries:
    by_tag = _summaries(state)
    remarks = [f"skipped: {state.skip_reason or 'without a reason'}"] if state.is_skipped else []
    took = _samples(folder, by_tag.get(_TIMES), remarks)
    clocks = _samples(folder, by_tag.get(_CLOCKS), remarks)
    figures = {name: by_tag[tag].find("value") for name, tag in _FIGURES.items() if tag in by_tag}
    return checked(
        ResultSeries(
            name=f"{bench.name} {state.name}",
            took_s=np.empty(0) if took is None else as_seconds(took),
            sm_clock_mhz=None if clocks is None or took is None else as_clocks(clocks, 1e-6),
            figures={name: number for name, text in figures.items() if (number := _number(text)) is not None},
            gpu=gpus.get(-1 if state.device is None else state.device),
            remarks=tuple(remarks),
        )
    )


def _samples(folder: Path, summary: _StateSummary | None, remarks: list[str]) -> Values | None:
    """Return the values of a file next to the JSON; None without a name or, with a remark, without the file.

    Raises ValueError: for a file outside the JSON's folder, an unreadable one, and one with another number of values.
    """
    if summary is None or not (name := summary.find("filename")):
        return None
    place = (folder / name).resolve()
    # The JSON names the file, so only files in the JSON's folder may be opened.
    if Path(name).is_absolute() or not place.is_relative_to(folder.resolve()):
        raise ValueError(f"expected samples in a folder next to the file, found {name!r}")
    if not place.exists():
        remarks.append(f"{name} is missing next to the file: copy the folder as well")
        return None
    try:
        blob = read_bytes(place)
    except UsageError as error:
        raise ValueError(str(error)) from error
    if summary.find("size") != str(len(blob) // 4) or len(blob) % 4:
        raise ValueError(f"{name}: expected {summary.find('size') or 'a stated number of'} values, found {len(blob) / 4:g}")
    return np.frombuffer(blob, "<f4").astype(np.float64)


def _number(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if 0.0 <= found < 1e9 else None
