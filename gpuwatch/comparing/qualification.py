"""A qualification of one machine's GPU: identity, probe results, and reference files of several cards."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import numpy as np

from annotate.budget import Group, Number
from annotate.evidence import Device, Values, Visibility
from annotate.stats.intervals import ratio_interval
from annotate.verdict import Verdict
from gpuwatch import atomic_write
from gpuwatch.errors import UsageError

SCHEMA = 1
_KEY = "card-"  # prefix of the digest of a UUID
SHIPPED = Path(__file__).parent / "references"
_BLOCKS_COUNT = 20  # half a second of GEMM per block: the power controller swings within a second
_BETWEEN_WINDOWS_RATIO = 0.0006  # as annotate.derived.measured_numbers.LEAST_RATIO
_MOST_BYTES = 16 << 20  # room for some thousand cards


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """A measured number, and half of the number's 95 % interval as a ratio, None if unknown.

    ``clock_mhz`` and ``beta`` belong to a time at one clock: the clock, and the exponent of the time's dependence on it.
    """

    value: float
    half_ratio: float | None
    clock_mhz: float | None = None
    beta: float | None = None

    @property
    def is_usable(self) -> bool:
        """Return True for a positive number with finite values; a file may hold anything."""
        known = (self.value, *(each for each in (self.half_ratio, self.clock_mhz, self.beta) if each is not None))
        return all(map(math.isfinite, known)) and self.value > 0.0 and (self.half_ratio or 0.0) >= 0.0

    @staticmethod
    def of(verdict: Verdict, number: Number, beta: float | None = None) -> Amount | None:
        """Return a number of a verdict with its repeatability plus the bounds of notes; None if the verdict lacks the number.

        Bounds of hazards that flag or reject are left out, because the qualification names these hazards.  A low memory clock,
        for example, is this card's speed, not an error.  The timer's overhead is equal for every card, and is left out too.
        """
        found = verdict.budget.number(number) if verdict.budget is not None else None
        if found is None or found.value is None:
            return None
        named = {hazard.rule for hazard in verdict.hazards if hazard.severity in ("flag", "reject")}
        bounds = tuple(each for each in found.bounds if each.rule not in named and each.group is not Group.TIMER)
        ratios = [found.repeatability.ratio, *(bound.ratio for bound in replace(found, bounds=bounds).counted)]
        known = [ratio for ratio in ratios if ratio is not None]
        half_ratio = math.fsum(known) if len(known) == len(ratios) else None
        return Amount(value=found.value, half_ratio=half_ratio, clock_mhz=found.clock_mhz, beta=beta)

    def moved_to(self, clock_mhz: float | None) -> Amount:
        """Return a time at another clock by its fitted exponent; unchanged if a clock or the exponent is unknown."""
        if self.clock_mhz is None or self.beta is None or clock_mhz is None:
            return self
        return replace(self, value=self.value * (self.clock_mhz / clock_mhz) ** self.beta, clock_mhz=clock_mhz)

    @staticmethod
    def of_series(values: Values | None) -> Amount | None:
        """Return the median of a time series, with an interval from 20 blocks; None for fewer than 20 values."""
        known = np.empty(0) if values is None else values[np.isfinite(values)]
        if len(known) < _BLOCKS_COUNT:
            return None
        interval = ratio_interval(np.log([np.median(block) for block in np.array_split(known, _BLOCKS_COUNT)]))
        half_ratio = 0.5 * float(interval.high - interval.low) + _BETWEEN_WINDOWS_RATIO
        return Amount(value=float(np.median(known)), half_ratio=half_ratio)


@dataclass(frozen=True, slots=True, kw_only=True)
class StampsSeen:
    """The SMs that wrote a stamp, and the widest difference between their clocks."""

    sms_count: int
    seen_count: int
    apart_ratio: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Qualification:
    """The qualification of one machine's GPU, as `gpuwatch selftest --qualify` measured it.

    ``amounts`` has the names of ``qualify_decision.PROBES`` as keys; ``missing`` gives the reason for each absent one.
    ``neighbours`` describes other work on the GPU in sentences.  ``faults`` are the other hazards that reject a probe's window.
    ``disturbances`` are the other hazards that flag a probe's window, and the evidence that a window lacks.
    """

    device: Device
    amounts: Mapping[str, Amount]
    missing: Mapping[str, str] = field(default_factory=dict)
    stamps: StampsSeen | None = None
    sm_clock_lock_mhz: int | None = None
    visibility: Visibility = Visibility.UNKNOWN
    neighbours: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    disturbances: tuple[str, ...] = ()
    software: Mapping[str, str] = field(default_factory=dict)
    host: Mapping[str, str] = field(default_factory=dict)
    measured_wall_s: float = 0.0
    took_s: float = 0.0

    @property
    def card_key(self) -> str:
        """Return a digest of the card's UUID."""
        return _key(self.device.uuid)

    def without_uuids(self) -> Qualification:
        """Return the qualification for a public reference, with digests in place of UUIDs."""
        parent = None if self.device.parent_uuid is None else _key(self.device.parent_uuid)
        return replace(self, device=replace(self.device, uuid=self.card_key, parent_uuid=parent))

    @property
    def is_clean(self) -> bool:
        """Return True if no fault, neighbour or disturbance affected the numbers."""
        return not (self.neighbours or self.faults or self.disturbances)

    def to_dict(self) -> dict[str, object]:
        """Return plain data for JSON."""
        data: dict[str, object] = msgspec.to_builtins(self)
        return data


