"""Detection of profilers and slowdowns of a process from outside: injected libraries, variables, a tracer.

A finding is ``kind:name``.  ``library`` and ``variable`` show that a tool or a slowing setting is switched on, and ``tracer``
names the debugger.  ``idle`` is a mapped profiling library, which proves nothing: torch's own wheels link CUPTI.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path

from gpuwatch import libgpuwatch
from gpuwatch.host.processes import PROC, contents

# Processes to inspect: reading mappings takes milliseconds and locks the address space, so some data loaders are skipped.
LOOKED_AT_COUNT = 16

# Prefixes of libraries that tools inject into a process: Nsight Systems, Nsight Compute, Compute Sanitizer, cuda-gdb, nvprof,
# NVBit, Score-P, TAU and HPCToolkit.  The last four are sanitizers linked by a compiler.
_INJECTED = (
    "libToolsInjection", "libcuda-injection", "libInterceptorInjection", "libTreeLauncher", "libsanitizer-collection",
    "libsanitizer-public", "libcudadebugger", "libcuinj", "libaccinj", "libnvbit", "libscorep", "libTAU", "libhpcrun",
    "libasan", "libtsan", "libmsan", "libubsan",
)  # fmt: skip
_LINKED = ("libcupti", "libnvperf")
_LIBRARY = re.compile(r"/((?:" + "|".join(map(re.escape, (*_INJECTED, *_LINKED))) + r")[^/\n]*?\.so[^/\s]*)")

# Any value but an empty one enables these: the value is a library, a session or a token.
_INJECTING = re.compile(
    r"(CUDA_INJECTION|NVTX_INJECTION)(32|64)_PATH|GPUWATCH_NVTX_NEXT|NSYS_PROFILING_SESSION_ID|NV_TPS_\w+|NV_(NSIGHT|COMPUTE_PROFILER|SANITIZER)_\w+"
)
# Switches and settings, which some values turn off.  A toolkit's install path is not a setting.
_SWITCHES = re.compile(
    r"CUPTI_\w+|COMPUTE_SANITIZER\w*|CUDA_LAUNCH_BLOCKING|CUDA_ENABLE_COREDUMP_ON_EXCEPTION|CUDA_DEVICE_WAITS_ON_EXCEPTION"
    r"|PYTORCH_NO_CUDA_MEMORY_CACHING|TRITON_INTERPRET|TRITON_DEBUG|TORCH_SHOW_DISPATCH_TRACE|TORCH_COMPILE_DEBUG"
)
_PLACES = re.compile(r"_(PATH|DIR|ROOT|HOME|LIB|LIBRARY|LIBRARIES|INCLUDE|INCLUDE_DIRS|VERSION)$")
_OFF = frozenset({"", "0", "false", "no", "off"})


def attached(pids: Iterable[int], *, proc: Path = PROC) -> frozenset[str] | None:
    """Return findings for these processes; None if no process could be inspected.

    The environment is the initial one of each process; only the process itself can read later changes.
    """
    found: set[str] = set()
    looked = False
    for pid in list(pids)[:LOOKED_AT_COUNT]:
        mapped, environ = contents(proc / str(pid) / "maps"), contents(proc / str(pid) / "environ")
        looked = looked or bool(mapped and environ is not None)
        found |= _libraries(mapped or "") | _variables(environ or "", proc / str(pid) / "root") | _tracers(pid, proc)
    return frozenset(found) if looked or found else None


def text(found: frozenset[str] | None, before: str | None = None) -> str | None:
    """Add findings to earlier ones in the form of ``Host.profilers``, sorted and comma-separated; None adds nothing."""
    if found is None:
        return before
    return ",".join(sorted(found.union(name for name in (before or "").split(",") if name)))


def _libraries(mapped: str) -> set[str]:
    return {f"{'idle' if name.startswith(_LINKED) else 'library'}:{_word(name)}" for name in set(_LIBRARY.findall(mapped))}


def _variables(environ: str, root: Path) -> set[str]:
    found: set[str] = set()
    for entry in environ.split("\0"):
        name, _, value = entry.partition("=")
        preloads = name == "LD_PRELOAD" and _preloads_injection(value)
        injects = _INJECTING.fullmatch(name) and value and not _is_own_library(name, value, root)
        switches = _SWITCHES.fullmatch(name) and not _PLACES.search(name) and value.strip().lower() not in _OFF
        if preloads or injects or switches:
            found.add(f"variable:{name}")
    return found


def _is_own_library(name: str, value: str, root: Path) -> bool:
    """Return True if NVTX loads gpuwatch's own library, judged by path and content in the process's file system.

    Of a process that has just ended, only the path can be judged.  A further library that gpuwatch's library calls has a
    separate variable, which is a finding.
    """
    if name != "NVTX_INJECTION64_PATH":
        return False
    if libgpuwatch.is_ours(value, root / value.lstrip("/")):
        return True
    # Looked at last: the process may end during the comparison.
    has_ended = not os.path.exists(root)  # noqa: PTH110 - Path.exists raises if forbidden
    return has_ended and libgpuwatch.is_ours(value, Path(value))


def _preloads_injection(value: str) -> bool:
    return any(Path(part).name.startswith(_INJECTED) for part in re.split(r"[:\s]+", value))


def _tracers(pid: int, proc: Path) -> set[str]:
    for line in (contents(proc / str(pid) / "status") or "").splitlines():
        if line.startswith("TracerPid:"):
            tracer = line.partition(":")[2].strip()
            if tracer.isdigit() and tracer != "0":
                return {f"tracer:{_word((contents(proc / tracer / 'comm') or '').strip() or tracer)}"}
    return set()


def _word(name: str) -> str:
    """Return a name without commas, which separate the list."""
    return re.sub(r"[^\w.+-]", "_", name)
