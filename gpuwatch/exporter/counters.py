"""The exporter's counts of every sample and window since the daemon started, including those between two scrapes.

``Tallies`` is a sink of the samplers and costs one lock, a few additions and at most four bisections per sample.
``Outcomes`` counts each verdict.  No code here reads the store.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

from annotate.budget import Proof, ProofState
from annotate.declared import amount
from annotate.evidence import Device, Event, Lane, PowerRecord, ProcessList, Reading, Reason
from annotate.rule import Severity
from annotate.rules import RULES
from annotate.verdict import Answered, Status
from gpuwatch import clock
from gpuwatch.exporter.metrics import (
    JUDGING_BUCKETS,
    LATENESS_BUCKETS,
    LENGTH_BUCKETS,
    OFF_BUCKETS,
    POWER_BUCKETS,
    RATIO_BUCKETS,
)
from gpuwatch.interfaces import Lost, Run, Sweep

LOADS = ("busy", "idle", "unknown")
PEAK_NS = 60_000_000_000  # interval of the dense record's maximum, the same for every scraper
MASK_STALE_NS = 1_500_000_000  # a mask counts until the next sample, and not at all if that sample is later than this
# Numbers of NVIDIA's catalogue whose series start at zero, so that increase() includes the first report.  They cover faults of
# applications, memory, NVLink, the bus and the GPU's microcontrollers.
KNOWN_XIDS = (
    "13", "31", "43", "45", "48", "61", "62", "63", "64", "68", "69", "74", "79", "92", "94", "95", "109", "119", "120", "140",
)  # fmt: skip
OTHER_XID = "other"
CANARIES_COUNT = 64  # GPUs with a stored canary; the number needs a limit, because a client may name any GPU
_NO_XIDS: Mapping[str, float] = {}
XIDS_COUNT = 64  # Xid numbers with a separate series per GPU; a label needs a bounded set of values


@dataclass(slots=True)
class LaneTally:
    """The counts of one lane of one GPU: answers, misses, losses, time inside calls, and time of the last answer."""

    count: int = 0
    missed_count: int = 0
    lost_count: int = 0
    call_ns: int = 0
    at_ns: int | None = None


class GpuTally:
    """The counts of one GPU.  A page is made from a copy, so no sampler waits for a page."""

    __slots__ = (
        "device",
        "fast",
        "held_ns",
        "lanes",
        "lateness",
        "limit_w",
        "lock",
        "mask",
        "mask_at_ns",
        "mem",
        "peaks_w",
        "power",
        "process_list",
        "slow",
        "sm",
        "xids",
    )  # fmt: skip

    def __init__(self, device: Device, xids_before: Mapping[str, float] = _NO_XIDS) -> None:
        self.lock = threading.Lock()
        self.device = device
        self.lanes = {lane: LaneTally() for lane in Lane}
        self.fast: Reading | None = None
        self.slow: Reading | None = None
        self.process_list: ProcessList | None = None
        self.sm = tuple(Buckets(RATIO_BUCKETS) for _ in LOADS)
        self.mem = tuple(Buckets(RATIO_BUCKETS) for _ in LOADS)
        self.power = Buckets(POWER_BUCKETS)
        self.lateness = Buckets(LATENESS_BUCKETS)
        self.limit_w = device.power_limit_w
        self.mask: int | None = None
        self.mask_at_ns = -1
        self.held_ns: dict[int, int] = {}  # by whole mask, for one addition per sample; a scrape separates the bits
        self.peaks_w: deque[tuple[int, float]] = deque(maxlen=256)
        # By Xid number: count, and wall time of the last report.
        self.xids: dict[str, tuple[int, float | None]] = dict.fromkeys((*KNOWN_XIDS, OTHER_XID), (0, None))
        for number, last_s in xids_before.items():
            self.xids[self._xid_label(number)] = (0, last_s)

    def take(self, sweep: Sweep) -> None:
        observed, lane = sweep.observed, self.lanes[sweep.lane]
        with self.lock:
            lane.missed_count += sweep.missed_count
            if isinstance(observed, Event | Lost):
                self._count_event(observed, lane)
                return
            lane.count += 1
            lane.call_ns += observed.took_ns
            lane.at_ns = max(observed.at_ns, lane.at_ns or 0)
            if isinstance(observed, Reading):
                if sweep.lane is Lane.FAST:
                    self._fast(observed, sweep.late_ns)
                elif sweep.lane is Lane.PULSE:
                    self._clock(observed, sweep.late_ns)
                elif sweep.lane is Lane.SLOW and _is_newer(observed, self.slow):
                    self.slow = observed
                    self.limit_w = observed.power_limit_w or self.limit_w
            elif isinstance(observed, ProcessList):
                self.process_list = observed
            elif isinstance(observed, PowerRecord) and observed.sample_w:
                self.peaks_w.append((observed.at_ns, max(observed.sample_w)))

    def copy(self) -> GpuTally:
        other = GpuTally(self.device)
        with self.lock:
            other.fast, other.slow, other.process_list = self.fast, self.slow, self.process_list
            other.lanes = {lane: copy(lane_tally) for lane, lane_tally in self.lanes.items()}
            other.sm = tuple(buckets.copy() for buckets in self.sm)
            other.mem = tuple(buckets.copy() for buckets in self.mem)
            other.power, other.lateness = self.power.copy(), self.lateness.copy()
            other.held_ns, other.xids, other.peaks_w = self.held_ns.copy(), self.xids.copy(), self.peaks_w.copy()
        return other

    def peak_w(self, now_ns: int) -> float | None:
        """Return the highest dense power sample of the last minute in watts; None without one."""
        return max((watts for at_ns, watts in self.peaks_w if at_ns >= now_ns - PEAK_NS), default=None)

    def _fast(self, reading: Reading, late_ns: int) -> None:
        if _is_newer(reading, self.fast):
            self.fast = reading
        load = self._clock(reading, late_ns)
        if (clock_mhz := reading.mem_clock_mhz) is not None and (max_mhz := self.device.mem_clock_max_mhz):
            self.mem[load].note(clock_mhz / max_mhz)
        if reading.power_w is not None and self.limit_w:
            self.power.note(reading.power_w / self.limit_w)

    def _clock(self, reading: Reading, late_ns: int) -> int:
        """Count the signals that fast rows and pulses share; return the index of the sample's load in ``LOADS``."""
        mask = reading.event_reasons_mask
        load = 2 if mask is None else 1 if mask & Reason.GPU_IDLE.value else 0
        if (clock_mhz := reading.sm_clock_mhz) is not None and (max_mhz := self.device.sm_clock_max_mhz):
            self.sm[load].note(clock_mhz / max_mhz)
        if late_ns:  # a read at a window's edge has no deadline and no lateness
            self.lateness.note(late_ns / 1e9)
        elapsed_ns = reading.at_ns - self.mask_at_ns
        if elapsed_ns <= 0:  # another thread has delivered a later sample
            return load
        before, self.mask, self.mask_at_ns = self.mask, mask, reading.at_ns
        if before is not None and elapsed_ns <= MASK_STALE_NS:
            self.held_ns[before] = self.held_ns.get(before, 0) + elapsed_ns
        return load

    def _count_event(self, observed: Event | Lost, lane: LaneTally) -> None:
        if isinstance(observed, Lost):
            lane.lost_count += 1
            self.mask = None
        elif observed.kind == "xid" and observed.value is not None:
            number = self._xid_label(str(observed.value))
            self.xids[number] = (self.xids.get(number, (0, None))[0] + 1, clock.wall_s())

    def _xid_label(self, number: str) -> str:
        """Return an Xid's label: the number, or ``other`` beyond ``XIDS_COUNT`` numbers."""
        has_room = number in self.xids or len(self.xids) <= XIDS_COUNT  # ``other`` does not count
        return number if has_room else OTHER_XID


