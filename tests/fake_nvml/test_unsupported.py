"""Tests of denied signals: each of many GPUs denies one, and the daemon reports the signal as unobserved, not as zero."""

from __future__ import annotations

import functools
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from annotate.evidence import SIGNALS, Lane, Trace, Visibility
from gpuwatch.client.connection import Client as Daemon
from gpuwatch.host.processes import visibility
from gpuwatch.store import Reader
from gpuwatch.view import live
from tests.fake_nvml.denied import NUMBERS
from tests.fake_nvml.program import work_on
from tests.fake_nvml.running import watching
from tests.fake_nvml.scene import Gpu, create
from tests.waiting import PATIENCE_S, sample_for, wait_until

# Rules for which a window of a second may hold too few rows on a busy machine.
RARELY_READ = {
    "hardware-error", "throttle-hw-slowdown", "throttle-power-brake", "sampler-perturbs", "clock-controller-present",
    "bursty-duty-cycle", "clock-ramp", "numa-pcie-affinity", "work-levels", "background-thread",
    *(() if visibility() is Visibility.HOST else ("contention-residual",)),  # in a container, only utilisation shows other processes
}  # fmt: skip
UNUSED = {
    "numa-pcie-affinity": "not observed: the PCIe generation of a busy GPU",
    "idle-stretch": "neither times, nor idle power, nor utilisation were observed",
    "unaccounted-time": "utilisation over a second, or its process, was not observed",
}
# By signal: the rules that cannot decide without the signal, and their texts.
SILENCED = {
    "sm_clock_mhz": {
        **dict.fromkeys(("clock-levels", "clock-drift", "clock-ramp"), "the clock of a busy GPU was observed for less than"),
        "regime-change": "",  # the text names the clock or another missing signal
        "dark-time": "has no reading of the clock",
    },
    "power_w": {"dark-time": "has no reading of the power record"},
    "mem_clock_mhz": {"mem-clock-change": "mem_clock_mhz was not observed"},
    **dict.fromkeys(("utilization_ratio", "mem_utilization_ratio"), UNUSED),
    "memory_used_bytes": {"allocator-churn": "nor was memory in use observed"},
    "pcie_generation_count": {"numa-pcie-affinity": "not observed: the PCIe generation"},
    "pcie_width_count": {"numa-pcie-affinity": "not observed: the PCIe width"},
    "power_limit_w": {
        "clock-controller-present": "the enforced power limit and its default were not both observed",
        "setting-changed": "the power limit was not read twice around the window",
    },
    "persistence_mode": {"persistence-off": "persistence mode was not observed"},
}

# No clock is locked, and the thermal violation time is read only without thermal counters.
UNASKED = {"sm_clock_lock_mhz", "thermal_violation_ns"}
# Further signals that are unobserved with a denied one: from the same call, from an alternative call, or unreliable alone.
ALSO = {
    "sw_thermal_ns": ["hw_thermal_ns", "power_brake_ns"],
    "hw_thermal_ns": ["power_brake_ns"],
    "power_brake_ns": ["hw_thermal_ns"],
    "utilization_ratio": ["mem_utilization_ratio"],
    "mem_utilization_ratio": ["utilization_ratio"],
    "power_cap_ns": ["power_violation_ns"],
}


AT_ONCE_COUNT = 8  # GPUs in a window: with all GPUs at the full rate, two busy cores read too few rows


@dataclass(frozen=True)
class Seen:
    """The evidence and the findings of a GPU for each denied signal, and of a GPU without denials, with the daemon's log."""

    traces: Mapping[str, Trace]
    findings: Mapping[str, Mapping[str, Mapping[str, Any]]]
    log: str


def batched(names: Iterable[str], count: int) -> Iterator[tuple[str, ...]]:
    rest = iter(names)
    while some := tuple(islice(rest, count)):
        yield some


