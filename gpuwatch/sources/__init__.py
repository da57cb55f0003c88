"""The sources of evidence: the only module that maps a specification to its source."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from gpuwatch.errors import UsageError
from gpuwatch.interfaces import Clock, Source

if TYPE_CHECKING:
    from concurrent.futures import Future

    from gpuwatch.sources.nvml import Nvml

DRIVER_KINDS = ("auto", "nvml")
KINDS = (*DRIVER_KINDS, "simulated", "replay")
SCENE_AGE_NS = 500_000_000  # age of the scenes at the start, so that the first window finds a busy GPU (docs/decisions/0083)


def open_source(spec: str, clock: Clock) -> Source:
    """Open the source of ``auto``, ``nvml``, ``simulated[:SCENE[,SCENE…]]`` or ``replay:PATH``.

    ``auto`` is the driver: the simulation never replaces a missing or failing driver (docs/decisions/0005).
    Raises UsageError: for an unknown specification or scene, or an unusable recording.
    Raises SourceGoneError: when the driver is missing or does not answer.
    """
    kind, colon, argument = spec.partition(":")
    if kind in DRIVER_KINDS and not colon:
        return _ahead.pop().result() if _ahead else _open_driver()
    if kind == "simulated" and bool(argument) == bool(colon):
        from gpuwatch.sources.simulated import Simulated

        return Simulated(argument or None, clock, epoch_ns=clock.now_ns() - SCENE_AGE_NS)
    if kind == "replay" and argument:
        from gpuwatch.sources.replay import Replay

        return Replay(argument, clock)
    raise UsageError(f"source: expected auto, nvml, simulated[:SCENE[,SCENE…]] or replay:PATH, found {spec!r}; {_hint(kind)}")


_ahead: list[Future[Source]] = []  # the driver, from ``open_ahead`` to its first use


def open_ahead() -> None:
    """Open the driver and list its GPUs in a thread; the next ``open_source`` of the driver waits for the result and returns it."""
    from concurrent.futures import Future

    opening: Future[Source] = Future()

    def run() -> None:
        try:
            driver = _open_driver()
            driver.begin_listing()
            opening.set_result(driver)
        except BaseException as error:  # noqa: BLE001 - the next ``open_source`` raises the error
            opening.set_exception(error)

    _ahead.append(opening)
    threading.Thread(target=run, name="gpuwatch-open", daemon=True).start()


def _open_driver() -> Nvml:
    from gpuwatch.sources.nvml import Nvml

    return Nvml()


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
    if kind in DRIVER_KINDS:
        return f"{kind!r} takes no argument"
    if kind == "replay":
        return "give the path of a recording: replay:FILE.capsule"
    return "name scenes after the colon, or leave it out" if kind == "simulated" else nearest(kind, KINDS)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ``did you mean 'x'?`` for a close name, otherwise the list of known names."""
    known = list(known)
    import difflib

    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
