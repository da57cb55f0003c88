"""Facts about processes and the machine from the operating system, and the readers of files under /proc and /sys.

Every file there is optional: missing, forbidden or vanished files give None or an empty result, never zero.
"""

import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from annotate.evidence import Host, Visibility
from gpuwatch import clock
from gpuwatch.utf8 import clean_text

PROC = Path("/proc")
PROGRAM_LENGTH = 16  # length of a digest: 64 bits distinguish any two programs of a store
NAME_LENGTH = 256  # psutil takes a long name from the first argument, which may be a megabyte

# The first PID namespace has a fixed inode: PROC_PID_INIT_INO in the kernel's include/linux/proc_ns.h.
_INITIAL_PID_NAMESPACE = "pid:[4026531836]"


def contents(path: Path | str) -> str | None:
    """Return the text of a file of /proc or /sys; None if the file is missing, forbidden or gone."""
    # Bare descriptors: a snapshot reads a file for each thread, and buffered text files are slower.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        parts = []
        while part := os.read(descriptor, 65_536):
            parts.append(part)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return clean_text(b"".join(parts))


def program(pid: int, *, proc: Path = PROC) -> str | None:
    """Return a digest of a process's executable and arguments; None if unreadable.  The arguments may hold secrets."""
    arguments = contents(proc / str(pid) / "cmdline")
    if not arguments:
        return None
    try:
        executable = str((proc / str(pid) / "exe").readlink())
    except OSError:
        return None
    import hashlib

    return hashlib.sha256(f"{executable}\0{arguments}".encode()).hexdigest()[:PROGRAM_LENGTH]


def names(folder: str) -> list[str]:
    """Return the names in a folder; an empty list if the folder is missing, forbidden or gone."""
    try:
        return os.listdir(folder)  # noqa: PTH208 - only names: a Path for each of a hundred threads costs too much
    except OSError:
        return []


def visibility(*, proc: Path = PROC) -> Visibility:
    """Return the part of the machine that a process list requested by this process covers.

    The driver omits processes of other PID namespaces (since 535.113), so only the initial namespace gets all.
    """
    try:
        namespace = str((proc / "self/ns/pid").readlink())
    except OSError:
        return Visibility.HOST if (contents(proc / "2/comm") or "").strip() == "kthreadd" else Visibility.UNKNOWN
    return Visibility.HOST if namespace == _INITIAL_PID_NAMESPACE else Visibility.NAMESPACE


_CGROUP_MARKS = (
    ("kubepods", "kubernetes"), ("libpod", "podman"), ("docker", "docker"), ("containerd", "containerd"), ("lxc", "lxc"),
    ("slurm", "slurm"),
)  # fmt: skip


def container(*, root: Path = Path("/"), environ: Mapping[str, str] | None = None) -> str | None:
    """Return the kind of container around this process, or ``wsl``; None if no kind is recognised."""
    environ = os.environ if environ is None else environ
    if "KUBERNETES_SERVICE_HOST" in environ:
        return "kubernetes"
    if "APPTAINER_NAME" in environ or "SINGULARITY_NAME" in environ:
        return "apptainer"
    named = contents(root / "run/systemd/container")  # systemd writes the kind here
    if named and named.strip():
        return named.strip()
    if (root / "run/.containerenv").exists():
        return "podman"
    cgroup = contents(root / "proc/self/cgroup") or ""
    for mark, kind in _CGROUP_MARKS:
        if f"/{mark}" in cgroup or f"{mark}-" in cgroup:
            return kind
    if (root / ".dockerenv").exists():
        return "docker"
    return "wsl" if "microsoft" in (contents(root / "proc/sys/kernel/osrelease") or "").lower() else None


def facts(*, proc: Path = PROC, root: Path = Path("/")) -> Host:
    """Return facts of this machine: boot, host name, kernel and container."""
    boot_id = contents(proc / "sys/kernel/random/boot_id")
    return Host(
        boot_id=boot_id.strip() if boot_id else None,
        hostname=clean_text(platform.node()) or None,
        kernel=clean_text(platform.release()) or None,
        container=container(root=root),
    )


