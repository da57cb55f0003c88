"""Windows on a GPU shared with other processes, meant to be called valid."""

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
    """Drop the lists with utilisation, which is not permitted here, and hide the processes of the others."""
    return None if any(each.utilization_ratio is not None for each in seen.processes) else inside_namespace(at_s, seen)


def hidden_tenant() -> Attempt:
    """Return a window next to another container that always works for a tenth of the time, without lists or utilisation.

    Effect: throughput 6 % low.  The 669 MB of the other container are unexplained memory in use.
    """
    found = act(Setting(work=WORK["gemm"]), [Edit(begin_s=-_EVER_S, end_s=_EVER_S, level="slices", value=0.11)])
    evidence = column(listed(found.evidence(), _unused), "memory_used_bytes", lambda at_ns, used: used + 669e6)
    return Attempt(evidence=evidence, truth=found.truth)


def half_of_the_sms() -> Attempt:
    """Return a window in which a second MPS client always uses a share of every SM; only the server is listed.

    Effect: mean 20 % above the record of six windows.  There are no time slices: all iterations are equally longer.  Neither
    the host's facts nor the list name the client, whose memory counts for the server.
    """
    found = act(
        Setting(work=WORK["softmax"], variant=Variant.TIMES),
        [Edit(begin_s=-_EVER_S, end_s=_EVER_S, level="slower", value=1.2)],
    )
    server = beside(lambda at_s: None, name="nvidia-cuda-mps-server", memory_bytes=30_000_000)
    evidence = replace(listed(found.evidence(), server), record=recorded(found, power_w=528.0, clock_mhz=1976.0))
    return Attempt(evidence=evidence, truth=found.truth)


def idle_looking_neighbour() -> Attempt:
    """Return a window next to a listed process that takes 3 ms of every 60, with a recorded utilisation of 0.

    Effect: throughput 5 % low, without times.
    """
    bursts = [Edit(begin_s=0.06 * i, end_s=0.06 * i + 0.006, level="slices", value=1.0) for i in range(-100, 70)]
    found = act(Setting(work=WORK["decoding"]), bursts)
    return Attempt(evidence=listed(found.evidence(), beside(lambda at_s: 0.0)), truth=found.truth)


def own_decoder() -> Attempt:
    """Return a window in which a child of the benchmark decodes video on the GPU for the last 60 % of the time.

    Effect: mean about 8 % high.  The child is listed as own, with a utilisation of 10 %.
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
    """Return a window next to a headless X server that renders for 1 ms per frame, at 60 frames per second.

    Effect: throughput 4 % low, without times.  The process is listed as graphics, for which NVML reports no utilisation.
    """
    frames = [Edit(begin_s=i / 60, end_s=i / 60 + 0.001, level="slower", value=3.0) for i in range(-360, 250)]
    found = act(Setting(work=WORK["fp32 gemm"]), frames)
    return Attempt(evidence=listed(found.evidence(), beside(lambda at_s: None, name="Xorg", graphics=True)), truth=found.truth)


def other_virtual_machine() -> Attempt:
    """Return a window on a vGPU whose scheduler gives another VM time slices in the second half.

    Effect: throughput about 16 % low, without times.  There is no list, power or GPM; utilisation is that of the guest.
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
    """Return a MIG instance whose siblings draw the board's power for 45 % of the window, so that the cap lowers the clock.

    Effect: mean 4 to 7 % high.  The board's power stays at the limit while the clock falls; MIG has no utilisation.
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
    """Return a window with three bandwidth tests of 0.25 s by a health check, between two process lists.

    Effect: throughput 5 to 7 % low, without times.  Utilisation is not permitted.  During a test, power and memory traffic
    change, and about 500 MB more memory is in use.
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
    """Return a window with ``varies=True``, a third of which is slowed by copies of a process in another namespace.

    Effect: mean 8 % high.  There are no time slices; in this container the utilisation record names only the own PID.
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
    """Return a window in which a wrong local rank binds two ranks of the measured tree to one GPU.

    Effect: throughput 50 % of that of one rank alone.  Each of the two own processes has half of the utilisation.
    """
    found = act(Setting(work=WORK["convolution"]), [Edit(begin_s=-_EVER_S, end_s=_EVER_S, level="slices", value=0.92)])
    twin = beside(lambda at_s: 0.5, ownership=Ownership.OWN, own=lambda at_s: 0.48, memory_bytes=10_000_000_000, pid=4243)
    evidence = listed(found.evidence(), twin)
    evidence = replace(evidence, window=replace(evidence.window, pids=frozenset({4242, 4243})))
    return Attempt(evidence=replace(evidence, record=recorded(found, power_w=690.0, clock_mhz=1528.0)), truth=found.truth)


ENTRIES: tuple[Entry, ...] = (
    off(hidden_tenant, "another container at a tenth, unseen", "throughput"),
    off(half_of_the_sms, "an MPS client throughout, mean 20 % above the record", "mean"),
    off(idle_looking_neighbour, "a listed neighbour whose utilisation reads 0", "throughput"),
    off(own_decoder, "an own child decodes on the GPU", "mean"),
    off(remote_desktop, "a desktop's frames on the same GPU", "throughput"),
    off(other_virtual_machine, "another VM's slices in the second half", "throughput"),
    off(sibling_instance, "MIG siblings take the power", "mean"),
    off(jobs_between_lists, "three bandwidth tests between two lists", "throughput"),
    off(thief_of_bandwidth, "foreign copies for a third, under varies=True", "mean"),
    off(second_rank_of_the_same_job, "two own ranks on one GPU, half of the record's rate", "throughput"),
)
