"""Windows on a shared GPU, meant to be called valid."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from annotate.evidence import Ownership, ProcessList
from tests.proof.fooling_stage import (
    WORK,
    Attempt,
    Edit,
    Setting,
    act,
    beside,
    column,
    declaring,
    device,
    inside_namespace,
    listed,
    recorded,
    without,
)
from tests.proof.fooling_table import Entry, off
from tests.proof.testified import Variant

_EVER_S = 1e3


def _unused(at_s: float, seen: ProcessList) -> ProcessList | None:
    """Return the list as seen in a container, or None for a list with the utilisation record, which is not permitted here."""
    return None if any(each.utilization_ratio is not None for each in seen.processes) else inside_namespace(at_s, seen)


def hidden_tenant() -> Attempt:
    """Another container works for a tenth of the time; this container has no list and no permission for utilisation.

    Truth: throughput 5 % low.  The other container's 669 MB appear as unexplained memory in use.
    """
    found = act(Setting(work=WORK["gemm"]), [Edit(begin_s=-_EVER_S, end_s=_EVER_S, level="slices", value=0.11)])
    evidence = column(listed(found.evidence(), _unused), "memory_used_bytes", lambda at_ns, used: used + 669e6)
    return Attempt(evidence=evidence, truth=found.truth)


def half_of_the_sms() -> Attempt:
    """A second MPS client takes a share of every SM throughout the window; the list names the MPS server and not the client.

    Truth: mean 20 % above the record of six windows.  Without time slices, every iteration is equally longer.
    """
    found = act(
        Setting(work=WORK["softmax"], variant=Variant.TIMES),
        [Edit(begin_s=-_EVER_S, end_s=_EVER_S, level="slower", value=1.2)],
    )
    server = beside(lambda at_s: None, name="nvidia-cuda-mps-server", memory_bytes=30_000_000)
    evidence = replace(listed(found.evidence(), server), record=recorded(found, power_w=528.0, clock_mhz=1976.0))
    return Attempt(evidence=evidence, truth=found.truth)


def idle_looking_neighbour() -> Attempt:
    """A listed process of 669 MB works 3 ms of every 60 ms; its rare samples in the utilisation record read 0.

    Truth: throughput 5 % low in a plain window.
    """
    bursts = [Edit(begin_s=0.06 * i, end_s=0.06 * i + 0.006, level="slices", value=1.0) for i in range(-100, 70)]
    found = act(Setting(work=WORK["decoding"]), bursts)
    return Attempt(evidence=listed(found.evidence(), beside(lambda at_s: 0.0)), truth=found.truth)


def own_decoder() -> Attempt:
    """A child of the benchmark, which counts as own, decodes video on the GPU for the last 60 % of the window.

    Truth: mean 4 to 5 % high.  The list marks the child as own, and the utilisation record shows 10 % for the child.
    """
    found = act(
        Setting(work=WORK["attention"], variant=Variant.TIMES, length_s=5.0),
        [Edit(begin_s=2.0, end_s=_EVER_S, level="slices", value=0.2)],
    )
    child = beside(
        lambda at_s: 0.1 if at_s > 2.0 else 0.0, ownership=Ownership.OWN, own=lambda at_s: 0.98 if at_s < 2.0 else 0.88
    )
    return Attempt(evidence=listed(found.evidence(), child), truth=found.truth)


def remote_desktop() -> Attempt:
    """A headless X server renders another user's visualisation (EGL, VirtualGL): 1 ms per frame, 60 frames a second.

    Truth: throughput 4 % low in a plain window.  The list marks a graphics process, for which NVML has no utilisation.
    """
    frames = [Edit(begin_s=i / 60, end_s=i / 60 + 0.001, level="slower", value=3.0) for i in range(-360, 250)]
    found = act(Setting(work=WORK["fp32 gemm"]), frames)
    return Attempt(evidence=listed(found.evidence(), beside(lambda at_s: None, name="Xorg", graphics=True)), truth=found.truth)


def other_virtual_machine() -> Attempt:
    """A vGPU scheduler gives another VM time slices in the second half; this guest has readings of the guest alone.

    Truth: throughput 15 % low in a plain window, without lists, power and GPM.  Utilisation covers this guest alone.
    """
    found = act(Setting(work=WORK["convolution"], stamped=False), [Edit(begin_s=2.0, end_s=_EVER_S, level="slices", value=0.6)])
    evidence = device(found.evidence(), name="NVIDIA H200-71C", virtualization="vgpu")
    evidence = column(evidence, "utilization_ratio", lambda at_ns, busy: np.where(at_ns > 2.1e9, busy * 0.68, busy))
    hidden = ("sm_activity_ratio", "sm_occupancy_ratio", "tensor_activity_ratio", "dram_activity_ratio", "energy_j", "power_w")
    return Attempt(
        evidence=without(evidence, *hidden, "power_average_w", "dense_power", "process_list", "temperature_c"),
        truth=found.truth,
    )


def sibling_instance() -> Attempt:
    """The siblings of a MIG instance draw the board's power for 45 % of the window, so the cap lowers this instance's clock.

    Truth: mean 4 to 7 % high.  The board's power stays at the limit while the clock falls.  MIG reports no utilisation.
    """
    setting = Setting(work=WORK["attention"], variant=Variant.TIMES, stamped=False)
    found = act(setting, [Edit(begin_s=1.0, end_s=2.8, level="power_limit_w", value=580.0)])
    undisturbed = replace(found, ran=found.clean).evidence()
    evidence = found.evidence()
    names = ("power_w", "power_average_w", "energy_j", "power_cap_ns", "event_reasons_mask", "power_limit_w")
    columns = dict(evidence.trace.columns) | {name: undisturbed.trace.columns[name] for name in names}
    trace = replace(evidence.trace, columns=columns, dense_power=undisturbed.trace.dense_power)
    evidence = device(replace(evidence, trace=trace), name="NVIDIA H200 MIG 3g.71gb", mig_mode=True, parent_uuid="GPU-parent")
    evidence = column(evidence, "mig_mode", lambda at_ns, mode: np.ones_like(mode))
    return Attempt(evidence=without(evidence, "utilization_ratio", "mem_utilization_ratio"), truth=found.truth)


def jobs_between_lists() -> Attempt:
    """A health check runs a bandwidth test of 0.25 s three times, and no process list falls into a test.

    Truth: throughput 5 to 7 % low in a plain window.  The utilisation record is not permitted.  During each test, power and memory
    traffic change, and memory in use is 500 MB higher.
    """
    spans = [(1.12, 1.37), (2.62, 2.87), (4.3, 4.55)]
    found = act(
        Setting(work=WORK["gemm"], length_s=6.0), [Edit(begin_s=b, end_s=e, level="slices", value=1.0) for b, e in spans]
    )

    def lists(at_s: float, seen: ProcessList) -> ProcessList | None:
        if any(b - 0.05 <= at_s < e + 0.05 for b, e in spans) or any(p.utilization_ratio is not None for p in seen.processes):
            return None
        return seen

    evidence = listed(found.evidence(), lists)
    for begin_s, end_s in spans:
        evidence = column(
            evidence,
            "memory_used_bytes",
            lambda at_ns, used, b=begin_s, e=end_s: used + 5e8 * ((at_ns > b * 1e9) & (at_ns < e * 1e9)),  # type: ignore[misc]
        )
    return Attempt(evidence=evidence, truth=found.truth)


def thief_of_bandwidth() -> Attempt:
    """Copies of a process in another namespace slow a third of the window; the loop declares ``varies=True``.

    Truth: mean 8 % high, without time slices.  In this container, the utilisation record names the own PID alone.
    """
    found = act(
        Setting(work=WORK["decoding"], variant=Variant.TIMES),
        [
            Edit(begin_s=1.2, end_s=2.6, level="slower", value=1.28),
            Edit(begin_s=1.2, end_s=2.6, level="copies", value=0.8),
        ],
    )
    return Attempt(evidence=declaring(listed(found.evidence(), inside_namespace), varies=True), truth=found.truth)


def second_rank_of_the_same_job() -> Attempt:
    """A wrong local rank bound two ranks of the measured process tree to one GPU, so both share the time slices.

    Truth: throughput 46 % below one rank alone.  The lists have two own processes, each with half of the utilisation.
    """
    found = act(Setting(work=WORK["convolution"]), [Edit(begin_s=-_EVER_S, end_s=_EVER_S, level="slices", value=0.92)])
    twin = beside(lambda at_s: 0.5, ownership=Ownership.OWN, own=lambda at_s: 0.48, memory_bytes=10_000_000_000, pid=4243)
    evidence = listed(found.evidence(), twin)
    evidence = replace(evidence, window=replace(evidence.window, pids=frozenset({4242, 4243})))
    return Attempt(evidence=replace(evidence, record=recorded(found, power_w=690.0, clock_mhz=1528.0)), truth=found.truth)


ENTRIES: tuple[Entry, ...] = (
    off(hidden_tenant, "an invisible container that works for a tenth of the time", "throughput"),
    off(half_of_the_sms, "an MPS client throughout, mean 20 % above the record", "mean"),
    off(idle_looking_neighbour, "a listed neighbour whose utilisation reads 0", "throughput"),
    off(own_decoder, "a child process decodes video on the GPU", "mean"),
    off(remote_desktop, "a desktop's frames on the same GPU", "throughput"),
    off(other_virtual_machine, "another VM's slices in the second half", "throughput"),
    off(sibling_instance, "MIG siblings take the power", "mean"),
    off(jobs_between_lists, "three bandwidth tests, each between two process lists", "throughput"),
    off(thief_of_bandwidth, "foreign copies for a third of the window, under varies=True", "mean"),
    off(second_rank_of_the_same_job, "two ranks of one job on a GPU, about half of the record's rate", "throughput"),
)
