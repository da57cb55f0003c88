"""Rules about shared hardware: partitions, displays, other own work, sockets and links, overlapping windows."""

from collections.abc import Mapping
from typing import Annotated

from annotate.case import Case
from annotate.claims import Claim
from annotate.declared import amount
from annotate.derived.busy import beyond_declared_ratio
from annotate.derived.condition_bounds import best_while_busy, link_bounds
from annotate.derived.foreign_bounds import foreign_bounds, own_work_bounds
from annotate.derived.held import by_bits
from annotate.derived.neighbours import ACTIVE_RATIO, is_at_rest, presence_span_ns
from annotate.derived.presence import Presence, alone, presences, unlisted_because
from annotate.derived.timed import SEEN_RATIO, SPREAD_S, beside
from annotate.evidence import Evidence, Fact, Reason
from annotate.ranges import Duration, Share
from annotate.rule import Answer, Basis, Clear, Found, Rule, RuleKind, Severity, Unobserved, rule

# The host's driver assigns time slices, which are not visible from inside.
_SLICED = {"vgpu": "a vGPU, which runs in time slices", "HAMi": "HAMi, which assigns time slices"}
_SHARED = {
    "host-vgpu": "vGPUs hosted by this machine",
    "host-vsga": "virtual machines hosted by this machine",
    "MPS": "MPS, whose clients run in parallel",
    "gpushare": "a scheduler that gives parts of its memory to several containers",
}


@rule(
    "contention-shared-partition",
    kind=RuleKind.INTEGRITY,
    says="the GPU is shared by design: {shared}",
    remedy="Measure on a whole GPU.",
)
def contention_shared_partition(evidence: Evidence, claim: Claim) -> Answer:
    """Finds a GPU that is shared by design: MIG, vGPU, MPS, schedulers that divide it.

    Why it matters:
        MIG instances have separate SMs but share the power limit, the temperature and the clock.  An MPS neighbour took
        about 30 %.  A vGPU stops when its time slice ends.

    Limits of detection:
        Use of the other parts meanwhile.  Time slices of NVIDIA's Kubernetes plugin, which are not visible in a container:
        neighbours then show as ``contention-residual``, or not at all.  MIG if the driver does not report its mode.  The
        driver reports no mode for GPUs that cannot be divided, so the rule treats such a GPU as a whole one.

    Remedy:
        Request a whole GPU.  If you deploy on the partition, state it with the number and repeat the measurement.

    Source:
        NVML's MIG and virtualisation modes, the name of the MPS server on the process list, and the control pipe and
        environment of the measured process.  A card passed through to a virtual machine is not shared.
    """
    device, host = evidence.device, evidence.host
    if device is None:
        return Unobserved(evidence.absence or "the device was not observed")
    names = set(filter(None, (host.sharing or "").split(",")))
    if device.virtualization:
        names.add(device.virtualization)
    if any((presence.name or "").startswith("nvidia-cuda-mps") for presence in presences(evidence)):
        names.add("MPS")
    if device.parent_uuid is not None or device.mig_mode or (evidence.within("mig_mode").values == 1.0).any():
        names.add("MIG")
    shared = [text for name, text in {**_SLICED, **_SHARED}.items() if name in names]
    if "MIG" in names:
        shared.append("MIG instances, which share power and heat")
    if shared:
        return Found(
            Severity.REJECT if names & _SLICED.keys() else Severity.FLAG,
            {"shared": ", and ".join(shared), "by": ",".join(sorted(names))},
        )
    if device.virtualization is None:
        return Unobserved("the virtualisation mode of the GPU was not observed")
    if host.sharing is None:
        return Unobserved("sharing through MPS or a scheduler was not observed")
    return Clear({"virtualization": device.virtualization})


