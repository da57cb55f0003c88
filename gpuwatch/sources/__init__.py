"""The sources of evidence: the only module that maps a specification to its source."""

import ctypes
from collections.abc import Iterable
from pathlib import Path

from gpuwatch.errors import UsageError
from gpuwatch.interfaces import Clock, Source

KINDS = ("auto", "nvml", "simulated", "replay")
SCENE_AGE_NS = 500_000_000  # age of the scenes at the start, so that the first window finds a busy GPU (docs/decisions/0083)


def open_source(spec: str, clock: Clock) -> Source:
    """Open the source of ``auto``, ``nvml``, ``simulated[:SCENE[,SCENE…]]`` or ``replay:PATH``.

    ``auto`` is the driver: the simulation never replaces a missing or failing driver (docs/decisions/0005).
    Raises UsageError: for an unknown specification or scene, or an unusable recording.
    Raises SourceGoneError: when the driver is missing or does not answer.
    """
    kind, colon, argument = spec.partition(":")
    if kind in ("auto", "nvml") and not colon:
        from gpuwatch.sources.nvml import Nvml

        return Nvml()
    if kind == "simulated" and bool(argument) == bool(colon):
        from gpuwatch.sources.simulated import Simulated

        return Simulated(argument or None, clock, epoch_ns=clock.now_ns() - SCENE_AGE_NS)
    if kind == "replay" and argument:
        from gpuwatch.sources.replay import Replay

        return Replay(argument, clock)
    raise UsageError(f"source: expected auto, nvml, simulated[:SCENE[,SCENE…]] or replay:PATH, found {spec!r}; {_hint(kind)}")


def has_driver(devices: Path = Path("/dev")) -> bool:
    """Return True if this machine has an NVIDIA device or driver, working or not."""
    if (devices / "nvidiactl").exists():
        return True
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


def _hint(kind: str) -> str:
    return f"{kind!r} takes no argument" if kind in ("auto", "nvml") else nearest(kind, KINDS)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ``did you mean 'x'?`` for a close name, otherwise the list of known names."""
    known = list(known)
    import difflib

    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
