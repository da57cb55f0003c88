"""The facts of this machine's GPUs for pytest-benchmark's results."""

from __future__ import annotations

from gpuwatch.client.connection import connect
from gpuwatch.config.settings import load
from gpuwatch.harness.quiet_log import quietly

_NAMES = ("name", "uuid", "driver_version", "power_limit_w", "ecc_mode", "mig_mode", "simulated")


def list_gpus() -> list[dict[str, object]]:
    """Return the daemon's facts of each GPU; an empty list without a daemon."""
    with quietly("reading the GPUs' facts"), connect(load()) as client:
        return [{name: gpu.device.get(name) for name in _NAMES} for gpu in client.readings().gpus]
    return []
