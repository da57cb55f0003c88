"""What shares a process's GPUs by design, as far as its surroundings tell: MPS, and schedulers that cut a GPU in pieces.

Time slices of NVIDIA's Kubernetes plugin leave no mark inside a container: the list of devices reads as if each were whole.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from gpuwatch.host.processes import PROC, contents, names

_PIPES, _PIPES_DEFAULT = "CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"  # noqa: S108 - CUDA's own default
# The kernel cuts a process's name at 15 characters, where nvidia-cuda-mps-control and -server no longer differ.
_MPS_NAME = "nvidia-cuda-mps"
# What schedulers tell the processes to which they give a part of a GPU: how the name of a variable begins, and whose it is.
_SCHEDULERS: Mapping[str, str] = {
    "CUDA_DEVICE_SM_LIMIT": "HAMi",
    "CUDA_DEVICE_MEMORY_LIMIT": "HAMi",
    "ALIYUN_COM_GPU_MEM_CONTAINER": "gpushare",
}


def sharing(pid: int, *, proc: Path = PROC) -> str | None:
    """What shares the GPUs of this process, comma-separated; empty: looked for and nothing found; None: could not look."""
    text = contents(proc / str(pid) / "environ")
    environ = dict(entry.partition("=")[::2] for entry in (text or "").split("\0") if entry)
    found = {name for variable in environ for start, name in _SCHEDULERS.items() if variable.startswith(start)}
    if _speaks_mps(f"{proc}/{pid}/root", environ, proc):
        found.add("MPS")
    return ",".join(sorted(found)) if found or text is not None else None


def _speaks_mps(root: str, environ: Mapping[str, str], proc: Path) -> bool:
    """Whether its CUDA calls go through an MPS server: they do where the control pipe lies in the directory it looks into."""
    if os.path.isdir(f"{root}/"):  # noqa: PTH112 - false where it is forbidden, where a Path raises
        return os.path.exists(f"{root}{environ.get(_PIPES, _PIPES_DEFAULT)}/control")  # noqa: PTH110 - the same
    return _PIPES in environ or any(
        (contents(f"{proc}/{name}/comm") or "").startswith(_MPS_NAME) for name in names(str(proc)) if name.isdigit()
    )
