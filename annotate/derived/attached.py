"""Tools that profile or slow the measured process, as listed by the daemon or declared by the process."""

import re
from dataclasses import dataclass

from annotate.evidence import Evidence
from annotate.evidence.asked import kept

# These tools slow the work itself, not only its launches: they repeat kernels, check every access or interpret the code.
_HEAVY = re.compile(r"sanitizer|cudadebugger|cuda-injection|nvbit|lib[atm]san|libubsan|gdb|TRITON_INTERPRET", re.IGNORECASE)
_NAMED_COUNT = 3  # most names in a sentence


@dataclass(frozen=True, slots=True)
class Attached:
    """Tools on the measured process: ``names`` are active, ``idle`` only mapped, as CUPTI is by the wheels of torch."""

    names: tuple[str, ...] = ()
    idle: tuple[str, ...] = ()
    heavy: bool = False
    looked: bool = False  # the daemon looked for tools from outside

    @property
    def sentence(self) -> str:
        more = len(self.names) - _NAMED_COUNT
        return ", ".join(self.names[:_NAMED_COUNT]) + (f" and {more} more" if more > 0 else "")


@kept
def attached(evidence: Evidence) -> Attached:
    """Read the tools from the host's list and the declared facts.

    The list is ``kind:name``, comma-separated; the kinds are library, variable, tracer, and idle for a mapped library.
    """
    seen = evidence.host.profilers
    entries = [entry.strip().partition(":") for entry in (seen or "").split(",") if entry.strip()]
    names = [_worded(kind, name) for kind, _, name in entries if kind != "idle"]
    if evidence.declared.get("launch_blocking") is True and "CUDA_LAUNCH_BLOCKING" not in (seen or ""):
        names.append("CUDA_LAUNCH_BLOCKING")
    if evidence.declared.get("profiler_used") is True:
        names.append("a profiler inside the process")
    return Attached(
        names=tuple(names),
        idle=tuple(name for kind, _, name in entries if kind == "idle"),
        heavy=any(_HEAVY.search(name) for name in names),
        looked=seen is not None,
    )


def _worded(kind: str, name: str) -> str:
    return {"tracer": f"{name} tracing it"}.get(kind, name or kind)[:60]
