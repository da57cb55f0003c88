"""The software that a number depends on, in the measured process: versions, switches, and the environment."""

import contextlib
import functools
import os
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any

from gpuwatch.utf8 import clean_text
from gpuwatch.wire.messages import FactValue

# Libraries whose environment variables change the GPU's work and its launches.
_SPEED = re.compile(
    r"(CUDA|CUBLAS|CUBLASLT|CUDNN|CUTLASS|NCCL|TORCH|TORCHINDUCTOR|TORCHDYNAMO|PYTORCH|TRITON|XLA|JAX|TF|OMP|MKL|KMP|GOMP|OPENBLAS"
    r"|MALLOC|VLLM|NVTE|NVFUSER|FLASH_ATTENTION)_\w+|NVIDIA_TF32_OVERRIDE|LD_PRELOAD|PYTHONOPTIMIZE|PYTHON_GIL|PYTHON_JIT"
)
# Paths and the choice of GPU (its UUID is known) do not change speed; the rest may be secrets.  Terraform's variables begin
# like TensorFlow's, and any of them may be a secret.
_NOT_SPEED = re.compile(
    r"_(PATH|DIR|DIRS|DIRECTORY|ROOT|HOME|FILE|CACHE|VERSION|PREFIX|URL|URI|ADDR|ADDRESS|HOST|HOSTS|HOSTNAME|IP|PORT|ENDPOINT|PROXY|SERVER"
    r"|ID|IDS|RANK|VISIBLE_DEVICES|DEVICE_ORDER|CONFIG)$"
    r"|TOKEN|KEY|SECRET|PASS|PWD|CREDENTIAL|AUTH|COOKIE|WEBHOOK|DSN|_PAT$|_PAT_|_USER|^TF_(VAR|CLI|WORKSPACE)",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"\w://|@")  # a value that names a machine may contain a login
_VALUE_LENGTH = 120
_ENVIRONMENT_LENGTH = 4000


def facts() -> dict[str, FactValue]:
    """Return versions and switches of torch, if the program imported it, and the environment as first read.

    Libraries read their variables when they are loaded, so later changes have no effect.
    """
    declared: dict[str, FactValue] = {"environment": _environment()}
    torch: Any = sys.modules.get("torch")
    version = getattr(torch, "__version__", None)
    if torch is None or version is None:
        return declared
    declared["torch_version"] = str(version)
    declared |= _known("cuda_version", lambda: torch.version.cuda)
    declared |= _known("matmul_precision", getattr(torch, "get_float32_matmul_precision", None))
    declared |= _known("cudnn_tf32", lambda: torch.backends.cudnn.allow_tf32)
    declared |= _known("cudnn_benchmark", lambda: torch.backends.cudnn.benchmark)
    declared |= _known("deterministic", getattr(torch, "are_deterministic_algorithms_enabled", None))
    return declared


def cudnn_version() -> dict[str, FactValue]:
    """Return cuDNN's version; the query loads the library, so call it only where a context exists."""
    torch: Any = sys.modules.get("torch")
    found = _known("cudnn_version", lambda: torch.backends.cudnn.version())  # noqa: PLW0108 - the name may be missing
    return {name: str(version) for name, version in found.items()}


def _known(name: str, ask: Callable[[], Any] | None) -> dict[str, FactValue]:
    """Read one fact of torch; return an empty dictionary if this version lacks the fact or raises an error."""
    # torch 2.9 and later raise RuntimeError if the program used both the older and the newer switches for TF32.
    with contextlib.suppress(AttributeError, RuntimeError, TypeError, ImportError):
        value = ask() if ask is not None else None
        if isinstance(value, str | int | bool):
            return {name: value}
    return {}


@functools.cache
def _environment() -> str:
    return environment()


def environment(environ: Mapping[str, str] | None = None) -> str:
    """Return the variables that change speed, without possible secrets, as sorted NAME=VALUE joined by semicolons."""
    environ = os.environ if environ is None else environ
    entries = [
        f"{name}={value[:_VALUE_LENGTH].replace(';', ',')}"
        for name, value in sorted(environ.items())
        if _SPEED.fullmatch(name) and not _NOT_SPEED.search(name) and not _ADDRESS.search(value)
    ]
    # A variable may hold any bytes: a value that is not UTF-8 could not be declared, and the window would be lost.
    return clean_text(";".join(entries))[:_ENVIRONMENT_LENGTH]
