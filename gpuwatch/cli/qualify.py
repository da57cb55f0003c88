"""The half of gpuwatch selftest that qualifies a machine: it looks, runs the probes, compares, and says what the numbers are worth."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from annotate.evidence import Device, Lane, Process, ProcessList
from annotate.verdict import Verdict
from gpuwatch import clock
from gpuwatch.cli import output
from gpuwatch.cli.exit_codes import Exit
from gpuwatch.comparing import qualify_decision
from gpuwatch.comparing.instance_probes import Probed, host_facts, run_probes
from gpuwatch.comparing.qualification import Qualification, read_cards, same_model, save_card, shipped_cards
from gpuwatch.comparing.qualify_decision import Comparable, FactDifference, Likeness, ProbeDifference, QualifyDecision
from gpuwatch.config.settings import Settings
from gpuwatch.errors import GpuwatchError, UsageError
from gpuwatch.interfaces import Source
from gpuwatch.sources import has_driver, open_source

_HIDDEN_MEMORY_RATIO = 0.005  # of a GPU nobody is listed on: less is a driver's own
_CODES = {
    Comparable.YES: Exit.OK,
    Comparable.PARTLY: Exit.FLAGGED,
    Comparable.NO: Exit.REJECTED,
    Comparable.UNKNOWN: Exit.UNPROVEN,
}
_ANSWERS = {
    Comparable.YES: "COMPARABLE: numbers of this instance can be compared with those of the reference cards",
    Comparable.PARTLY: "PARTLY COMPARABLE: only numbers that the differences below do not reach can be compared",
    Comparable.NO: "NOT COMPARABLE: numbers of this instance are not those of the reference cards",
    Comparable.UNKNOWN: "UNKNOWN: nothing was found to differ, and something was not seen",
}


@dataclass(frozen=True, slots=True)
class QualifyOptions:
    """The values of --qualify, --reference and --save-reference."""

    qualify: bool
    reference: tuple[str, ...]
    save_reference: str | None

    def check(self) -> None:
        """Raises UsageError: for an option without the one it belongs to."""
        given = {"--reference": self.reference, "--save-reference": self.save_reference}
        for name, value in given.items():
            if value and not self.qualify:
                raise UsageError(f"{name} belongs to --qualify")


@dataclass(frozen=True, slots=True)
class _Seen:
    """A GPU as the driver shows it before the probes."""

    device: Device
    lock_mhz: int | None
    used_bytes: int | None
    process_list: ProcessList


def run(settings: Settings, options: QualifyOptions, *, as_json: bool) -> Exit:
    """Qualify this machine's GPU and print the answer; return the code for provisioning."""
    given = read_cards(Path(each) for each in options.reference) if options.reference else None
    card = measure(settings)
    reference = shipped_cards(card.device.name) if given is None else same_model(given, card.device.name)
    decision = qualify_decision.decide(card, reference, settings.card_spread_ratio or None)
    if options.save_reference:
        count = save_card(Path(options.save_reference), card)
        output.say(f"{options.save_reference} now holds {output.counted(count, 'card')}")
    if as_json:
        output.emit_json({"qualification": card.to_dict(), "decision": plain_decision(decision)})
    else:
        output.emit("\n".join(lines(card, decision)))
    return _CODES[decision.comparable]


def measure(settings: Settings) -> Qualification:
    """Look at the machine and run the probes.  Raises GpuwatchError: when there is no GPU, or none takes work."""
    if settings.source == "auto" and not has_driver():
        raise GpuwatchError("selftest: expected an NVIDIA driver, found none; `gpuwatch doctor` says more")
    begin_ns, begun_wall_s = clock.now_ns(), clock.wall_s()
    with closing(open_source(settings.source, clock.MonotonicClock())) as source:
        seen = {device.uuid: _look(source, device) for device in source.devices()}
        is_simulated = source.simulated
    probed = _simulated(settings.source) if is_simulated else run_probes(settings, output.say)
    here = _of_uuid(seen, probed.uuid)
    return Qualification(
        device=here.device,
        amounts=probed.amounts,
        missing=probed.missing,
        stamps=probed.stamps,
        sm_clock_lock_mhz=here.lock_mhz,
        visibility=here.process_list.visibility,
        neighbours=tuple(_neighbours(here, probed.verdicts, is_simulated=is_simulated)),
        disturbed=tuple(_disturbances(probed.verdicts)),
        software=probed.software,
        host={} if is_simulated else host_facts(),
        measured_wall_s=begun_wall_s,
        took_s=(clock.now_ns() - begin_ns) / 1e9,
    )