@rule(
    "contention-self",
    kind=RuleKind.BIAS,
    basis=Basis.DECLARED,
    says="other work of the same process {did}",
    remedy="Stop the process's other streams and threads during the measurement, or count their work as busy time.",
)
def contention_self(
    case: Case,
    *,
    limit_ratio: Annotated[Share, "in ten clean H200 scenarios at most 2.7 percentage points stayed unexplained"] = 0.05,
    seen_ratio: Annotated[Share, "for 15 kinds of kernel on an H200, every stamp reached every SM"] = SEEN_RATIO,
    spread_s: Annotated[
        Duration, "for these kernels, 95 % of stamps spread over 0.13 µs or less; with three streams of adds, 0.35 µs (median)"
    ] = SPREAD_S,
) -> Answer:
    """Finds work of the measured process that its harness did not count.

    Why it matters:
        A second stream competes with the timed work like a neighbour, and no process list shows it.  Three background
        streams of vector adds made the mean 21 % longer and its spread thirty times as wide.

    Limits of detection:
        Without stamps, other work that fills no gap: utilisation cannot rise while the timed work alone keeps the GPU busy.
        Untimed warm-up, flushes and checks are honest, so the rule compares utilisation with the busy time that the harness
        declares, not with the times.  A window without times: all work of the process is then the measured work, and only
        this card's record shows that it grew.

    Remedy:
        Measure without the other streams.  If the harness flushed a cache or warmed up without counting it, count it.

    Source:
        Stamps before and after each iteration, one thread per SM.  After a kernel of the same stream, stamps find every SM
        free; in parallel with other streams they wait, or run on fewer SMs.  Another process runs in turns and does not
        delay stamps (H200).  The second sign is NVML's utilisation minus the declared busy share over 1 s or more, if complete
        process lists name only the window's own processes.  Late iterations and the books give the size.
    """
    evidence = case.evidence
    seen, spread = amount(evidence.declared, "stamp_seen_ratio"), amount(evidence.declared, "stamp_spread_s")
    beyond_ratio = beyond_declared_ratio(evidence)
    facts: dict[str, Fact] = {"stamp_seen_ratio": seen, "stamp_spread_s": spread, "beyond_ratio": beyond_ratio}
    met = beside(evidence, seen_ratio=seen_ratio, spread_s=spread_s)
    if met or (beyond_ratio is not None and beyond_ratio > limit_ratio and alone(evidence)):
        busy = f"kept the GPU busy for {beyond_ratio or 0.0:.0%} of the time"
        did = "ran on the SMs in parallel with the timed iterations" if met else busy
        return Found(facts=facts | {"did": did}, bounds=own_work_bounds("contention-self", case.foreign_work, met=bool(met)))
    if met is None:
        if beyond_ratio is None:
            return Unobserved("there are no stamps, and no declared busy share over a second with utilisation")
        if not alone(evidence):
            return Unobserved("other processes may have been on the GPU, so some of its work may be theirs")
    return Clear(facts)


@rule(
    "display-active",
    kind=RuleKind.BIAS,
    needs=("process_list",),
    says="{display}",
    remedy="Move the display to another GPU or stop it, and measure again.",
)
def display_active(
    case: Case,
    *,
    active_ratio: Annotated[
        Share, "the driver's utilisation record shows 1-2 % for a process that does nothing"
    ] = ACTIVE_RATIO,
    held_ratio: Annotated[Share, "a single refresh of the driver's reason in a long window does not count"] = 0.02,
    unread_limit_s: Annotated[Duration, "the list is read five times a second; a short redraw fits into a longer gap"] = 0.5,
) -> Answer:
    """Finds a display server or another graphics process on the GPU.

    Why it matters:
        A desktop redraws at any moment, and every redraw takes the GPU for some milliseconds.  In one report a display
        server added up to 50 % of noise to benchmarks.

    Limits of detection:
        A process that computes and draws, which counts as computing.  A server that draws only between two readings of its
        utilisation.  Graphics processes outside this PID namespace.  The reason of display clocks is a second sign: complete
        lists without graphics processes clear the rule without it.

    Remedy:
        Connect the display to another GPU, or stop the display server.  A server that does not draw is a label.

    Source:
        NVML's list of graphics processes, per-process utilisation, and the clock event reason of display clocks.
    """
    evidence, drawing = case.evidence, case.neighbours.drawing
    clocked = by_bits(evidence, Reason.DISPLAY_CLOCK)
    if drawing:
        return _drawn(case, drawing, active_ratio)
    if clocked is not None and clocked.ratio > held_ratio:
        display = f"a display held the clock for {clocked.ratio:.0%} of the window"
        return Found(facts={"display": display}, bounds=foreign_bounds("display-active", case.foreign_work))
    unlisted = unlisted_because(evidence, unread_limit_s)
    return Clear() if unlisted is None else Unobserved(unlisted)


def _drawn(case: Case, drawing: tuple[Presence, ...], active_ratio: float) -> Found:
    """Return the finding about the busiest graphics process; without bounds if all were at rest."""
    worst = max(drawing, key=Presence.load)
    name = f"process {worst.pid} ({worst.name or 'unnamed'})"
    facts: dict[str, Fact] = {
        "pid": worst.pid,
        "name": worst.name or "unnamed",
        "peak_ratio": max(presence.peak_ratio or 0.0 for presence in drawing),
        "displays_count": len(drawing),
    }
    if all(is_at_rest(presence, active_ratio) for presence in drawing):
        return Found(facts=facts | {"display": f"{name} could draw on this GPU, and did not"})
    span_ns = presence_span_ns(drawing)
    bounds = foreign_bounds("display-active", case.foreign_work, span_ns=span_ns)
    return Found(facts=facts | {"display": f"{name} draws on this GPU"}, span_ns=span_ns, bounds=bounds)


