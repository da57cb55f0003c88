"""The GPUs and windows in an answer to ``readings``."""

from typing import Any

import msgspec


class ShownGpu(msgspec.Struct, omit_defaults=True, frozen=True, rename={"process_list": "census"}):
    """One GPU now: records of ``annotate.evidence`` without unobserved fields."""

    device: dict[str, Any]
    lost: str | None = None
    period_ns: dict[str, int] = {}  # by lane
    rows: list[dict[str, Any]] = []  # the last row of each lane with rows, except the pulse
    process_list: dict[str, Any] | None = None
    processes_left_out_count: int = 0


class Shown(msgspec.Struct, omit_defaults=True, frozen=True):
    """One window.  ``status`` is open, closing, judging or the verdict's; ``hazards`` are rules, worst first."""

    run: str
    claim: str
    status: str
    begin_ns: int
    label: str | None = None
    end_ns: int | None = None
    uuids: list[str] = []  # empty while an open window's processes have used no GPU
    pids: list[int] = []
    why: str = ""
    hazards: list[str] = []
    simulated: bool = False