def _is_newer(reading: Reading, than: Reading | None) -> bool:
    """Return True if a row is at least as new: two threads may deliver rows out of order, and a counter must not decrease."""
    return than is None or reading.at_ns >= than.at_ns


class Tallies:
    """The tallies of all watched GPUs, as a sink.  ``device`` returns the facts of a watched GPU by UUID, otherwise None."""

    def __init__(self, device: Callable[[str], Device | None]) -> None:
        self._device = device
        self._gpus: dict[str, GpuTally] = {}
        self._adding = threading.Lock()
        self._xids_before: dict[str, dict[str, float]] = {}

    def recall(self, xids: Iterable[tuple[str, int, float]]) -> None:
        """Store the wall times of Xids reported to an earlier daemon of this boot; call this before the first sweep."""
        for uuid, number, last_s in xids:
            self._xids_before.setdefault(uuid, {})[str(number)] = last_s

    def take(self, sweep: Sweep) -> None:
        tally = self._gpus.get(sweep.uuid)
        if tally is None and (device := self._device(sweep.uuid)) is not None:
            with self._adding:
                tally = self._gpus.setdefault(sweep.uuid, self.fresh(device))
        if tally is not None:  # None: an event of a MIG instance, or of a GPU that is not watched
            tally.take(sweep)

    def of(self, uuid: str) -> GpuTally | None:
        return self._gpus.get(uuid)

    def fresh(self, device: Device) -> GpuTally:
        """Return a new tally of a GPU, with the Xids of earlier daemons."""
        return GpuTally(device, self._xids_before.get(device.uuid, _NO_XIDS))


