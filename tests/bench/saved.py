"""Stored benchmark results: table, figures, machine, date, load and tool versions of each run."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import msgspec
import psutil

from gpuwatch import __version__
from tests.bench import peers

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
Figures: TypeAlias = dict[str, float]
QUIET_RATIO = 0.5  # load per processor at the start, above which the machine counts as shared


@dataclass(frozen=True, kw_only=True)
class Saved:
    """One run of one benchmark."""

    date: str
    took_s: float
    machine: str
    processors_count: int
    load_begin: float  # one-minute load averages at start and end of the run
    load_end: float
    versions: dict[str, str]
    table: str
    figures: Figures

    @property
    def is_shared(self) -> bool:
        return self.load_begin > QUIET_RATIO * self.processors_count


def names() -> tuple[str, ...]:
    return tuple(sorted(path.stem.removeprefix("bench_") for path in HERE.glob("bench_*.py")))


def main_of(name: str) -> Callable[[], Figures | None]:
    main: Callable[[], Figures | None] = importlib.import_module(f"tests.bench.bench_{name}").main
    return main


def run(name: str) -> Saved:
    """Run a benchmark, show its output at once, and return the output with the figures."""
    load_begin, begin_s = os.getloadavg()[0], time.monotonic()
    with _kept() as printed:
        figures = main_of(name)()
    return Saved(
        date=time.strftime("%Y-%m-%d"), took_s=round(time.monotonic() - begin_s, 1), machine=machine(),
        processors_count=len(os.sched_getaffinity(0)), load_begin=round(load_begin, 1), load_end=round(os.getloadavg()[0], 1),
        versions=versions() | (peers.versions() if name == "peers" else {}), table=printed.getvalue().strip("\n"),
        figures={key: float(f"{value:.4g}") for key, value in (figures or {}).items()},
    )  # fmt: skip


def machine() -> str:
    """Describe the machine without identifying it."""
    model = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    virtual = ", virtual" if re.search(r"^flags\s*:.*\bhypervisor\b", Path("/proc/cpuinfo").read_text(), re.MULTILINE) else ""
    count, memory_bytes = len(os.sched_getaffinity(0)), psutil.virtual_memory().total
    return f"{model.group(1) if model else platform.machine()}, {count} processors, {memory_bytes / 2**30:.0f} GiB{virtual}"


def versions() -> dict[str, str]:
    named = ["git", "-C", str(HERE), "describe", "--always", "--dirty"]
    commit = subprocess.run(named, capture_output=True, text=True, check=False).stdout.strip()
    return {
        "gpuwatch": f"{__version__} ({commit})" if commit else __version__,
        "Python": platform.python_version(), "Linux": platform.release(),
    }  # fmt: skip


def load(path: Path = RESULTS) -> dict[str, Saved]:
    return msgspec.json.decode(path.read_bytes(), type=dict[str, Saved]) if path.exists() else {}


def save(found: Mapping[str, Saved], path: Path = RESULTS) -> None:
    """Replace the stored results of these benchmarks, and drop the results of removed benchmarks."""
    kept = {**load(path), **found}
    plain = msgspec.json.encode({name: kept[name] for name in names() if name in kept})
    path.write_bytes(msgspec.json.format(plain, indent=1) + b"\n")


class _Both(io.StringIO):
    """A text stream that keeps its text and also shows it."""

    def __init__(self, shown: io.TextIOBase) -> None:
        super().__init__()
        self._shown = shown

    def write(self, text: str) -> int:
        self._shown.write(text)
        self._shown.flush()
        return super().write(text)


@contextlib.contextmanager
def _kept() -> Iterator[io.StringIO]:
    both = _Both(sys.stdout)  # type: ignore[arg-type]  # sys.stdout is a text stream
    with contextlib.redirect_stdout(both):
        yield both
