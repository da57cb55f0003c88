"""One window's GPUs: those it names, else those on which its processes held a context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from annotate.evidence import ProcessList
from gpuwatch.daemon.window_host import WindowHost
from gpuwatch.wire.messages import FactValue

_UNSEEN = (
    "the process of this window is not in the PID namespace of the daemon, which cannot find it on a GPU; give the daemon the"
    " host's PIDs: hostPID: true in Kubernetes, --pid=host in Docker"
)
_NO_CONTEXT = "no process of this window held a context on a GPU; name the GPU if another process works for it: gpus=[UUID]"


@dataclass(slots=True)
class WindowGpus:
    """The GPUs that one window covers, learnt from process lists.  Only the daemon's event loop changes it."""

    named: tuple[str, ...] | None = None
    seen: set[str] = field(default_factory=set)  # on which its processes held a context
    foreign_pids: dict[str, set[int]] = field(default_factory=dict)  # by GPU, in its last process list
    _is_hidden: bool = False  # a process list was taken that could not have shown the window's processes

    def note(self, listed: ProcessList, host: WindowHost) -> None:
        """Look for the window's processes in a list of those on a GPU."""
        known, foreign_pids = self.foreign_pids.get(listed.uuid, set()), set()
        for process in listed.processes:
            # PIDs missing from the last list are looked at again: PIDs are reused.
            if host.includes(process.pid, is_new=process.pid not in known):
                self.seen.add(listed.uuid)
            else:
                foreign_pids.add(process.pid)
        self.foreign_pids[listed.uuid] = foreign_pids
        self._is_hidden = self._is_hidden or listed.visibility != "host"

    def at_edges(self, declared: Mapping[str, FactValue], watched: Sequence[str]) -> tuple[str, ...]:
        """Return the GPUs to read at an edge: those of the window as far as it is known, else all."""
        if self.named is not None:
            return self.named
        return tuple(self.seen) or declared_gpus(declared, watched) or tuple(watched)

    def covered(
        self, declared: Mapping[str, FactValue], watched: Sequence[str], absence: str | None, *, is_visible: bool
    ) -> tuple[tuple[str, ...], str]:
        """Return which of the watched GPUs the window covers, and why there is none or what was beside them."""
        if self.named is not None:
            beside = [uuid for uuid in self.seen if uuid not in self.named]
            return self.named, f"also held a context on {', '.join(beside)}, not judged" if beside else ""
        used = self.seen.union(declared_gpus(declared, watched))
        if uuids := tuple(uuid for uuid in watched if uuid in used):
            return uuids, ""
        if not watched:
            return (), absence or "no GPU is being watched"
        if self._is_hidden and len(watched) == 1:
            return tuple(watched), ""
        return (), _NO_CONTEXT if is_visible else _UNSEEN


def find_named(names: Sequence[str] | None, watched: Sequence[str]) -> tuple[tuple[str, ...] | None, str | None]:
    """Return the watched GPUs of these names, and what is wrong with one; None where no name was given."""
    if names is None:
        return None, None
    found: list[str] = []
    for name in names:
        matches = [uuid for uuid in watched if uuid.startswith((name, f"GPU-{name}"))]
        if len(matches) != 1:
            known = ", ".join(watched) or "none"
            return (), f"gpus: expected the UUID of one GPU, found {name!r}; known here: {known}"
        found += matches
    return tuple(dict.fromkeys(found)), None


def declared_gpus(declared: Mapping[str, FactValue], watched: Sequence[str]) -> tuple[str, ...]:
    """Return the watched GPUs that the window's process declared."""
    uuids = str(declared.get("cuda_uuids") or "").split(",")
    return tuple(uuid for uuid in watched if uuid in uuids)