@rule(
    "numa-pcie-affinity",
    kind=RuleKind.BIAS,
    basis=Basis.HOST,
    says="{far}",
    remedy="Bind the benchmark to CPU cores near the GPU (numactl, taskset), and check the card's slot and link.",
)
def numa_pcie_affinity(case: Case) -> Answer:
    """Finds a benchmark that runs on the far socket of its GPU, or a link that is slower than card and slot allow.

    Why it matters:
        Copies between host and device use the PCIe link: from the wrong socket, or on a narrow link, 12.1 GB/s became 3.8.
        Launches take some tenths of a microsecond longer.  Kernels on data in device memory are not affected.

    Limits of detection:
        The work's share of copies: the bound for a link that changed its state assumes copies only.  The gain of a better
        socket or link if the slow one held throughout: that is a label.  The socket of a process that may run on both, and
        the location of its memory.  A virtual machine hides the node, and often the state of the link.  An idle link is slow
        on purpose, so its state counts only while the GPU is busy.

    Remedy:
        Run ``numactl --cpunodebind`` with the GPU's node.  For a narrow link, check seating, riser, slot and firmware
        settings.

    Source:
        The device's memory node by NVML, else by the kernel, against the nodes of the cores that the process may use.  PCIe
        generation and width, read once a second, against the maximum of card and slot and against the window's best.
    """
    evidence = case.evidence
    device, host = evidence.device, evidence.host
    if device is None:
        return Unobserved(evidence.absence or "the device was not observed")
    node = None if device.numa_node_count is None else str(device.numa_node_count)
    facts: dict[str, Fact] = {"gpu_node": node, "process_nodes": host.numa_nodes}
    far: list[str] = []
    unknown: list[str] = []
    if node is None or host.numa_nodes is None:
        unknown.append("the memory nodes of GPU and process")
    elif node not in host.numa_nodes.split(","):
        far.append(f"the GPU is on memory node {node}, the benchmark on {host.numa_nodes}")
    for name, most, text in (
        ("pcie_generation_count", device.pcie_generation_max_count, "PCIe generation"),
        ("pcie_width_count", device.pcie_width_max_count, "PCIe width"),
    ):
        now = best_while_busy(evidence, name)
        if most is None or now is None:
            unknown.append(f"the {text} of a busy GPU")
        elif now < most:
            far.append(f"its {text} is {now:.0f} of {most}")
        facts[name] = now
    bounds = link_bounds(evidence)
    if bounds:
        far.append("its link was slower for a part of the window")
    if far:
        return Found(facts=facts | {"far": ", and ".join(far)}, bounds=bounds)
    if unknown:
        return Unobserved(f"not observed: {', '.join(unknown)}")
    return Clear(facts)


@rule(
    "overlapping-window",
    kind=RuleKind.BIAS,
    says="another process measured on this GPU at the same time ({windows})",
    remedy="Run the measurements one after the other, or on different GPUs.",
)
def overlapping_window(case: Case) -> Answer:
    """Finds windows of other processes that overlap this one on the same GPU.

    Why it matters:
        Two benchmarks on one GPU run in turns, and each halves the other's throughput, although each alone looks
        undisturbed.

    Limits of detection:
        Windows that another daemon watches.  Windows of processes whose PIDs are not visible to the daemon count as
        foreign.  A window that a child process opens inside its parent's window is nested and does not count.

    Remedy:
        Run the measurements one after the other, or on different GPUs.

    Source:
        The daemon's list of windows, by GPU and process tree.
    """
    windows = case.neighbours.windows
    if not windows:
        return Clear({"windows_count": 0})
    span_ns = min(each.begin_ns for each in windows), max(each.end_ns for each in windows)
    named = ", ".join(f"{each.label or 'unnamed'} of process {each.pid or 'unknown'}" for each in windows[:3])
    facts: dict[str, Fact] = {"windows": named, "windows_count": len(windows), "pid": windows[0].pid}
    return Found(facts=facts, bounds=foreign_bounds("overlapping-window", case.foreign_work, span_ns=span_ns), span_ns=span_ns)


RULES: tuple[Rule, ...] = (
    contention_shared_partition,
    contention_self,
    display_active,
    numa_pcie_affinity,
    overlapping_window,
)

# Limits that only set a severity.  Policies, stores and reports may still name them.
RETIRED_LIMITS: Mapping[str, tuple[str, ...]] = {"display-active": ("loaded_ratio",)}
