"""Every target by name.  A target is a module of this package whose ``target(data)`` raises no exception for any bytes.

Each target catches the allowed exceptions of its parser by type; any other exception is a finding.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping

# Targets by family; tests/fuzz/results.json has the counts.
FAMILIES: Mapping[str, tuple[str, ...]] = {
    "wire": ("requests", "conversations", "told", "replies"),
    "traces": ("smi_logs", "archives", "capsules"),
    "config": ("configurations",),
    "kernel-log": ("kernel_log",),
    "report": ("escaping", "reports"),
    "exporter": ("headers",),
}
NAMES = tuple(name for names in FAMILIES.values() for name in names)


def target(name: str) -> Callable[[bytes], None]:
    found: Callable[[bytes], None] = importlib.import_module(f"tests.fuzz.targets.{name}").target
    return found
