"""The counters that this machine permits, told before anything runs, with the line an administrator would type."""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from gpuwatch.diff.kernel_counters import CounterSource
from gpuwatch.errors import UsageError

Asked: TypeAlias = Literal["auto", "off", "ncu", "require"]
_CAP_SYS_ADMIN = 21
_PERMIT = (
    "an administrator permits it with: echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' | sudo tee "
    "/etc/modprobe.d/nvidia-profiling.conf, and a reboot"
)
_INSTALL = "an administrator installs it with: sudo apt-get install nsight-compute"


@dataclass(frozen=True, slots=True)
class CounterPermission:
    """ncu's place and the reason why it may not count, which is empty where it may."""

    ncu: str | None
    why_not: str

    def choose(self, asked: Asked, *, has_gpm: bool) -> tuple[CounterSource, str]:
        """Return the source of counters and the sentence about it.

        Raises UsageError: when ``asked`` is ncu and it may not count, or require and nothing may.
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


NCU_CONTROLS = ("--clock-control none", "--cache-control all")


def read_permission(
    params: Path = Path("/proc/driver/nvidia/params"), status: Path = Path("/proc/self/status"), search_path: str | None = None
) -> CounterPermission:
    """Return whether ncu may count: it must be on PATH, and the driver open to all or this process an administrator's."""
    ncu = shutil.which("ncu", path=search_path)
    if ncu is None:
        return CounterPermission(None, f"ncu is not on PATH; {_INSTALL}")
    only_admins = re.search(r"^RmProfilingAdminOnly:\s*(\d)", _text(params), re.M)
    capabilities = re.search(r"^CapEff:\s*([0-9a-f]+)", _text(status), re.M)
    is_admin = capabilities is not None and bool(int(capabilities[1], 16) >> _CAP_SYS_ADMIN & 1)
    if only_admins is None:
        return CounterPermission(ncu, f"{params} does not tell RmProfilingAdminOnly: the driver is not loaded")
    if only_admins[1] != "0" and not is_admin:
        return CounterPermission(ncu, f"RmProfilingAdminOnly is 1 and this process lacks CAP_SYS_ADMIN; {_PERMIT}")
    return CounterPermission(ncu, "")


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""