def _simulated(spec: str) -> Probed:
    from gpuwatch.comparing.simulated_instance import probe_scene
    from gpuwatch.sources.simulated.scenes import DEFAULT_FLEET
    from gpuwatch.sources.simulated.simulated_source import scenes_named

    return probe_scene(scenes_named(spec.partition(":")[2] or DEFAULT_FLEET)[0])


def _look(source: Source, device: Device) -> _Seen:
    """Read what may differ from start to start, before this process has work on the GPU."""
    slow = source.read(device.uuid, Lane.SLOW, ("sm_clock_lock_mhz",))
    fast = source.read(device.uuid, Lane.FAST, ("memory_used_bytes",))
    processes = source.read_process_list(device.uuid, utilization=True)
    return _Seen(device, slow.sm_clock_lock_mhz, fast.memory_used_bytes, processes)


def _of_uuid(seen: dict[str, _Seen], uuid: str | None) -> _Seen:
    """Return the GPU that the probes used; CUDA names an instance of MIG by the same digits, and another prefix."""
    if uuid is not None:
        for each, found in seen.items():
            if each.partition("-")[2].lower() == uuid.partition("-")[2].lower():
                return found
        raise GpuwatchError(f"selftest: expected the driver to list the GPU that CUDA uses, {uuid}, found {', '.join(seen)}")
    if not seen:
        raise GpuwatchError("selftest: expected a GPU, found none; `gpuwatch doctor` says more")
    return next(iter(seen.values()))


def _neighbours(seen: _Seen, verdicts: list[Verdict], *, is_simulated: bool) -> Iterator[str]:
    if not is_simulated:  # where the scene's own process is listed, too
        for process in seen.process_list.processes:
            yield f"another process is on this GPU: {_words(process)}"
        hidden_bytes = _hidden_bytes(seen)
        if hidden_bytes:
            yield f"{hidden_bytes / 2**20:.0f} MiB are in use, and no process is listed: another container's, or a leak"
    found = {hazard.rule: hazard.says for each in verdicts for hazard in each.hazards if hazard.rule.startswith("contention-")}
    found.pop("contention-self", None)
    yield from found.values()


def _hidden_bytes(seen: _Seen) -> int:
    """Return the memory in use beyond the driver's reserve where no process is listed; 0 for what a driver may need itself."""
    used, reserved, whole = seen.used_bytes, seen.device.memory_reserved_bytes, seen.device.memory_total_bytes
    if seen.process_list.processes or used is None or reserved is None or whole is None:
        return 0
    return used - reserved if used - reserved > _HIDDEN_MEMORY_RATIO * whole else 0


def _words(process: Process) -> str:
    return f"{process.name or 'unnamed'} (pid {process.pid})"


def _disturbances(verdicts: list[Verdict]) -> Iterator[str]:
    """Yield what makes a probe's own window doubtful, besides neighbours and the power cap, which probes are there to meet."""
    for verdict in verdicts:
        for hazard in verdict.hazards:
            if hazard.severity in ("flag", "reject") and not hazard.rule.startswith("contention-"):
                yield f"{verdict.label or 'probe'}: {hazard.rule}: {hazard.says}"
        if verdict.why:
            yield f"{verdict.label or 'probe'}: {verdict.why}"


def plain_decision(decision: QualifyDecision) -> dict[str, Any]:
    """Return the decision as plain data for JSON."""
    return {
        "comparable": decision.comparable.value,
        "reasons": list(decision.reasons),
        "reference_cards_count": decision.cards_count,
        "facts": [
            {"name": each.name, "here": each.here, "reference": each.reference, "reach": each.reach.name.lower()}
            for each in decision.facts
        ],
        "probes": [
            {
                "name": each.probe.name,
                "reach": each.probe.reach.name.lower(),
                "here": each.here,
                "reference": each.reference,
                "cards_count": each.cards_count,
                "ratio": each.ratio,
                "low_ratio": each.low_ratio,
                "high_ratio": each.high_ratio,
                "band_ratio": each.band_ratio,
                "likeness": each.likeness.value,
            }
            for each in decision.probes
        ],
    }