class Buckets:
    """Counts of values between bounds (upper bound included) and above.  Callers hold a lock, or an increment could be lost."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def note(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def copy(self) -> Buckets:
        other = Buckets(self.bounds)
        other.counts, other.total = self.counts.copy(), self.total
        return other


@dataclass(frozen=True, slots=True)
class LastCanary:
    """The last canary of a GPU: measurements, and wall time of the judgement."""

    at_s: float
    clock_hz: float
    copy_bytes_per_s: float | None


class Outcomes:
    """Counts of finished windows and their verdicts, and the last canary of each GPU.  ``lock`` guards the counts."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.statuses = dict.fromkeys((status.value for status in Status), 0)
        # Every possible label starts at zero, because increase() needs an existing series.
        self.findings = Counter({(rule.name, severity.value): 0 for rule in RULES for severity in Severity})
        self.failures = Counter({rule.name: 0 for rule in RULES})
        self.lengths = {status.value: Buckets(LENGTH_BUCKETS) for status in Status}
        self.judging = Buckets(JUDGING_BUCKETS)
        self.proofs = Counter({(proof.value, state.value): 0 for proof in Proof for state in ProofState})
        self.bounds, self.repeatability = Buckets(OFF_BUCKETS), Buckets(OFF_BUCKETS)
        self.canaries: dict[str, LastCanary] = {}  # by UUID; the page shows those of watched GPUs

    def judged(self, run: Run, judging_s: float | None) -> None:
        """Count a finished window; ``judging_s`` is None if the window was not judged."""
        with self.lock:
            if run.status not in self.statuses:
                return
            self.statuses[run.status] += 1
            if run.end_ns is not None:
                self.lengths[run.status].note((run.end_ns - run.begin_ns) / 1e9)
            if judging_s is not None:
                self.judging.note(judging_s)
                self._note_canary(run)
            for verdict in run.verdicts:
                for finding in verdict["findings"]:
                    if finding["answered"] == Answered.FOUND:
                        self.findings[finding["rule"], finding["severity"] or "note"] += 1
                    elif finding.get("failure") is not None:
                        self.failures[finding["rule"]] += 1
                for proof in verdict.get("proofs") or ():
                    self.proofs[proof["proof"], proof["state"]] += 1
                if (budget := verdict.get("budget")) is not None:
                    self._count_budget(budget)

    def _note_canary(self, run: Run) -> None:
        """Store the canary of a window on one GPU.  The measured process declares canaries, so their alerts must not be urgent."""
        clock_mhz = amount(run.declared, "canary_clock_mhz")
        if clock_mhz and len(run.uuids) == 1 and (run.uuids[0] in self.canaries or len(self.canaries) < CANARIES_COUNT):
            copied = amount(run.declared, "canary_copy_bytes_count")
            self.canaries[run.uuids[0]] = LastCanary(clock.wall_s(), clock_mhz * 1e6, copied or None)

    def _count_budget(self, budget: Mapping[str, Any]) -> None:
        """Count the largest bound of the claimed numbers if all have one, and the leading number's repeatability."""
        bounds = [number["bound_ratio"] for number in budget["numbers"] if number["number"] in budget["claimed"]]
        if bounds and None not in bounds:
            self.bounds.note(max(bounds))
        for number in budget["numbers"]:
            ratio = (number.get("repeatability") or {}).get("ratio")
            if number["number"] == budget.get("leading") and ratio is not None:
                self.repeatability.note(ratio)
