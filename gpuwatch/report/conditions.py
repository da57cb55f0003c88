"""The conditions of a window, their differences between windows, and the environment, as names and texts."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from annotate import clock_reasons
from annotate.declared import FACTS
from annotate.derived.sm_clock import measured
from annotate.evidence import Evidence, Ownership
from annotate.output.report import length_words
from gpuwatch.report.record import ReportedWindow

_HOST_FACTS = ("hostname", "kernel", "container", "cpu_allowed_count", "numa_nodes", "profilers", "sharing")
_TIMED = {"power_violation_ns": "held by the power cap", "thermal_violation_ns": "slowed for heat"}


def conditions(window: ReportedWindow) -> dict[str, str]:
    """Return the conditions to quote with a number, without unobserved ones."""
    verdict, evidence = window.verdict, window.evidence
    out = {"GPU": verdict.device_name or "none", "claim": verdict.claim, "length": length_words(verdict.length_s)}
    if evidence is None:
        return out
    device = evidence.device
    if device is not None:
        settings = {
            "driver": device.driver_version,
            "power limit": None if device.power_limit_w is None else f"{device.power_limit_w:g} W",
            "ECC": _switch(device.ecc_mode),
            "MIG": _switch(device.mig_mode),
            "persistence": _switch(device.persistence_mode),
        }
        out |= _present(settings)
    true = measured(evidence)
    observed = {
        "SM clock, NVML": _spread(evidence, "sm_clock_mhz", "MHz", device.sm_clock_max_mhz if device else None),
        "SM clock, true": f"{true.clock_mhz:.0f} MHz, {true.by}" if true else None,
        "memory clock": _spread(evidence, "mem_clock_mhz", "MHz"),
        "power": _spread(evidence, "power_w", "W"),
        "temperature": _spread(evidence, "temperature_c", "°C"),
        "utilisation": _spread(evidence, "utilization_ratio", "%"),
        "clock event reasons": _reasons(evidence),
        "processes": _processes(evidence),
    }
    out |= _present(observed)
    for signal, words in _TIMED.items():
        increase = evidence.increase(signal)
        if increase is not None:
            # The counter's readings may lie slightly off the edges, so the share is scaled to the window's length.
            share = min(1.0, increase.amount / increase.span_ns)
            out[words] = part_words(share, length_words(verdict.length_s))
    return out


def part_words(share: float, length: str) -> str:
    """Format a share of a length in the unit of the length, with two digits for a small part."""
    number, unit = length.split()
    part = share * float(number)
    return f"{part:.2g} of {length}" if 0 < part < 0.95 or unit == "ms" else f"{part:.1f} of {length}"


def differences(windows: Sequence[ReportedWindow]) -> list[tuple[str, list[str]]]:
    """Return each condition and fact of machine, GPU or software that differs, with its text in every window."""
    texts_by_window = [conditions(window) | _identity(window) for window in windows]
    names = dict.fromkeys(name for each in texts_by_window for name in each)
    rows = [(name, [each.get(name, "not observed") for each in texts_by_window]) for name in names]
    return [(name, texts) for name, texts in rows if len(set(texts)) > 1]


def _identity(window: ReportedWindow) -> dict[str, str]:
    evidence = window.evidence
    if evidence is None:
        return {}
    device = asdict(evidence.device) if evidence.device is not None else {}
    found = {f"GPU {_words(name)}": value for name, value in device.items()}
    found |= {f"host {_words(name)}": getattr(evidence.host, name) for name in _HOST_FACTS}
    found |= {name: value for name, value in evidence.declared.items() if isinstance(value, str | bool)}
    return {name: _text(value) for name, value in found.items() if value not in (None, "")}


def environment(window: ReportedWindow) -> dict[str, str]:
    """Return the run with its tags, and the facts of GPU and host."""
    out = _present({"run": window.run_id, "begun": window.begun, "user": window.user, "process": window.process})
    out |= {f"tag {name}": text for name, text in sorted(window.tags.items())}
    evidence = window.evidence
    if evidence is None:
        return out
    if evidence.device is not None:
        out |= {f"GPU {_words(name)}": _text(value) for name, value in asdict(evidence.device).items() if value is not None}
    out |= {f"host {_words(name)}": _text(value) for name, value in asdict(evidence.host).items() if value not in (None, "")}
    return out


def declared(window: ReportedWindow) -> list[tuple[str, str, str]]:
    """Return name, value and meaning of each fact that the measured process declared, unchecked."""
    facts = window.evidence.declared if window.evidence is not None else {}
    return [(name, _text(value), FACTS.get(name, "")) for name, value in sorted(facts.items()) if value is not None]


def _spread(evidence: Evidence, signal: str, unit: str, top: float | None = None) -> str | None:
    values = evidence.within(signal).values
    values = values[np.isfinite(values)]
    if not len(values):
        return None
    if unit == "%":
        values = values * 100
    low, middle, high = (float(each) for each in np.percentile(values, (0, 50, 100)))
    text = f"{middle:.4g} {unit}" if low == high else f"{middle:.4g} {unit} ({low:.4g} to {high:.4g})"
    return f"{text}, maximum {top:.0f}" if top else text


def reasons_seen(evidence: Evidence) -> list[tuple[str, str]]:
    """Return each clock event reason of the window in plain words, with its meaning for a number."""
    masks = _masks(evidence)
    return [clock_reasons.of_bit(bit) for bit in clock_reasons.bits(int(np.bitwise_or.reduce(masks)))] if len(masks) else []


def _masks(evidence: Evidence) -> np.ndarray[Any, np.dtype[np.int64]]:
    masks = evidence.within("event_reasons_mask").values
    return masks[np.isfinite(masks)].astype(np.int64)


def _reasons(evidence: Evidence) -> str | None:
    masks = _masks(evidence)
    if not len(masks):
        return None
    every = clock_reasons.bits(int(np.bitwise_or.reduce(masks)))
    return ", ".join(f"{clock_reasons.of_bit(bit)[0]} {100 * (masks & bit != 0).mean():.0f} %" for bit in every) or "none"


def _processes(evidence: Evidence) -> str | None:
    window = evidence.window
    inside = [
        process_list for process_list in evidence.trace.process_lists if window.begin_ns <= process_list.at_ns <= window.end_ns
    ]
    if not inside:
        return None
    whose = {process.pid: process.ownership for process_list in inside for process in process_list.processes}
    counts = {each: list(whose.values()).count(each) for each in Ownership}
    return ", ".join(f"{count} {each.value}" for each, count in counts.items() if count) or "none seen"


def _present(texts: dict[str, str | None]) -> dict[str, str]:
    return {name: text for name, text in texts.items() if text}


def _switch(on: bool | None) -> str | None:  # noqa: FBT001 - a driver's answer, not a flag
    return None if on is None else "on" if on else "off"


def _words(name: str) -> str:
    return name.replace("_", " ")


def _text(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
