"""Results of serving benchmarks: `vllm bench serve --save-result --save-detailed` and SGLang's `bench_serving`.

vLLM's start times are readings of Python's ``perf_counter``, which on Linux is CLOCK_MONOTONIC, the store's clock.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import msgspec
import numpy as np

from gpuwatch.results.bounded_file import as_begins, as_seconds, local_wall_s
from gpuwatch.results.result_file import ResultFile, ResultSeries, ServedRequests

_DATE = "%Y%m%d-%H%M%S"
_UNDETAILED = "single requests: run vLLM with --save-detailed, SGLang with --output-details"
_UNTIMED = (
    "when each request began: SGLang writes no start times; wrap it in gpuwatch run, or name the interval with --from and --to"
)
_CANNOT = ("the server's own work: requests are timed in the client",)
_MS = 1e-3

Figure: TypeAlias = float | int | None


class _Served(msgspec.Struct):
    duration: float
    completed: int
    date: str | None = None
    backend: str | None = None
    model_id: str | None = None
    tokenizer_id: str | None = None
    mean_ttft_ms: Figure = None
    median_ttft_ms: Figure = None
    start_times: list[float] | None = None
    ttfts: list[float] | None = None
    itls: list[list[float]] | None = None
    errors: list[str | None] | None = None


def read_serving(_path: Path, blob: bytes) -> ResultFile:
    """Read the last result of a file.

    Raises ValueError: for a damaged file.
    """
    try:
        every = msgspec.json.Decoder(_Served).decode_lines(blob)  # both tools append to a file
    except msgspec.DecodeError:
        every = [msgspec.json.decode(blob, type=_Served)]  # another tool indented the file
    found = every[-1]
    is_vllm = found.date is not None or found.tokenizer_id is not None or found.start_times is not None
    name = "vLLM bench serve" if is_vllm else "SGLang bench_serving"
    requests = None if found.ttfts is None else _requests(found)
    cannot = [_UNDETAILED] if requests is None else [_UNTIMED] if requests.at_ns is None else []
    if len(every) > 1:
        cannot.append(f"results before the last: the file holds {len(every)}")
    figures = {"mean": found.mean_ttft_ms, "median": found.median_ttft_ms}
    ttft = {key: value * _MS for key, value in figures.items() if value is not None}
    return ResultFile(
        tool=name,
        series=(ResultSeries(name="time to first token", figures=ttft),) if requests is None and ttft else (),
        requests=requests,
        cannot=(*cannot, *_CANNOT),
        written_s=local_wall_s(found.date, _DATE),
    )


def _requests(found: _Served) -> ServedRequests:
    ttft_s = as_seconds(found.ttfts or ())
    itls = found.itls or [[] for _ in ttft_s]
    errors = found.errors or [None] * len(ttft_s)
    begins = None if found.start_times is None else as_begins(found.start_times, 1e9)
    lengths = {len(ttft_s), len(itls), len(errors), len(ttft_s) if begins is None else len(begins)}
    if len(lengths) > 1:
        raise ValueError(f"expected as many ttfts, itls, errors and start_times, found {sorted(lengths)}")
    latency_s = ttft_s + np.array([float(as_seconds(each).sum()) for each in itls], np.float64)
    # A failed request has an error and no first token.
    kept = (ttft_s > 0.0) & np.array([not each for each in errors], np.bool_)
    order = np.flatnonzero(kept)
    if begins is not None:
        order = order[np.argsort(begins[order], kind="stable")]
    return ServedRequests(
        ttft_s=ttft_s[order],
        latency_s=latency_s[order],
        at_ns=None if begins is None else begins[order],
        failed_count=int((~kept).sum()),
        duration_s=found.duration if 0.0 < found.duration < 1e7 else None,
    )
