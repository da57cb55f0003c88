"""The story of a long run: hazards, restarts and gaps with their times, and the expected alerts.  No other alert may fire."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.dashboards.run_hosts import RunFleet, capped, certificate, late_clock, working
from tests.fake_nvml.scene import Client
from tests.waiting import sample_for

END_S = 1800.0
CAPPED, SLOWDOWN, SW_HEAT, HW_HEAT, BRAKE = 0x4, 0x8, 0x20, 0x40, 0x80


@dataclass(frozen=True, slots=True)
class Expected:
    """One expected alert: ``within_s``, the longest delay after the event, and ``end_s``, the latest end in the run."""

    alert: str
    host: str | None = None
    gpu: str | None = None
    within_s: float = 90.0
    end_s: float = END_S
    more: Mapping[str, str] = field(default_factory=dict)

    @property
    def labels(self) -> dict[str, str]:
        return {
            "alertname": self.alert,
            **({"instance": self.host} if self.host else {}),
            **({"gpu": self.gpu} if self.gpu else {}),
            **self.more,
        }


@dataclass(frozen=True, slots=True)
class Happening:
    """One event: the time in the run, the name in the report, the action, and the expected alerts."""

    at_s: float
    says: str
    do: Callable[[RunFleet], object]
    raises: tuple[Expected, ...] = ()


def people(fleet: RunFleet) -> None:
    """Add the hosts with their states at the start of the run."""
    well = fleet.add("well")
    well.gpu(0).clients = [Client(pid=os.getpid(), sm_percent=99)]
    capped(well.gpu(1), 1500)
    fleet.add("boards", gpus=4)
    for name in ("driver", "lost", "leaver", "killed"):
        fleet.add(name)
    for gpu in fleet.add("slow").gpus:
        working(gpu, clock_mhz=1600, power_w=430)
    fleet.add("odd", gpus=3)
    late = fleet.add("late")
    late.environment = {**late.environment, **late_clock(late.folder, 900)}
    tls = fleet.add("tls", job="gpuwatch-tls")
    tls.environment = {**tls.environment, **certificate(tls.folder, 3)}
    fleet.add("simulated", source="simulated:steady-copy,steady-gemm")
    fleet.add("store")


_AT_START = (
    Expected("GpuwatchClockSkew", "late", within_s=150),
    Expected("GpuwatchCertificateExpires", "tls", within_s=150),
    Expected("GpuwatchSimulated", "simulated", within_s=150),
    Expected("GpuwatchFewerGpusThanSiblings", "odd", within_s=150, end_s=900),
    *(Expected("GpuwatchSlowTwin", "slow", gpu, within_s=300) for gpu in "01"),
)


def _canaries(fleet: RunFleet) -> None:
    for name in ("well", "boards", "driver", "lost", "leaver", "killed", "slow"):
        fleet.hosts[name].windows(1, declared={"canary_clock_mhz": 1700.0 if name == "slow" else 1978.0})
    fleet.hosts["well"].windows(3)


def _held_back(fleet: RunFleet) -> None:
    host = fleet.hosts["boards"]
    for index, (mask, counter) in enumerate(
        (
            (SLOWDOWN | BRAKE, "power_brake_ns"),
            (SLOWDOWN, None),
            (SW_HEAT, "sw_thermal_ns"),
            (SLOWDOWN | HW_HEAT, "hw_thermal_ns"),
        )
    ):
        host.gpu(index).set(sm_clock_mhz=990, event_reasons_mask=mask, power_mw=300_000, power_average_mw=300_000)
        if counter:
            host.gpu(index).moves(counter, 1e9)


def _let_go(fleet: RunFleet) -> None:
    for gpu in fleet.hosts["boards"].gpus:
        working(gpu)
        for counter in ("power_brake_ns", "sw_thermal_ns", "hw_thermal_ns"):
            gpu.moves(counter, 0)


def _driver(fleet: RunFleet, *, loaded: bool) -> None:
    scene = fleet.hosts["driver"].scene
    assert scene
    scene.load() if loaded else scene.unload()


def _double_bit(fleet: RunFleet) -> None:
    gpu = fleet.hosts["boards"].gpu(0)
    gpu.set(ecc_uncorrected_count=1, remap_pending_count=1)
    gpu.xid(48)


def _corrected(fleet: RunFleet) -> None:
    gpu = fleet.hosts["boards"].gpu(1)
    gpu.set(ecc_corrected_count=500, remapped_corrected_count=1)
    gpu.xid(63)


def _worn_slot(fleet: RunFleet) -> None:
    fleet.hosts["boards"].gpu(2).set(pcie_replay_count=400, pcie_width_count=8)


def _wrong_settings(fleet: RunFleet) -> None:
    fleet.hosts["boards"].gpu(3).set(power_limit_mw=500_000, persistence_mode=0, remap_failed_count=1)


def _repaired(fleet: RunFleet) -> None:
    fleet.hosts["boards"].gpu(2).set(pcie_width_count=16)
    fleet.hosts["boards"].gpu(3).set(power_limit_mw=700_000, persistence_mode=1)


def _xid_and_restart(fleet: RunFleet) -> None:
    """Restart the daemon half a second after an Xid, so that few scrapes contain the Xid."""
    host = fleet.hosts["killed"]
    host.gpu(1).xid(63)
    sample_for(0.5)
    host.restart()


def _fall_off(fleet: RunFleet) -> None:
    gpu = fleet.hosts["lost"].gpu(1)
    gpu.xid(79)
    sample_for(2.0)
    gpu.lose()


def _lose_for_good(fleet: RunFleet) -> None:
    fleet.hosts["odd"].gpu(2).vanish()
    fleet.hosts["odd"].restart()


def _stutter(fleet: RunFleet) -> None:
    """Stop a daemon for half of every second, for four minutes, in parallel with the story."""
    host = fleet.hosts["killed"]

    def run() -> None:
        for _ in range(240):
            host.send(signal.SIGSTOP)
            sample_for(0.5)
            host.send(signal.SIGCONT)
            sample_for(0.5)

    threading.Thread(target=run, daemon=True).start()


def _fill(folder: Path) -> None:
    with (folder / "somebody's").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return


def _hang(fleet: RunFleet) -> None:
    gpu = fleet.hosts["well"].gpu(0)
    gpu.hang()
    sample_for(3.0)
    gpu.release()


_ON_BOARD = tuple(
    Expected(alert, "boards", gpu, within_s=120, end_s=end_s)
    for alert, gpu, end_s in (
        ("GpuwatchPowerBrake", "0", 840.0), ("GpuwatchHardwareSlowdown", "1", 840.0), ("GpuwatchThermal", "2", 840.0),
        ("GpuwatchThermal", "3", 840.0),
    )
)  # fmt: skip

STORY = (
    Happening(0, "the run begins", lambda fleet: None, _AT_START),
    Happening(60, "windows with canaries on seven hosts, one of them slow", _canaries,
              (Expected("GpuwatchSlowCanary", "slow", "0", within_s=180),)),
    Happening(140, "a power brake, a hardware slowdown and heat, 40 s on a GPU each", _held_back, _ON_BOARD),
    Happening(180, "brake, slowdown and heat end", _let_go),
    Happening(220, "the driver is unloaded for 20 s", lambda fleet: _driver(fleet, loaded=False)),
    Happening(240, "the driver is loaded again", lambda fleet: _driver(fleet, loaded=True)),
    Happening(260, "an uncorrectable memory error, its Xid 48, and a row to be remapped", _double_bit,
              (Expected("GpuwatchEccUncorrected", "boards", "0"), Expected("GpuwatchXid", "boards", "0", more={"xid": "48"}),
               Expected("GpuwatchRowRemapPending", "boards", "0", within_s=150))),
    Happening(300, "500 corrected errors, a row remapped, and Xid 63", _corrected,
              (Expected("GpuwatchEccCorrected", "boards", "1"), Expected("GpuwatchRemappedRows", "boards", "1", within_s=150),
               Expected("GpuwatchXidForTicket", "boards", "1", more={"xid": "63"}))),
    Happening(320, "400 PCIe replays and half of the lanes", _worn_slot,
              (Expected("GpuwatchPcieReplays", "boards", "2", end_s=1300),
               Expected("GpuwatchPcieLinkDegraded", "boards", "2", within_s=150, end_s=780))),
    Happening(340, "a lowered power limit, persistence mode off, a failed remapping", _wrong_settings,
              (Expected("GpuwatchPowerLimitLowered", "boards", "3", within_s=150, end_s=780),
               Expected("GpuwatchPersistenceOff", "boards", "3", within_s=150, end_s=780),
               Expected("GpuwatchRowRemapFailed", "boards", "3"))),
    Happening(360, "Xid 63, and the daemon restarted half a second later", _xid_and_restart,
              (Expected("GpuwatchXidForTicket", "killed", "1", more={"xid": "63"}),)),
    Happening(400, "a daemon is restarted", lambda fleet: fleet.hosts["well"].restart()),
    Happening(430, "a host leaves service discovery", lambda fleet: fleet.discover(without=frozenset({"leaver"})),
              (Expected("GpuwatchNodeGone", "leaver", within_s=150, end_s=960),)),
    Happening(480, "Xid 79: a GPU falls off the bus", _fall_off,
              (Expected("GpuwatchXid", "lost", "1", more={"xid": "79"}),
               Expected("GpuwatchGpuLost", "lost", "1", within_s=150, end_s=1080))),
    Happening(580, "eleven windows on the lost GPU", lambda fleet: fleet.hosts["lost"].windows(11, 1),
              (Expected("GpuwatchWindowsUnproven", "lost", within_s=150),)),
    Happening(650, "a GPU vanishes, and its daemon is restarted", _lose_for_good,
              (Expected("GpuwatchGpuMissing", "odd", within_s=150),)),
    Happening(700, "width, limit and persistence are repaired", _repaired),
    Happening(720, "a daemon is killed and started again", lambda fleet: fleet.hosts["well"].restart(signal.SIGKILL)),
    Happening(760, "a daemon is killed and stays dead", lambda fleet: fleet.hosts["killed"].stop(signal.SIGKILL),
              (Expected("GpuwatchDown", "killed", within_s=120, end_s=1180),)),
    Happening(800, "twelve windows next to another process", lambda fleet: fleet.hosts["odd"].windows(12),
              (Expected("GpuwatchWindowsSpoilt", "odd", within_s=150),)),
    Happening(860, "a driver is unloaded for 400 s", lambda fleet: _driver(fleet, loaded=False),
              (Expected("GpuwatchNoDriver", "driver", within_s=150, end_s=1330),)),
    Happening(900, "the host is discovered again", lambda fleet: fleet.discover()),
    Happening(1000, "the lost GPU returns", lambda fleet: fleet.hosts["lost"].gpu(1).come_back()),
    Happening(1020, "an Xid of an application on the host with a late clock", lambda fleet: fleet.hosts["late"].gpu(0).xid(31),
              (Expected("GpuwatchXidOfApplication", "late", "0", more={"xid": "31"}),)),
    Happening(1100, "the dead daemon is started", lambda fleet: fleet.hosts["killed"].start()),
    Happening(1160, "a daemon is stopped for half of each second, four minutes long", _stutter,
              tuple(Expected("GpuwatchSamplesMissed", "killed", gpu, within_s=330) for gpu in "01")),
    Happening(1260, "the driver is loaded again", lambda fleet: _driver(fleet, loaded=True)),
    Happening(1320, "Prometheus is stopped for 70 s", lambda fleet: fleet.stop("prometheus")),
    Happening(1390, "Prometheus is started again", lambda fleet: fleet.start_prometheus()),
    Happening(1420, "a full disk under a store", lambda fleet: _fill(fleet.hosts["store"].folder / "state"),
              (Expected("GpuwatchStoreDiskFull", "store", within_s=120, end_s=1640),)),
    Happening(1540, "the disk has room again", lambda fleet: (fleet.hosts["store"].folder / "state" / "somebody's").unlink()),
    Happening(1560, "a daemon reads its configuration again", lambda fleet: fleet.hosts["well"].send(signal.SIGHUP)),
    Happening(1580, "the driver's calls hang for 3 s", _hang),
    Happening(1640, "service discovery finds nothing", lambda fleet: fleet.discover(without=frozenset(fleet.hosts)),
              (Expected("GpuwatchAbsent", within_s=120), *(Expected("GpuwatchNodeGone", name, within_s=150) for name in (
                  "well", "boards", "driver", "lost", "leaver", "killed", "slow", "odd", "late", "tls", "simulated", "store")))),
)  # fmt: skip
# Alerts that the run does not provoke, with the reason; promtool tests each of these alerts.
NOT_PROVOKED: Mapping[str, str] = {
    "GpuwatchStale": "the daemon declares a GPU lost after 5 s without an answer",
    "GpuwatchNeverRead": "the mock driver answers for every listed GPU",
    "GpuwatchProcessListIncomplete": "needs a container",
    "GpuwatchStoreRowsDropped": "a full disk has its own alert",
    "GpuwatchJudgeStuck": "looks back two hours",
    "GpuwatchDaemonCostly": "would need all CPUs of the run",
    "GpuwatchExportOld": "takes a day and a half",
}
