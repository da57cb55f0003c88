"""Hardware counters of both sides of a diff.

ncu counts in a separate process if the machine permits it.  Otherwise GPM counts while each kernel runs alone on a GPU
that has GPM.
"""

import csv
import math
import os
import re
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

from annotate.evidence import Device, Lane
from gpuwatch.diff.kernel_counters import DURATION, METRICS, REPEATS, Counters, CounterSource, Readings
from gpuwatch.diff.timing_process import TimingProcess
from gpuwatch.errors import GpuwatchError, SourceError, UsageError
from gpuwatch.interfaces import Source

Asked: TypeAlias = Literal["auto", "off", "ncu", "require"]
_CAP_SYS_ADMIN = 21
_PERMIT = (
    "an administrator permits it with: echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' | sudo tee "
    "/etc/modprobe.d/nvidia-profiling.conf, and a reboot"
)
_INSTALL = "an administrator installs it with: sudo apt-get install nsight-compute"
NCU_CONTROLS = ("--clock-control none", "--cache-control all")
_PATIENCE_S = 180.0  # about 20 replays of 3 launches take seconds; imports and compilation may take minutes
_SCALES = {"": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_UNIT = re.compile(r"([numkKMGT]?)(?:byte|B|second|sec|s|hz|Hz)(?:/.*)?")
_FORM = ["--csv", "--page", "raw", "--print-units", "base", "--profile-from-start", "off"]
SideName: TypeAlias = Literal["a", "b"]
# The driver's samples are old, so a run starts this long before its first sample.
LEAD_S = 0.4
_TURN_S = 1.0  # three turns give each side 3 s of samples
_ACTIVITIES = ("sm_activity_ratio", "dram_activity_ratio", "tensor_activity_ratio")
_SIGNALS = {name: name for name in _ACTIVITIES} | {"occupancy_ratio": "sm_occupancy_ratio"}  # GPM's, by counter
_FIRST_WITH_GPM = 9.0  # compute capability
_SIDES: tuple[SideName, SideName] = ("a", "b")


@dataclass(frozen=True, slots=True)
class CounterPermission:
    """The path of ncu, and the reason why ncu may not count.

    ``why_not`` is empty if ncu may count.
    """

    ncu: str | None
    why_not: str

    def choose(self, asked: Asked, *, has_gpm: bool) -> tuple[CounterSource, str]:
        """Return the source of counters and the sentence that reports it.

        Raises UsageError: when ``asked`` is ncu and ncu may not count, or ``asked`` is require and neither ncu nor GPM can.
        """
        if asked == "off":
            return "none", "not asked for (--counters off)"
        if not self.why_not:
            return "ncu", f"{self.ncu}, {', '.join(NCU_CONTROLS)}"
        if asked == "ncu" or (asked == "require" and not has_gpm):
            raise UsageError(f"--counters {asked}: {self.why_not}")
        if has_gpm:
            return "GPM", f"GPM, while each kernel runs alone; {self.why_not}"
        return "none", f"none: {self.why_not}; GPM needs a Hopper GPU or newer and NVIDIA's driver"


def read_permission(
    params: Path = Path("/proc/driver/nvidia/params"), status: Path = Path("/proc/self/status"), search_path: str | None = None
) -> CounterPermission:
    """Return the path of ncu, and the reason why ncu may not count, if any.

    ncu must be on PATH.  The driver must admit all users, or this process must have CAP_SYS_ADMIN.
    """
    ncu = shutil.which("ncu", path=search_path)
    if ncu is None:
        return CounterPermission(None, f"ncu is not on PATH; {_INSTALL}")
    only_admins = re.search(r"^RmProfilingAdminOnly:\s*(\d)", _text(params), re.M)
    capabilities = re.search(r"^CapEff:\s*([0-9a-f]+)", _text(status), re.M)
    is_admin = capabilities is not None and bool(int(capabilities[1], 16) >> _CAP_SYS_ADMIN & 1)
    if only_admins is None:
        return CounterPermission(ncu, f"expected RmProfilingAdminOnly in {params}, found none: load the NVIDIA driver")
    if only_admins[1] != "0" and not is_admin:
        return CounterPermission(ncu, f"RmProfilingAdminOnly is 1 and this process lacks CAP_SYS_ADMIN; {_PERMIT}")
    return CounterPermission(ncu, "")


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""


class CountersRefusedError(GpuwatchError):
    """A run of ncu that returned no counters."""


def count(ncu: str, words: Sequence[str], *, patience_s: float = _PATIENCE_S) -> Readings:
    """Run a command under ncu and return the counters of its profiled launches.

    Raises CountersRefusedError: when ncu does not start, takes too long or returns no counters, with the reason.
    """
    names = [DURATION, *(name for metric in METRICS for name in metric.ncu)]
    with tempfile.TemporaryDirectory(prefix="gpuwatch-ncu-") as folder:
        log = Path(folder) / "log.csv"
        command = [ncu, *" ".join(NCU_CONTROLS).split(), *_FORM, "--metrics", ",".join(names), "--log-file", str(log), *words]
        environment = os.environ | {"LC_ALL": "C"}  # ncu formats numbers by the locale
        try:
            done = subprocess.run(command, check=False, capture_output=True, env=environment, timeout=patience_s)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CountersRefusedError(f"ncu: {error}") from error
        text = log.read_text(errors="replace") if log.exists() else (done.stdout + done.stderr).decode(errors="replace")
    launches = parse(text)
    if not launches:
        error_line = re.search(r"==ERROR== *(.+)", text)
        reason = error_line[1].strip() if error_line else f"no kernel was counted (exit code {done.returncode})"
        raise CountersRefusedError(f"ncu: {reason}")
    return combine(launches)


def parse(text: str) -> list[dict[str, float]]:
    """Parse ncu's raw page; return the metrics of each launch in base units, percentages as ratios."""
    rows = list(csv.reader(line for line in text.splitlines() if line.startswith('"')))
    if not rows or "Kernel Name" not in rows[0]:
        return []
    header, units, launches = rows[0], rows[1] if len(rows) > 1 else [], rows[2:]
    cells = [list(zip(header, units, row, strict=True)) for row in launches if len(row) == len(header) == len(units)]
    return [
        {name: value * _scale(unit) for name, unit, cell in launch if (value := _number(cell)) is not None} for launch in cells
    ]


def combine(launches: Sequence[Mapping[str, float]]) -> Readings:
    """Return the counters of each repetition.

    A repetition of a pipeline has several launches.  An extensive metric is the sum over the launches.  Any other metric is
    the mean weighted by duration.
    """
    repeats = REPEATS if len(launches) % REPEATS == 0 else 1
    length = len(launches) // repeats
    readings: dict[str, tuple[float, ...]] = {}
    for metric in METRICS:
        values = []
        for start in range(0, len(launches), length):
            part = [each for each in launches[start : start + length] if metric.ncu and metric.ncu.keys() <= each.keys()]
            amounts = [sum(each[name] * factor for name, factor in metric.ncu.items()) for each in part]
            weights = [each.get(DURATION, 1.0) for each in part]
            if amounts:
                values.append(sum(amounts) if metric.is_extensive else statistics.fmean(amounts, weights))
        if len(values) == repeats:
            readings[metric.name] = tuple(values)
    return readings


def _number(text: str) -> float | None:
    try:
        value = float(text.replace(",", ""))  # the thousands separator: LC_ALL=C makes the decimal mark a point
    except ValueError:  # n/a, or a textual attribute
        return None
    return value if math.isfinite(value) else None


def _scale(unit: str) -> float:
    if unit in ("%", "percent"):
        return 0.01
    found = _UNIT.fullmatch(unit)
    return _SCALES[found[1]] if found else 1.0


def has_gpm(device: Device) -> bool:
    """Return True if the GPU's generation has GPM (Hopper or newer)."""
    return float(device.compute_capability or 0) >= _FIRST_WITH_GPM


def collect(
    pair: TimingProcess,
    permission: CounterPermission,
    asked: Asked,
    open_source: Callable[[], Source],
    say: Callable[[str], None],
) -> Counters:
    """Read the counters, and report their source through ``say`` unless ``asked`` is off.

    Raises UsageError: when ``asked`` is ncu and ncu cannot count, or ``asked`` is require and no source can.
    """
    kind, says = permission.choose(asked, has_gpm=has_gpm(pair.device))
    if asked != "off":
        say(f"counters: {says}")
    if kind == "ncu":
        try:
            return Counters("ncu", says, *(count(permission.ncu or "ncu", pair.once_command(side)) for side in _SIDES))
        except CountersRefusedError as error:
            return collect(pair, replace(permission, why_not=str(error)), asked, open_source, say)
    if kind == "none":
        return Counters("none", says)
    try:
        with closing(open_source()) as source:
            readings = read_gpm(pair, source)
    except (SourceError, UsageError) as error:  # UsageError: a side failed when it ran again
        readings, says = ({}, {}), f"{says}; GPM: {error}"
    if not any(readings):
        if asked == "require":
            raise UsageError(f"--counters require: {says}; GPM gave no reading")
        return Counters("none", f"none: {says}; GPM gave no reading")
    return Counters("GPM", says, *readings)


def read_gpm(pair: TimingProcess, source: Source) -> tuple[Readings, Readings]:
    """Run the sides in turns and return the activity of each turn.

    Raises SourceError: when the driver does not answer.
    Raises UsageError: when a side fails.
    """
    names = tuple(_SIGNALS.values())
    turns = {side: [] for side in _SIDES}  # type: dict[SideName, list[object]]
    for side in _SIDES * REPEATS:
        pair.run_alone(side, LEAD_S)
        source.read(pair.device.uuid, Lane.SLOW, names)
        pair.run_alone(side, _TURN_S)
        turns[side].append(source.read(pair.device.uuid, Lane.SLOW, names))
    a, b = (
        {name: tuple(getattr(turn, signal) for turn in turns[side]) for name, signal in _SIGNALS.items()} for side in _SIDES
    )
    return tuple({name: values for name, values in each.items() if None not in values} for each in (a, b))  # type: ignore[return-value]
