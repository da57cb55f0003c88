"""Reader of nccl-tests' JSON files (``-J FILE``; ``-I 1`` adds the time of each iteration).

The file holds the program's whole environment and arguments.  The reader decodes neither, so it cannot reveal a secret.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np

from gpuwatch.results.bounded_file import as_seconds, decode, local_wall_s
from gpuwatch.results.result_file import ResultFile, ResultSeries, checked

_DATE = "%Y-%m-%d %H:%M:%S"
_US = 1e-6
_CANNOT = ("when each iteration ran", "which GPU the others waited for: a process's times include its wait for the slowest")


class _Rank(msgspec.Struct):
    rank: int
    pid: int
    hostname: str = ""
    device_hex: str = ""
    device_info: str = ""


class _CollectiveConfig(msgspec.Struct):
    devices: list[_Rank] = []


class _Mean(msgspec.Struct):
    time: float | str | None = None  # the file writes "nan" as text
    cpu_time: float | str | None = None


class _PerIteration(msgspec.Struct):
    times_us: list[float] = []
    per_process_max_times_us: list[list[float]] = []


class _SizeResult(msgspec.Struct):
    size: int
    type: str = ""
    redop: str = ""
    out_of_place: _Mean | None = None
    in_place: _Mean | None = None
    out_of_place_per_iter: _PerIteration | None = None
    in_place_per_iter: _PerIteration | None = None


class _CollectiveFile(msgspec.Struct):
    results: list[_SizeResult]
    start_time: str | None = None
    end_time: str | None = None
    config: _CollectiveConfig = msgspec.field(default_factory=_CollectiveConfig)


def read_nccl_tests(_path: Path, blob: bytes) -> ResultFile:
    """Read a file of nccl-tests.

    Raises ValueError: when the file is damaged.
    """
    found = decode(blob, _CollectiveFile)
    ranks = found.config.devices
    series = tuple(each for size in found.results for each in _series(size, ranks))
    cannot = _CANNOT if any(len(each.took_s) for each in series) else ("single iterations: run nccl-tests with -I 1", *_CANNOT)
    ends = (local_wall_s(found.start_time, _DATE), local_wall_s(found.end_time, _DATE))
    wall_s = None if ends[0] is None or ends[1] is None else (ends[0], ends[1] + 1.0)  # the file has whole seconds
    hosts = {each.hostname for each in ranks}
    if len(hosts) > 1:
        cannot = (f"the GPUs of other machines: the ranks ran on {len(hosts)} machines, and this store covers one", *cannot)
    return ResultFile(
        tool="nccl-tests",
        series=series,
        cannot=cannot,
        wall_s=wall_s,
        pids=tuple(sorted({each.pid for each in ranks if each.pid > 0})),
    )


def _series(result: _SizeResult, ranks: list[_Rank]) -> Iterator[ResultSeries]:
    places = (
        ("out-of-place", result.out_of_place, result.out_of_place_per_iter),
        ("in-place", result.in_place, result.in_place_per_iter),
    )
    for place, mean, single in places:
        if mean is None and single is None:
            continue
        time_us = None if mean is None else mean.time if mean.time is not None else mean.cpu_time
        name = " ".join(word for word in (f"{result.size} B", result.type, result.redop, place) if word and word != "none")
        yield checked(
            ResultSeries(
                name=name,
                took_s=as_seconds(single.times_us, _US) if single is not None else np.empty(0),
                figures={"mean": time_us * _US} if isinstance(time_us, int | float) else {},
                gpu=ranks[0].device_info or None if ranks else None,
                remarks=_slowest(single, ranks),
            )
        )


def _slowest(single: _PerIteration | None, ranks: list[_Rank]) -> tuple[str, ...]:
    """Return a remark that names the process with the longest median; empty without times of several processes."""
    rows = [as_seconds(row, _US) for row in (single.per_process_max_times_us if single is not None else ()) if row]
    if len(rows) < 2:
        return ()
    medians = [float(np.median(row)) for row in rows]
    place = int(np.argmax(medians))
    above = medians[place] / float(np.median(medians)) - 1.0 if np.median(medians) > 0 else 0.0
    pids = list(dict.fromkeys((each.hostname, each.pid) for each in ranks))
    where = ""
    if len(pids) == len(rows):
        gpus = [each.device_hex for each in ranks if (each.hostname, each.pid) == pids[place]]
        where = f", pid {pids[place][1]} on GPU {', '.join(gpus)}"
    return (f"slowest process: row {place}{where}, median {above:+.1%} against the processes' median",)