def lines(card: Qualification, decision: QualifyDecision) -> Iterator[str]:
    """Yield the answer for people: the instance, the probes, the differences, what follows."""
    yield from _instance(card)
    yield ""
    yield from _probes(card, decision)
    if decision.facts:
        yield ""
        yield "differs from most reference cards:"
        yield from (f"  {each.name}: {each.here}, reference {each.reference}{_reach(each)}" for each in decision.facts)
    yield ""
    yield f"{_ANSWERS[decision.comparable]} ({output.counted(decision.cards_count, 'card')})"
    yield from (f"  - {reason}" for reason in decision.reasons)


def _reach(fact: FactDifference) -> str:
    return "" if fact.reach.name == "NONE" else f" (reaches {fact.reach.value})"


def _instance(card: Qualification) -> Iterator[str]:
    device = card.device
    simulated = "SIMULATED  " if device.simulated else ""
    yield f"{simulated}{device.name}, {device.uuid}"
    limits = f"power limit {_amount(device.power_limit_w, 'W')} of {_amount(device.power_limit_default_w, 'W')}"
    lock = f"SM clock at most {_amount(device.sm_clock_max_mhz, 'MHz')}, lock {_amount(card.sm_clock_lock_mhz, 'MHz', 'none')}"
    yield f"  {limits}; {lock}"
    modes = (("ECC", device.ecc_mode), ("MIG", device.mig_mode), ("persistence mode", device.persistence_mode))
    words = ", ".join(f"{name} {'not known' if mode is None else 'on' if mode else 'off'}" for name, mode in modes)
    yield f"  driver {device.driver_version}; {words}; virtualisation {device.virtualization or 'not known'}"
    if card.host:
        yield f"  host: {', '.join(f'{name} {value}' for name, value in card.host.items())}"
    if card.software:
        yield f"  software: {', '.join(f'{name} {value}' for name, value in card.software.items())}"
    yield f"  neighbours: {'; '.join(card.neighbours) or f'none seen (process list of the {card.visibility.value})'}"
    if card.stamps is not None:
        apart = "" if card.stamps.apart_ratio is None else f", their clocks within {card.stamps.apart_ratio:.2%}"
        yield f"  stamps: {card.stamps.seen_count} of {card.stamps.sms_count} SMs{apart}"


def _amount(value: float | None, unit: str, otherwise: str = "not known") -> str:
    return otherwise if value is None else f"{value:g} {unit}"


def _probes(card: Qualification, decision: QualifyDecision) -> Iterator[str]:
    compared = {each.probe.name: each for each in decision.probes}
    rows = []
    for probe in qualify_decision.PROBES:
        amount = card.amounts.get(probe.name)
        if amount is None:
            rows.append((probe.title, "not measured", "", "", "", card.missing.get(probe.name, "")))
            continue
        half = "" if amount.half_ratio is None else f" ±{amount.half_ratio:.2%}"
        at = f" at {amount.clock_mhz:.0f} MHz" if amount.clock_mhz and probe.name == "gemm_at_clock_s" else ""
        here = f"{_value(probe.name, amount.value)}{half}{at}"
        found = compared.get(probe.name)
        rows.append((probe.title, here, *(("", "", "", "") if found is None else _difference(found))))
    yield output.table(rows, header=("PROBE", "HERE", "REFERENCE", "DIFFERENCE (95 %)", "CARDS DIFFER BY", ""))


def _difference(found: ProbeDifference) -> tuple[str, str, str, str]:
    likeness = found.likeness.value if found.likeness is not Likeness.DIFFERENT else found.speed.upper()
    interval = f"{found.ratio:+.2%} ({found.low_ratio:+.2%} to {found.high_ratio:+.2%})"
    return _value(found.probe.name, found.reference), interval, f"±{found.band_ratio:.2%}", likeness


def _value(name: str, value: float) -> str:
    if name.endswith("_mhz"):
        return f"{value:.1f} MHz"
    return f"{value * 1e6:.2f} µs" if value < 1e-3 else f"{value * 1e3:.4f} ms"