def judged_window(client: Daemon, gpus: Sequence[Gpu]) -> tuple[str, Sequence[Mapping[str, Any]]] | None:
    """Return the run of a window of a second over these GPUs, and its verdicts.

    Return None without verdicts, or if a busy machine left several signals unread or starved the window.  ``dark-time`` would
    then name other signals than the denied one, or decide nothing.  One denied signal leaves the levels of one GPU unknown, and
    none leaves ``throttle-thermal`` undecided.
    """
    opened = client.open(label="denied", gpus=[gpu.uuid for gpu in gpus])
    begin_ns = time.monotonic_ns()
    sample_for(1.2)
    client.close_window(opened.run, begin_ns, time.monotonic_ns())
    verdicts = client.verdicts(opened.run, wait_s=PATIENCE_S).verdicts
    findings = [finding for verdict in verdicts for finding in verdict["findings"]]
    undecided = Counter(each["rule"] for each in findings if each["answered"] == "unobserved")
    is_starved = undecided["clock-levels"] > 1 or undecided["throttle-thermal"] > 0
    is_unread = any(", " in str(each["facts"].get("unread", "")) for each in findings)
    return (opened.run, verdicts) if verdicts and not (is_starved or is_unread) else None


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory, library: Path) -> Seen:
    folder = tmp_path_factory.mktemp("denied")
    scene = create(folder / "scene", gpus=len(NUMBERS) + 1)
    named = dict(zip([*NUMBERS, "nothing"], scene.gpus, strict=True))
    for signal, gpu in named.items():
        work_on(gpu, os.getpid())
        for number in NUMBERS.get(signal, ()):
            gpu.deny(number)
    with watching(folder, scene, library) as watch:
        watch.until(lambda status: len(status["gpus"]) == len(scene.gpus) and not status["unmeasured"])
        with watch.client() as client:
            watch.until(lambda _: all(Lane.SLOW in gpu.rows for gpu in live.of(client.readings()).gpus))
            runs: dict[str, str] = {}
            judged: dict[str, Mapping[str, Any]] = {}
            for signals in batched(named, AT_ONCE_COUNT):
                gpus = [named[signal] for signal in signals]
                found = wait_until(functools.partial(judged_window, client, gpus), what="a window is judged")
                assert found is not None
                run, verdicts = found
                runs |= dict.fromkeys(signals, run)
                judged |= {verdict["device"]["uuid"]: verdict for verdict in verdicts}
        with Reader(watch.live.settings.state) as reader:
            traces = {signal: reader.evidence(reader.run(runs[signal]), gpu.uuid).trace for signal, gpu in named.items()}
        return Seen(
            traces,
            {signal: {finding["rule"]: finding for finding in judged[gpu.uuid]["findings"]} for signal, gpu in named.items()},
            watch.live.log.read_text(),
        )


def test_every_signal_has_driver_numbers_to_deny() -> None:
    assert set(NUMBERS) == set(SIGNALS)


def test_gpu_without_denials_has_every_signal(seen: Seen) -> None:
    unobserved = {signal for signal in SIGNALS if not seen.traces["nothing"].observes(signal)}
    assert unobserved == UNASKED
    assert "Traceback" not in seen.log


@pytest.mark.parametrize("signal", SIGNALS)
def test_only_denied_signals_are_unobserved(seen: Seen, signal: str) -> None:
    unobserved = {name for name in SIGNALS if not seen.traces[signal].observes(name)}
    assert unobserved == {signal, *UNASKED, *ALSO.get(signal, ())}


@pytest.mark.parametrize("signal", SIGNALS)
def test_rules_without_their_signal_are_unobserved(seen: Seen, signal: str) -> None:
    """The rules that need a denied signal are unobserved and give the reason; other rules decide, except ``RARELY_READ``."""
    whole, found = seen.findings["nothing"], seen.findings[signal]
    silenced = SILENCED.get(signal, {})
    for rule, words in silenced.items():
        assert found[rule]["answered"] == "unobserved"
        assert words in found[rule]["says"]
    others = {rule for rule in whole if found[rule]["answered"] == "unobserved" != whole[rule]["answered"]}
    assert others - set(silenced) <= RARELY_READ
