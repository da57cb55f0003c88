"""A command under a unit's restrictions: ``python -m tests.systemd.confined UNIT COMMAND …``.

The command has only the system calls of SystemCallFilter; others fail with EPERM.  The command has no capability, no new
privileges and, from Linux 6.3 on, no memory that is both writable and executable.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000  # from seccomp(2)
_SET_MDWE, _REFUSE_EXEC_GAIN, _SET_NO_NEW_PRIVS = 65, 1, 38  # from prctl(2)


def allowed(unit: Path) -> frozenset[str]:
    """Return the names of a unit's allowed system calls: lines apply in order, and a line with ~ removes calls."""
    found: set[str] = set()
    for line in unit.read_text().splitlines():
        name, _, value = line.partition("=")
        if name == "SystemCallFilter":
            calls = {call for word in value.removeprefix("~").split() for call in _calls(word)}
            found = found - calls if value.startswith("~") else found | calls
    return frozenset(found)


def _calls(word: str) -> set[str]:
    """Return the system call of this name, or the calls of a set as defined by this machine's systemd."""
    if not word.startswith("@"):
        return {word}
    listed = subprocess.run(["systemd-analyze", "syscall-filter", word], capture_output=True, text=True, check=True).stdout
    words = [line.strip() for line in listed.splitlines() if line.startswith("    ")]
    return {call for word in words if word[:1].isalpha() or word.startswith("@") for call in _calls(word)}


def confine(calls: frozenset[str]) -> None:
    """Apply the restrictions permanently to this process and its children."""
    libc, seccomp = ctypes.CDLL(None, use_errno=True), ctypes.CDLL("libseccomp.so.2")
    seccomp.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(seccomp.seccomp_init(_ERRNO | errno.EPERM))
    for call in calls:
        number = seccomp.seccomp_syscall_resolve_name(call.encode())
        if number >= 0:
            seccomp.seccomp_rule_add(context, _ALLOW, number, 0)
    # Kernels before 6.3 lack this option, so the result is ignored.
    libc.prctl(_SET_MDWE, ctypes.c_ulong(_REFUSE_EXEC_GAIN), 0, 0, 0)
    libc.prctl(_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), 0, 0, 0)
    if seccomp.seccomp_load(context):
        sys.exit("the kernel rejected the seccomp filter")


if __name__ == "__main__":
    unit, command = Path(sys.argv[1]), sys.argv[2:]
    names = allowed(unit)
    if os.getuid() == 0:
        program = shutil.which("setpriv") or "setpriv"
        command = [program, "--bounding-set=-all", "--inh-caps=-all", "--", *command]
        names |= {"capset", "prctl"}  # for setpriv; the unit excludes capset, which is harmless without capabilities
    confine(names)
    os.execvp(command[0], command)
