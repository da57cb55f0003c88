"""The command `gpuwatch selftest --qualify`: run the probes, compare with reference cards, and print the answer."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from annotate.output.report import plain
from gpuwatch.cli import output
from gpuwatch.cli.exit_codes import OF_COMPARABLE, Exit
from gpuwatch.comparing import qualify_decision
from gpuwatch.comparing.instance_facts import FactDifference, Reach
from gpuwatch.comparing.qualification import Qualification, read_cards, same_model, save_card, shipped_cards
from gpuwatch.comparing.qualify_decision import Comparable, Likeness, ProbeDifference, QualifyDecision
from gpuwatch.comparing.qualify_run import qualify
from gpuwatch.config.settings import Settings
from gpuwatch.errors import UsageError

_ANSWERS = {
    Comparable.YES: "COMPARABLE: numbers of this instance can be compared with numbers of the reference cards",
    Comparable.PARTLY: "PARTLY COMPARABLE: only numbers that the differences below do not change can be compared",
    Comparable.NO: "NOT COMPARABLE: numbers of this instance cannot be compared with numbers of the reference cards",
    Comparable.UNKNOWN: "UNKNOWN: found no difference that changes numbers, but a probe was disturbed, unclear or not compared",
}


_ALONE = _ANSWERS | {  # without reference cards
    Comparable.NO: "NOT COMPARABLE: the findings below change the numbers of this instance",
    Comparable.UNKNOWN: "UNKNOWN: no reference card of this model is available to compare with",
}


@dataclass(frozen=True, slots=True)
class QualifyOptions:
    """The values of --qualify, --reference and --save-reference."""

    qualify: bool
    reference: tuple[str, ...]
    save_reference: str | None

    def check(self, *, is_otherwise: bool) -> None:
        """Check the options.

        Raises UsageError: for contradicting options, an unreadable reference or a missing folder.
        """
        given = {"--reference": self.reference, "--save-reference": self.save_reference}
        for name, value in given.items():
            if value and not self.qualify:
                raise UsageError(f"{name}: expected --qualify with it, found none")
        if self.qualify and is_otherwise:
            raise UsageError("--qualify: expected no --seconds or --show with it, found one; they are for the noise floor")
        if self.save_reference is not None:
            path = Path(self.save_reference)
            if path.exists():
                read_cards([path])
            elif not path.absolute().parent.is_dir():
                raise UsageError(f"--save-reference: expected a folder {path.absolute().parent}, found none")


def run(settings: Settings, options: QualifyOptions, *, as_json: bool) -> Exit:
    """Qualify this machine's GPU, print the answer, and return the exit code.

    Raises UsageError: for an unreadable reference, and for a recording as the source.
    Raises GpuwatchError: when no GPU exists or is usable.
    Raises OSError: when the reference cannot be written.
    """
    given = read_cards(Path(each) for each in options.reference) if options.reference else None
    card = qualify(settings, output.say)
    reference = shipped_cards(card.device.name) if given is None else same_model(given, card.device.name)
    decision = qualify_decision.decide(card, reference, settings.card_spread_ratio or None)
    saved = "" if options.save_reference is None else _save(options.save_reference, card)
    if as_json:
        output.emit_json({"qualification": card.to_dict(), "decision": plain_decision(decision)})
        if saved:
            output.say(saved)
    else:
        output.emit("\n".join(lines(card, decision, saved)))
    return OF_COMPARABLE[decision.comparable]


def _save(path: str, card: Qualification) -> str:
    """Add the card to the reference file, unless the probes were disturbed.  Return a line about the result."""
    if not card.is_clean:
        return f"{plain(path)} was not changed: the probes were disturbed; repeat without the disturbance"
    count = output.counted(save_card(Path(path), card), "card")
    return f"{plain(path)} now holds {count}; to compare: gpuwatch selftest --qualify --reference {shlex.quote(plain(path))}"


def plain_decision(decision: QualifyDecision) -> dict[str, Any]:
    """Return the decision as plain data for JSON."""
    return {
        "comparable": decision.comparable.value,
        "reasons": list(decision.reasons),
        "reference_cards_count": decision.cards_count,
        "reference_is_own": decision.is_own,
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


def lines(card: Qualification, decision: QualifyDecision, saved: str = "") -> Iterator[str]:
    """Yield the lines of the answer: the instance, the probes, the differences, the conclusion, the saved file or advice."""
    yield from _instance(card)
    yield ""
    yield from _probes(card, decision)
    if decision.facts:
        yield ""
        yield "differs from most reference cards:"
        yield from (f"  {each.name}: {each.here}, reference {each.reference}{_reach(each)}" for each in decision.facts)
    yield ""
    whose = "this card's own earlier result" if decision.is_own else output.counted(decision.cards_count, "reference card")
    answer = _ANSWERS[decision.comparable] if decision.cards_count else _ALONE[decision.comparable]
    yield f"{answer} ({whose})"
    yield from (f"  - {reason}" for reason in decision.reasons)
    if saved:
        yield f"  {saved}"
    elif decision.cards_count == 0:
        yield "  to make this card a reference: --save-reference FILE"


def _reach(fact: FactDifference) -> str:
    return "" if fact.reach is Reach.NONE else f" (affects {fact.reach.value})"


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
    likeness = found.speed.upper() if found.likeness is Likeness.DIFFERENT else found.likeness.value
    return _value(found.probe.name, found.reference), found.interval, f"±{found.band_ratio:.2%}", likeness


def _value(name: str, value: float) -> str:
    if name.endswith("_mhz"):
        return f"{value:.1f} MHz"
    return f"{value * 1e6:.2f} µs" if value < 1e-3 else f"{value * 1e3:.4f} ms"
