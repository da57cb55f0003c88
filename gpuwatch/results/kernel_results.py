"""Results of KernelBench (evaluations and baselines) and of kernelbot's harness (GPU MODE): summaries of times only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from gpuwatch.results.bounded_file import decode
from gpuwatch.results.result_file import ResultFile, ResultSeries

_MS, _NS = 1e-3, 1e-9
_CANNOT = ("single times: the file holds mean, extremes and deviation", "when the benchmark ran, and the clock")
_BENCHMARK, _SPEC = "benchmark.", "spec"


class _KernelStats(msgspec.Struct):
    mean: float | None = None  # empty if nothing was measured
    std: float | None = None
    min: float | None = None
    max: float | None = None
    hardware: str | None = None

    def figures(self) -> dict[str, float]:
        found = {"mean": self.mean, "stdev": self.std, "min": self.min, "max": self.max}
        return {name: value * _MS for name, value in found.items() if value is not None and 0.0 <= value < 1e9}


class _Evaluation(msgspec.Struct):
    sample_id: int
    runtime_stats: _KernelStats | None = None
    correctness: bool | None = None


def read_kernelbench(_path: Path, blob: bytes) -> ResultFile:
    """Read evaluations or a baseline of KernelBench, in milliseconds.

    Raises ValueError: for a damaged file.
    """
    try:
        found = list(_baseline(decode(blob, dict[str, dict[str, _KernelStats]])))
    except msgspec.ValidationError:
        found = list(_evaluations(decode(blob, dict[str, list[_Evaluation]])))
    return ResultFile(tool="KernelBench", series=tuple(found), cannot=_CANNOT)


def _baseline(levels: Mapping[str, Mapping[str, _KernelStats]]) -> Iterator[ResultSeries]:
    for level, problems in levels.items():
        for problem, stats in problems.items():
            yield ResultSeries(name=f"{level} {problem}", figures=stats.figures(), gpu=stats.hardware)


def _evaluations(problems: Mapping[str, list[_Evaluation]]) -> Iterator[ResultSeries]:
    for problem, samples in problems.items():
        for sample in samples:
            stats = sample.runtime_stats or _KernelStats()
            yield ResultSeries(
                name=f"problem {problem} sample {sample.sample_id}",
                figures=stats.figures(),
                gpu=stats.hardware,
                remarks=("incorrect",) if sample.correctness is False else (),
            )


def read_kernelbot(_path: Path, blob: bytes) -> ResultFile:
    """Read kernelbot's results, as JSON or as the ``key: value`` lines of its harness.

    Raises ValueError: for a damaged file.
    """
    is_json = blob.lstrip().startswith(b"{")
    series = tuple(_benchmarks(decode(blob, dict[str, str | int | float | None]) if is_json else dict(_lines(blob))))
    if not series:
        raise ValueError("expected benchmark.N.mean, found none")
    return ResultFile(tool="kernelbot", series=series, cannot=_CANNOT)


def _lines(blob: bytes) -> Iterator[tuple[str, str]]:
    for line in blob.decode("utf-8", "replace").splitlines():
        key, colon, value = line.partition(":")
        if colon:
            yield key.strip(), value.strip()


def _benchmarks(result: Mapping[str, str | int | float | None]) -> Iterator[ResultSeries]:
    by_place: dict[str, dict[str, str]] = {}
    for key, value in result.items():
        place, dot, name = key.removeprefix(_BENCHMARK).partition(".")
        if key.startswith(_BENCHMARK) and dot:
            by_place.setdefault(place, {})[name] = str(value)
    names = {"mean": "mean", "std": "stdev", "best": "min", "worst": "max"}
    for place, found in by_place.items():
        figures = {ours: number for theirs, ours in names.items() if (number := _ns(found.get(theirs))) is not None}
        error = found.get("error")
        yield ResultSeries(
            name=" ".join(word for word in (f"benchmark {place}", found.get(_SPEC, "")) if word),
            figures=figures,
            remarks=(f"failed: {error}",) if error else (),
        )


def _ns(text: str | None) -> float | None:
    try:
        found = float(text or "") * _NS
    except ValueError:
        return None
    return found if 0.0 <= found < 1e9 else None
