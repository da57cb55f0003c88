"""Simulated plain windows of any program: other libraries, C++, virtual machines and containers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from annotate.evidence import Evidence, Fact, Ownership, Process, ProcessList, Visibility
from tests.proof.asked import Scene, seen
from tests.proof.cases import made, workload
from tests.proof.disturbances import Disturbance
from tests.proof.testified import Variant

_JAX_BYTES = 113_000_000_000  # three quarters of the memory, which JAX takes at its start
_UNKNOWN_PID = 1  # the driver's PID of a process in another namespace


def plain(name: str, *happens: Disturbance, length_s: float = 4.0, seed: int = 1) -> Evidence:
    """Return a plain window of this work, warmed up."""
    return seen(Scene(work=workload(name), happens=happens, length_s=length_s, variant=Variant.PLAIN, seed=seed)).evidence


def listed(of: Evidence, change: Callable[[Process], Process], visibility: Visibility | None = None) -> Evidence:
    """Return the evidence with each listed process changed."""
    lists = tuple(
        replace(each, processes=tuple(map(change, each.processes)), visibility=visibility or each.visibility)
        for each in of.trace.process_lists
    )
    return replace(of, trace=replace(of.trace, process_lists=lists))


def declared_facts(of: Evidence, facts: Mapping[str, Fact]) -> Evidence:
    return replace(of, declared=facts)


def without_torch(of: Evidence) -> Evidence:
    """Return the evidence of a Python program that declares its environment and no library."""
    return declared_facts(of, {"environment": "", "profiler_used": False, "tampered": ""})


def jax(of: Evidence) -> Evidence:
    """Return the evidence of a JAX program, which declares no torch facts and holds three quarters of the memory."""
    return listed(without_torch(of), lambda process: replace(process, memory_bytes=_JAX_BYTES, name="python3"))


def cpp(of: Evidence) -> Evidence:
    """Return the evidence of a C++ program under ``gpuwatch run``: no declared facts, one process."""
    return listed(declared_facts(of, {}), lambda process: replace(process, name="bench"))


def virtual(of: Evidence) -> Evidence:
    """Return the evidence of a virtual machine without a container, with 0.02 % steal time."""
    return replace(of, host=replace(of.host, container=None, steal_ratio=2e-4))


PROGRAMS: Mapping[str, Callable[[Evidence], Evidence]] = {
    "torch": lambda of: of,
    "without torch": without_torch,
    "JAX": jax,
    "C++": cpp,
    "in a virtual machine": virtual,
}


def contained(of: Evidence, *, own: bool = False) -> Evidence:
    """Return the evidence from inside a container, with the container's own process or one unknown PID."""

    def unknown(process: Process) -> Process:
        if own:
            return process
        return replace(process, pid=_UNKNOWN_PID, name=None, user=None, ownership=Ownership.UNKNOWN)

    return listed(of, unknown, Visibility.NAMESPACE)


def with_second(of: Evidence) -> Evidence:
    """Return the evidence with a second unknown PID on every list."""

    def grown(each: ProcessList) -> ProcessList:
        second = replace(each.processes[0], pid=_UNKNOWN_PID + 1, utilization_ratio=None)
        return replace(each, processes=(*each.processes, second))

    return replace(of, trace=replace(of.trace, process_lists=tuple(map(grown, of.trace.process_lists))))


def without_lists(name: str) -> Evidence:
    """Return a plain window in a container whose process lists are empty."""
    return plain(name, made("lists-missing", "namespace", (0.0, 4.0)))


def simulated_programs() -> Mapping[str, Evidence]:
    """Return undisturbed windows of a softmax by program, and by what a container shows of processes."""
    of = plain("softmax")
    return {
        **{name: change(of) for name, change in PROGRAMS.items()},
        "in a container with one unknown PID": contained(of),
        "in a container that lists its own process alone": contained(of, own=True),
        "in a container with empty lists": without_lists("softmax"),
        "in a container with two unknown PIDs": with_second(contained(of)),
    }
