"""A synthetic fleet of 18 nodes over nine weeks, with known troubles and harmless conditions that resemble troubles."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from gpuwatch.fleet import parquet
from gpuwatch.fleet.columns import COLUMNS, ColumnKind

NOW = dt.datetime(2026, 11, 23, 8, 0, tzinfo=dt.UTC)
DAYS = (*range(62, 27, -4), *range(6, -1, -1))  # days before NOW: nine to four weeks ago, and the last week
NEW_DRIVER_DAYS = 10  # a new driver, this many days before NOW, made everything 3 % faster
H200, A100 = "NVIDIA H200", "NVIDIA A100-SXM4-80GB"
WORKS = {"gemm": (0.002, "vision"), "attention": (0.0007, "language")}


@dataclass(frozen=True, slots=True)
class MadeUpNode:
    """One node of two GPUs, and the node's trouble."""

    name: str
    model: str = H200
    limit_w: float = 700.0
    slower: float = 1.0  # factor on all times, on both GPUs
    is_idle: bool = False  # no windows in the last two nights
    bimodal_days: int = 0  # the last days, whose windows have an accepted finding


NODES = (
    *(MadeUpNode(f"h{number:02d}") for number in range(8)),
    MadeUpNode("h-slow", slower=1.04),
    MadeUpNode("h-capped", limit_w=500.0, slower=1.12),  # slower by a cap that two other nodes also have
    MadeUpNode("h-capped-2", limit_w=500.0, slower=1.12),
    MadeUpNode("h-capped-3", limit_w=500.0, slower=1.12),
    MadeUpNode("h-idle", is_idle=True),
    MadeUpNode("h-larger"),  # another team uses the same name for another size
    MadeUpNode("h-crowded"),  # slow windows with another user on the GPU, and a finding for these
    *(  # another model
        MadeUpNode(f"a{number}", model=A100, limit_w=400.0, slower=2.1, bimodal_days=days)
        for number, days in enumerate((0, 1, 3))
    ),
)


def write_fleet(folder: Path) -> None:
    """Write the fleet in the layout of an export, one part per node."""
    rng = random.Random(17)
    for node in NODES:
        where = folder / "windows" / "schema=1" / "date=2026-11-23" / f"host={node.name}"
        where.mkdir(parents=True)
        pq.write_table(parquet.table(list(_rows(node, rng))), where / f"part-{node.name}.parquet")


def _rows(node: MadeUpNode, rng: random.Random) -> Iterator[dict[str, Any]]:
    for days in DAYS:
        if node.is_idle and days < 2:
            continue
        for number, (label, (base_s, team)) in enumerate(WORKS.items()):
            for gpu in range(2):
                hours = rng.uniform(2, 10) + number
                yield _row(node, f"GPU-{node.name}-{gpu}", label, team, base_s, dt.timedelta(days=days, hours=hours), rng)
    if node.name == "h00":  # five simulated windows, faster than any card
        fast = _row(node, "GPU-simulated", "gemm", "vision", 1e-6, dt.timedelta(hours=1), rng)
        yield from ({**fast, "simulated": True, "run": f"simulated-{number}"} for number in range(5))


def _row(
    node: MadeUpNode, uuid: str, label: str, team: str, base_s: float, ago: dt.timedelta, rng: random.Random
) -> dict[str, Any]:
    begun = NOW - ago
    days = ago / dt.timedelta(days=1)
    time_s = base_s * node.slower * rng.uniform(0.997, 1.003) * (0.97 if days < NEW_DRIVER_DAYS else 1.0)
    limit_w, clock_mhz = node.limit_w, 1500.0 / node.slower
    temperature_c, status, found = rng.uniform(58, 62), "valid", []
    if uuid == "GPU-h03-1" and days < 7:  # degraded: hotter, and slower than a month ago
        time_s, clock_mhz, temperature_c = time_s * 1.05, clock_mhz / 1.05, 78.0
    if uuid == "GPU-h04-0" and days < 12:  # lowered cap: slower, and not degraded
        time_s, limit_w = time_s * 1.15, 550.0
    if node.name == "h-larger":
        time_s, team = time_s * 1.5, "robots"
    if node.name == "h-crowded" and rng.random() < 0.6:
        time_s, status, found = time_s * 1.3, "rejected", ["contention-process"]
    if node.name == "h05" and days < 1:  # last night
        status, found = "flagged", ["idle-stretch"]
    if days < node.bimodal_days:
        found = ["bimodal"]
    if uuid == "GPU-h06-0":
        status = "unproven" if days < 1 else status
    row = {column.name: _nothing(column.kind) if column.always else None for column in COLUMNS}
    tags = {"account": "physics"} if node.name == "h06" else {"team": team}
    return {
        **row,
        "boot_id": f"boot-{node.name}",
        "run": f"{begun:%m%d%H%M%S}-{uuid}-{label}",
        "gpu_uuid": uuid,
        "hostname": node.name,
        "begun_utc": begun,
        "length_s": 6.0,
        "label": label,
        "status": status,
        "window_status": status,
        "found": found,
        "gpus_count": 1,
        "user": "ann",
        "tags": tags,
        "gpu_name": node.model,
        "gpu_power_limit_w": limit_w,
        "gpu_driver_version": "580.95.05" if days < NEW_DRIVER_DAYS or node.name == "h07" else "575.57.08",
        "gpu_ecc_mode": uuid != "GPU-h02-1",
        "sm_clock_mean_mhz": clock_mhz * rng.uniform(0.998, 1.002),
        "power_mean_w": limit_w * 0.97,
        "temperature_mean_c": temperature_c,
        "energy_j": 6.0 * limit_w * 0.97,
        "busy_ratio": 0.98,
        "times_count": 1000,
        "time_median_s": time_s,
    }


def _nothing(kind: ColumnKind) -> Any:  # the empty value of a column that is never NULL
    if kind in (ColumnKind.TEXTS, ColumnKind.RECORDS):
        return []
    if kind in (ColumnKind.NUMBERS, ColumnKind.WORDS):
        return {}
    return {ColumnKind.TEXT: "", ColumnKind.WHOLE: 0, ColumnKind.FLAG: False}.get(kind, 0.0)