def _key(uuid: str) -> str:
    return uuid if uuid.startswith(_KEY) else f"{_KEY}{hashlib.blake2b(uuid.lower().encode(), digest_size=8).hexdigest()}"


def read_cards(paths: Iterable[Path]) -> tuple[Qualification, ...]:
    """Read files and folders of references and of `selftest --qualify --json` results: each card once, its latest result.

    Raises UsageError: for a file that is neither or cannot be read, and for a folder without such files.
    """
    found: list[Qualification] = []
    for path in paths:
        files = sorted(path.glob("*.json")) if path.is_dir() else [path]
        if not files:
            raise UsageError(f"--reference: expected a file, or a folder with *.json, found none in {path}")
        for file in files:
            found += _cards_of(file)
    return tuple({each.card_key: each for each in sorted(found, key=lambda card: card.measured_wall_s)}.values())


def _cards_of(file: Path) -> list[Qualification]:
    if file.exists() and not file.is_file():  # reading a pipe would block
        raise UsageError(f"--reference: {file}: expected a regular file, found a folder, pipe or device")
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise ValueError(f"more than {_MOST_BYTES >> 20} MiB")
        data = json.loads(file.read_bytes(), parse_float=_finite, parse_constant=_finite)
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            raise ValueError(f"no JSON object of schema {SCHEMA}")
        cards = data.get("cards", [data.get("qualification")])
        found = msgspec.convert(cards, list[Qualification])
        if wrong := next((name for card in found for name, each in card.amounts.items() if not each.is_usable), None):
            raise ValueError(f"{wrong} is not a positive number")
    except OSError as error:
        raise UsageError(f"--reference: {file}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"--reference: {file}: expected a file of --save-reference or --qualify --json, found: {error}"
        ) from error
    return found


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text} is not a number")
    return number


def save_card(path: Path, card: Qualification) -> int:
    """Add a card to a reference file, in place of an earlier result of the same card; return the number of cards in the file.

    Raises UsageError: when the file holds other content, or cannot be read.

    Raises OSError: when the file cannot be written.
    """
    before = read_cards([path]) if path.exists() else ()
    cards = [*(each for each in before if each.card_key != card.card_key), card]
    text = json.dumps(
        {"schema": SCHEMA, "cards": [each.without_uuids().to_dict() for each in cards]}, indent=1, allow_nan=False
    )
    atomic_write.replace(path, f"{text}\n".encode(), mode=0o644)
    return len(cards)


def shipped_cards(model: str) -> tuple[Qualification, ...]:
    """Return the cards of this model that gpuwatch ships."""
    return tuple(card for card in read_cards(sorted(SHIPPED.glob("*.json"))) if card.device.name == model)


def same_model(cards: Sequence[Qualification], model: str) -> tuple[Qualification, ...]:
    """Return the cards of this model; without any, all cards, because then the model is a difference."""
    return tuple(card for card in cards if card.device.name == model) or tuple(cards)