def descendants(pid: int, *, proc: Path = PROC) -> frozenset[int]:
    """Return a process and its living descendants: the measured tree.  Empty if the process is gone."""
    if not (proc / str(pid)).exists():
        return frozenset()
    found, waiting = {pid}, [pid]
    while waiting:
        parent = waiting.pop()
        for child in _children(parent, proc):
            if child not in found:
                found.add(child)
                waiting.append(child)
    return frozenset(found)


def descends(pid: int, root: int, *, proc: Path = PROC) -> bool:
    """Return whether a process is the root or one of its descendants; False if either is gone."""
    seen: set[int] = set()
    while pid not in seen:
        if pid == root:
            return (proc / str(pid)).exists()
        seen.add(pid)
        # The name in parentheses may contain spaces and parentheses; state and parent follow the last one.
        words = (contents(proc / str(pid) / "stat") or "").rpartition(")")[2].split()
        if len(words) < 2:
            return False
        pid = int(words[1])
    return False


def started_ticks(pid: int, *, proc: Path = PROC) -> int | None:
    """Return a process's start time in the kernel's ticks since the boot; None if the process is gone."""
    words = (contents(proc / str(pid) / "stat") or "").rpartition(")")[2].split()
    return int(words[19]) if len(words) > 19 else None


def _children(pid: int, proc: Path) -> list[int]:
    children: list[int] = []
    for thread in names(f"{proc}/{pid}/task"):
        text = contents(f"{proc}/{pid}/task/{thread}/children")
        if text is None:  # the thread ended, or the kernel lacks CONFIG_PROC_CHILDREN
            if proc == PROC and thread == str(pid):
                return _children_by_parent(pid)
            continue
        children += map(int, text.split())
    return children


def _children_by_parent(pid: int) -> list[int]:
    import psutil  # imported late, as below

    try:
        return [child.pid for child in psutil.Process(pid).children()]
    except psutil.Error:
        return []


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a process; ``started_s`` is wall time, needed because PIDs are reused."""

    name: str | None = None
    user: str | None = None
    started_s: float | None = None


@lru_cache(maxsize=256)
def _user(uid: int) -> str:
    try:
        import pwd

        return clean_text(pwd.getpwuid(uid).pw_name)
    except (ImportError, KeyError):
        return str(uid)


def _identify(pid: int) -> Identity:
    import psutil  # imported late, because the daemon's start does not need psutil

    try:
        process = psutil.Process(pid)
        with process.oneshot():
            name = clean_text(process.name())[:NAME_LENGTH]
            return Identity(name=name, user=_user(process.uids().real), started_s=process.create_time())
    except (psutil.Error, OSError, AttributeError):  # gone, hidden, no free descriptor, or a system without uids
        return Identity()


class Identities:
    """Cached identities of processes, read again when old, because five process lists a second would be slow with psutil."""

    def __init__(
        self,
        identify: Callable[[int], Identity] = _identify,
        *,
        now_ns: Callable[[], int] = clock.now_ns,
        fresh_ns: int = 30_000_000_000,  # PIDs wrap around in minutes at the earliest
    ) -> None:
        self._identify = identify
        self._now_ns = now_ns
        self._fresh_ns = fresh_ns
        self._known: dict[int, tuple[int, Identity]] = {}

    def of(self, pid: int) -> Identity:
        """Return a process's identity, the last known one if the process has ended; unknown fields are None."""
        now_ns = self._now_ns()
        known = self._known.get(pid)
        if known is not None and now_ns - known[0] < self._fresh_ns:
            return known[1]
        identity = self._identify(pid)
        if identity.name is None and known is not None:
            identity = known[1]  # the process ended, and the driver still lists it
        if len(self._known) > 4096:
            self._known.clear()
        self._known[pid] = (now_ns, identity)
        return identity


def numa_node(pci_bus_id: str | None, *, sys: Path = Path("/sys")) -> int | None:
    """Return the memory node of a PCI device; None if the kernel reports no node."""
    if pci_bus_id is None:
        return None
    domain, _, rest = pci_bus_id.lower().partition(":")  # NVML writes the domain with eight digits, the kernel with four
    text = (contents(sys / "bus/pci/devices" / f"{domain[-4:]}:{rest}" / "numa_node") or "").strip()
    return int(text) if text.isdigit() else None
