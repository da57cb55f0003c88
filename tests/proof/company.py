"""Processes on the simulated GPU: process lists and the utilisation record, with the sampling of an H200's driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from annotate.evidence import Ownership, Process, ProcessList, Times, Values, Visibility
from tests.proof.chance import generator
from tests.proof.disturbances import Disturbance
from tests.proof.shown import OWN_BYTES
from tests.proof.sight import Sight
from tests.proof.timeline import FOREIGN_SHARE_RATIO, Timeline

OWN_PID, FIRST_FOREIGN_PID = 4242, 5311
_SAMPLE_S = 0.2  # period of the utilisation record's samples: each names one process
_REACH_NS = 1_000_000_000  # oldest sample that the record returns
_CONTEXT_BYTES, _MEMORY_BYTES = 1_447_034_880, 150_754_820_096
_LIST_TOOK_NS, _USE_TOOK_NS = 280_000, 2_200_000
_LEAVES_S = 0.4  # from the end of a guest's work to the guest's exit
_HEARTBEAT_NS = 990_000_000  # an unchanged list is stored once per heartbeat
_STARTED_S = 1_795_324_263.54
_NEVER_NS, _ALWAYS_NS = 1 << 61, -(1 << 61)


@dataclass(frozen=True, slots=True, kw_only=True)
class Guest:
    """Another process on the GPU: the start and end of its context, and the memory in use."""

    pid: int
    begin_ns: int
    end_ns: int
    memory_bytes: int


def guests(disturbances: Sequence[Disturbance], window_begin_ns: int) -> tuple[Guest, ...]:
    """Return the processes of these disturbances, in nanoseconds of the same clock as the window's start."""
    found: list[Guest] = []
    for each in disturbances:
        if not each.family.startswith("neighbour") or not each.pieces:
            continue
        first_s, last_s = each.pieces[0].begin_s, each.pieces[-1].end_s
        always = first_s < 0.0
        holds = each.family == "neighbour-holds"
        found.append(
            Guest(
                pid=FIRST_FOREIGN_PID + 41 * len(found),
                begin_ns=_ALWAYS_NS if always else window_begin_ns + round((first_s - each.visible_s) * 1e9),
                end_ns=_NEVER_NS if always else window_begin_ns + round((last_s + _LEAVES_S) * 1e9),
                memory_bytes=round(each.depth * _MEMORY_BYTES) if holds else _CONTEXT_BYTES,
            )
        )
    return tuple(found)


def memory_bytes(of: Sequence[Guest], at_ns: Times) -> Values:
    """Return the memory of these processes at each time."""
    held = np.zeros(len(at_ns))
    for guest in of:
        held += guest.memory_bytes * ((at_ns >= guest.begin_ns) & (at_ns < guest.end_ns))
    return held


