"""Detection of GPU sharing by design, from a process's surroundings: MPS, and schedulers that divide GPUs.

Time slices of NVIDIA's Kubernetes plugin cannot be detected from inside a container, where the devices look whole.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from gpuwatch.host.processes import PROC, contents, names

_PIPES, _PIPES_DEFAULT = "CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"  # noqa: S108 - CUDA's own default
# The kernel cuts a process's name to 15 characters, so nvidia-cuda-mps-control and -server look the same.
_MPS_NAME = "nvidia-cuda-mps"
# Variables that schedulers set for processes with a part of a GPU: prefix of the name, and the scheduler.
_SCHEDULERS: Mapping[str, str] = {
    "CUDA_DEVICE_SM_LIMIT": "HAMi",
    "CUDA_DEVICE_MEMORY_LIMIT": "HAMi",
    "ALIYUN_COM_GPU_MEM_CONTAINER": "gpushare",
}


def sharing(pid: int, *, proc: Path = PROC) -> str | None:
    """Return the mechanisms that share a process's GPUs, comma-separated or empty.

    Return None if nothing was found and the process's environment is hidden.
    """
    text = contents(proc / str(pid) / "environ")
    environ = dict(entry.partition("=")[::2] for entry in (text or "").split("\0") if entry)
    found = {name for variable in environ for start, name in _SCHEDULERS.items() if variable.startswith(start)}
    if _uses_mps(f"{proc}/{pid}/root", environ, proc):
        found.add("MPS")
    return ",".join(sorted(found)) if found or text is not None else None


def _uses_mps(root: str, environ: Mapping[str, str], proc: Path) -> bool:
    """Return True if MPS runs a process's CUDA calls: by its control pipe, else by the variable or a running MPS process."""
    if os.path.isdir(f"{root}/"):  # noqa: PTH112 - returns False if forbidden, where a Path raises
        return os.path.exists(f"{root}{environ.get(_PIPES, _PIPES_DEFAULT)}/control")  # noqa: PTH110 - the same
    return _PIPES in environ or any(
        (contents(f"{proc}/{name}/comm") or "").startswith(_MPS_NAME) for name in names(str(proc)) if name.isdigit()
    )
