"""The SM clock of one GPU during each request of a serving benchmark, and during sets of requests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from annotate.evidence import Trace, Values
from gpuwatch.results.result_file import ServedRequests

_STEP_NS = 10_000_000
_SLOW_RATIO = 0.01  # share of requests with the longest time to first token
_FIRST_NS = 10_000_000_000


@dataclass(frozen=True, slots=True)
class RequestPhase:
    """A set of requests: the count, the median time to first token, and the mean SM clock.

    The clock is the driver's, averaged over the requests with a known clock; None if no request has one.
    """

    name: str
    count: int
    ttft_s: float
    clock_mhz: float | None


def clocks_of_requests(requests: ServedRequests, trace: Trace) -> Values:
    """Return the mean SM clock during each request; NaN for a request without observations or start time."""
    count = len(requests.ttft_s)
    if requests.at_ns is None or not count:
        return np.full(count, np.nan)
    ends_ns = requests.at_ns + (requests.latency_s * 1e9).astype(np.int64)
    seen = trace.within("sm_clock_mhz", int(requests.at_ns[0]), int(ends_ns.max()) + _STEP_NS, step_ns=_STEP_NS)
    known = np.isfinite(seen.values)
    sums = np.concatenate([[0.0], np.cumsum(np.where(known, seen.values, 0.0))])
    counts = np.concatenate([[0], np.cumsum(known)])
    first = np.searchsorted(seen.at_ns, requests.at_ns, side="right") - 1  # the latest value at the start of a request
    last = np.maximum(np.searchsorted(seen.at_ns, ends_ns, side="right"), first + 1)
    found = counts[last] - counts[first]
    return np.where(found > 0, (sums[last] - sums[first]) / np.maximum(found, 1), np.nan)


def phases(requests: ServedRequests, clock_mhz: Values) -> tuple[RequestPhase, ...]:
    """Return the sets of all requests and of the slowest 1 % by time to first token.

    Start times that span at least 10 s add two sets: the requests of the first 10 s, and all later requests.
    """
    count = len(requests.ttft_s)
    if not count:
        return ()
    slow = np.zeros(count, np.bool_)
    slow[np.argsort(requests.ttft_s, kind="stable")[-max(1, round(_SLOW_RATIO * count)) :]] = True
    parts: list[tuple[str, npt.NDArray[np.bool_]]] = [("all", np.ones(count, np.bool_)), ("slowest 1 %", slow)]
    if requests.at_ns is not None:
        early = requests.at_ns - requests.at_ns[0] < _FIRST_NS
        parts += [("first 10 s", early), ("later", ~early)] if not early.all() else []
    return tuple(_phase(name, requests, clock_mhz, kept) for name, kept in parts)


def _phase(name: str, requests: ServedRequests, clock_mhz: Values, kept: npt.NDArray[np.bool_]) -> RequestPhase:
    clocks = clock_mhz[kept & np.isfinite(clock_mhz)]
    return RequestPhase(
        name, int(kept.sum()), float(np.median(requests.ttft_s[kept])), float(clocks.mean()) if len(clocks) else None
    )
