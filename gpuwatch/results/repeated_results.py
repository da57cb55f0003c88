"""Repetitions in the formats of hyperfine (``--export-json``) and Google Benchmark (``--benchmark_format=json``)."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from gpuwatch.results.bounded_file import as_seconds, decode
from gpuwatch.results.result_file import ResultFile, ResultSeries, checked

_UNITS_S = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_NAME_LENGTH = 80
_HYPERFINE_CANNOT = (
    "when each run began, and the pauses between runs",
    "the work on the GPU: a run's time is that of the whole command, its start and its imports included",
)
_GOOGLE_CANNOT = (
    "when each repetition began",
    "single iterations: an entry is the mean of one repetition",
    "whether the GPU had finished: the times are the host's unless the benchmark sets its own",
)


class _HyperfineRun(msgspec.Struct):
    command: str
    times: list[float] = []
    mean: float | None = None
    median: float | None = None
    min: float | None = None
    max: float | None = None
    stddev: float | None = None
    exit_codes: list[int | None] = []


class _HyperfineFile(msgspec.Struct):
    results: list[_HyperfineRun]


def read_hyperfine(_path: Path, blob: bytes) -> ResultFile:
    """Read a file of hyperfine.  Raises ValueError: for a damaged file."""
    series = []
    for run in decode(blob, _HyperfineFile).results:
        figures = {"mean": run.mean, "median": run.median, "min": run.min, "max": run.max, "stdev": run.stddev}
        failed_count = sum(code != 0 for code in run.exit_codes)
        # Arguments may hold secrets, but hyperfine prints the command, too.
        name = run.command if len(run.command) <= _NAME_LENGTH else run.command[: _NAME_LENGTH - 1] + "…"
        series.append(
            checked(
                ResultSeries(
                    name=name,
                    took_s=as_seconds(run.times),
                    figures={key: value for key, value in figures.items() if value is not None},
                    remarks=(f"{failed_count} of {len(run.exit_codes)} runs failed",) if failed_count else (),
                )
            )
        )
    return ResultFile(tool="hyperfine", series=tuple(series), cannot=_HYPERFINE_CANNOT)


class _GoogleRun(msgspec.Struct):
    name: str
    run_type: str = "iteration"
    run_name: str | None = None
    iterations: int | float = 1
    real_time: float | None = None
    time_unit: str = "ns"
    error_occurred: bool = False
    error_message: str = ""
    skipped: bool = False
    skip_message: str = ""


class _GoogleFile(msgspec.Struct):
    benchmarks: list[_GoogleRun]


def read_google_benchmark(_path: Path, blob: bytes) -> ResultFile:
    """Read a file of Google Benchmark: repetitions of one name form one series.  Raises ValueError: for a damaged file."""
    by_name: dict[str, list[_GoogleRun]] = {}
    for run in decode(blob, _GoogleFile).benchmarks:
        if run.run_type == "iteration":  # all other entries are aggregates
            by_name.setdefault(run.run_name or run.name, []).append(run)
    return ResultFile(
        tool="Google Benchmark",
        series=tuple(_repetitions(name, runs) for name, runs in by_name.items()),
        cannot=_GOOGLE_CANNOT,
    )


def _repetitions(name: str, runs: list[_GoogleRun]) -> ResultSeries:
    whys = [
        each.error_message or each.skip_message or "without a reason" for each in runs if each.error_occurred or each.skipped
    ]
    kept = [each for each in runs if not each.error_occurred and not each.skipped and each.real_time is not None]
    if unknown := {each.time_unit for each in kept} - set(_UNITS_S):
        raise ValueError(f"{name}: expected a time_unit of {', '.join(_UNITS_S)}, found {min(unknown)[:40]!r}")
    took_s = np.array([(each.real_time or 0.0) * _UNITS_S[each.time_unit] for each in kept], np.float64)
    counts = sorted({int(each.iterations) for each in kept if 1 <= each.iterations <= 1e9})
    remarks = [f"skipped: {why}" for why in dict.fromkeys(whys)]
    if len(counts) > 1:
        remarks.append(f"repetitions of {counts[0]} to {counts[-1]} iterations")
    return checked(
        ResultSeries(
            name=name, took_s=as_seconds(took_s), calls_count=counts[len(counts) // 2] if counts else 1, remarks=tuple(remarks)
        )
    )