class Company:
    """The process lists of one run at given times, some with the utilisation record."""

    def __init__(self, timeline: Timeline, of: Sequence[Guest], sight: Sight, uuid: str, seed: int) -> None:
        self._guests, self._sight, self._uuid = of, sight, uuid
        rng = generator(seed, "utilisation")
        edges_s, levels = timeline.edges_s, timeline.levels
        sampled_s = np.arange(float(rng.random()) * _SAMPLE_S, float(edges_s[-1]), _SAMPLE_S)
        self._sampled_ns = np.round(sampled_s * 1e9).astype(np.int64)

        def mean(shares: Values) -> Values:
            done = np.concatenate([[0.0], np.cumsum(np.diff(edges_s) * shares)])
            gained = np.interp(sampled_s, edges_s, done) - np.interp(sampled_s - _SAMPLE_S, edges_s, done)
            return np.asarray(gained / _SAMPLE_S, np.float64)

        working = levels.working > 0.0
        foreign = mean(levels.slices * np.where(working, FOREIGN_SHARE_RATIO, 1.0))
        self._foreign = rng.random(len(sampled_s)) < foreign
        busy_ratio = timeline.workload.kernel.utilization_ratio * timeline.workload.metered_share
        self._own = np.where(self._foreign, 0.0, mean(working.astype(np.float64)) * busy_ratio)

    def process_lists(self, lists_ns: Times, use_ns: Times, epoch_ns: int) -> tuple[ProcessList, ...]:
        """Return the stored lists: equal lists once per heartbeat, and every list with the utilisation record."""
        found = [self._process_list(int(at_ns), None, epoch_ns) for at_ns in _stored_ns(lists_ns, self._guests)]
        before_ns = 0
        for at_ns in use_ns.tolist() if self._sight.utilization else []:
            found.append(self._process_list(at_ns, before_ns, epoch_ns))
            before_ns = at_ns
        return tuple(sorted(found, key=lambda process_list: process_list.at_ns))

    def _process_list(self, at_ns: int, since_ns: int | None, epoch_ns: int) -> ProcessList:
        sight, processes = self._sight, []
        own_ratio, foreign_ratio = self._ratios(since_ns, at_ns)
        if sight.own_listed:
            processes.append(_process(OWN_PID, OWN_BYTES, own_ratio, Ownership.OWN))
        for i, guest in enumerate(self._guests):
            if not guest.begin_ns <= at_ns < guest.end_ns:
                continue
            ratio = foreign_ratio if i == 0 else None
            if not sight.hidden:
                processes.append(_process(guest.pid, guest.memory_bytes, ratio, Ownership.FOREIGN))
            elif ratio is not None:  # a process of another container is only in the utilisation record
                processes.append(Process(pid=guest.pid, utilization_ratio=ratio, listed=False, ownership=Ownership.FOREIGN))
        return ProcessList(
            uuid=self._uuid,
            at_ns=epoch_ns + at_ns,
            took_ns=_LIST_TOOK_NS if since_ns is None else _USE_TOOK_NS,
            processes=tuple(processes),
            visibility=Visibility.NAMESPACE if sight.hidden else Visibility.HOST,
        )

    def _ratios(self, since_ns: int | None, at_ns: int) -> tuple[float | None, float | None]:
        """Return the record's mean utilisation of the own and the foreign process since ``since_ns``, over 1 s at most.

        Both are None without samples.  A process without work has None, but the own process 0 if neither worked.
        """
        if since_ns is None:
            return None, None
        first, last = np.searchsorted(self._sampled_ns, [max(since_ns, at_ns - _REACH_NS), at_ns])
        if first == last:
            return None, None
        own, foreign = float(self._own[first:last].mean()), float(self._foreign[first:last].mean())
        return (
            round(own, 2) if own or not foreign else None,
            round(foreign, 2) if foreign else None,
        )


def _process(pid: int, memory_bytes: int, ratio: float | None, ownership: Ownership) -> Process:
    return Process(
        pid=pid, name="python3", user="root", started_s=_STARTED_S + (pid - OWN_PID), memory_bytes=memory_bytes,
        utilization_ratio=ratio, ownership=ownership,
    )  # fmt: skip


def _stored_ns(lists_ns: Times, of: Sequence[Guest]) -> list[int]:
    """Return the times of the stored lists: changed lists, the last one before each change, one per heartbeat, and the last."""
    stored_ns: list[int] = []
    pids_before: tuple[int, ...] | None = None
    last_ns: int | None = None
    for at_ns in lists_ns.tolist():
        pids = tuple(guest.pid for guest in of if guest.begin_ns <= at_ns < guest.end_ns)
        if pids != pids_before or at_ns - stored_ns[-1] >= _HEARTBEAT_NS:
            if last_ns is not None and pids != pids_before and last_ns != stored_ns[-1]:
                stored_ns.append(last_ns)
            stored_ns.append(at_ns)
        pids_before, last_ns = pids, at_ns
    if last_ns is not None and last_ns != stored_ns[-1]:
        stored_ns.append(last_ns)
    return stored_ns
