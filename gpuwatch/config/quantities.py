"""Amounts with units ("50ms", "2GiB", "1 %"), converted exactly to and from the units of the code."""

import re
from collections.abc import Mapping
from decimal import Decimal

from annotate.times.reference_clock import ReferenceClock, checked_clock

_DURATIONS_NS: Mapping[str, int] = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "min": 60_000_000_000,
    "h": 3_600_000_000_000,
    "d": 86_400_000_000_000,
    "w": 604_800_000_000_000,
}
_SIZES_BYTES: Mapping[str, int] = {
    "B": 1,
    "kB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "TB": 1000**4,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
}
_AMOUNT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-zµ%]*)\s*\Z", re.ASCII)

_CLOCK = 'a clock such as "1410 MHz", or one per model such as "NVIDIA B200=1500 MHz, NVIDIA A100=1200 MHz"'
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?\s*\Z", re.ASCII)


class QuantityError(ValueError):
    """Text that is not the expected amount; the message names expected and found text, and the caller adds a name."""


def duration_ns(text: str) -> int:
    """Return a duration with its unit, such as ``50ms``, in ns.  Raises QuantityError: for other text."""
    return _scaled(text, _DURATIONS_NS, 'a duration with its unit, such as "50ms", "2.5s" or "24h"')


def lapse_ns(text: str) -> int:
    """Return a time distance like ``duration_ns``, but read a bare number as seconds and ``5m`` as minutes.

    Raises QuantityError: for other text.
    """
    word = text.strip()
    if _NUMBER.match(word.removesuffix("m")):
        word = f"{word}in" if word.endswith("m") else f"{word}s"
    return duration_ns(word)


def size_bytes(text: str) -> int:
    """Return a size with its unit, such as ``2GiB``, in bytes.  Raises QuantityError: for other text."""
    return _scaled(text, _SIZES_BYTES, 'a size with its unit, such as "64MiB" or "2GiB"')


def share_ratio(text: str) -> float:
    """Return a percentage with the percent sign, such as ``1 %``, as a ratio.  Raises QuantityError: for other text."""
    expected = 'a share of 0 to 100 % with its sign, such as "1 %"'
    amount, unit = _split(text, expected)
    if unit != "%" or amount > 100:
        raise QuantityError(f"expected {expected}, found {text!r}")
    return float(amount / 100)


def reference_clock(text: str) -> ReferenceClock:
    """Return a clock, such as ``1410 MHz``, or clocks by model, such as ``NVIDIA B200=1500, NVIDIA A100=1200``, in MHz.

    Raises QuantityError: for other text, a model that occurs twice, and a clock outside 100 to 5000 MHz.
    """
    by_model: dict[str, float] = {}
    for part in text.split(","):
        model, equals, clock = ("", "", part) if "=" not in part else part.rpartition("=")
        amount, unit = _split(clock, _CLOCK)
        if unit not in ("", "MHz") or bool(equals) != bool(model.strip()) or model.strip() in by_model:
            raise QuantityError(f"expected {_CLOCK}, found {text!r}")
        by_model[model.strip()] = float(amount)
    if len(by_model) > 1 and "" in by_model:
        raise QuantityError(f"expected {_CLOCK}, found {text!r}")
    try:
        return checked_clock(by_model.get("", by_model))
    except ValueError as error:
        raise QuantityError(str(error)) from error


def reference_clock_text(clock: ReferenceClock) -> str:
    """Write a clock or clocks by model as ``reference_clock`` reads them."""
    by_model = clock if isinstance(clock, Mapping) else {"": clock}
    return ", ".join(f"{model}{'=' if model else ''}{mhz:.12g} MHz" for model, mhz in by_model.items())


def duration_text(amount_ns: int) -> str:
    """Write a duration in the largest exact unit up to days: 1_500_000_000 is ``1500ms``, 90 s ``90s``, 120 s ``2min``."""
    return _text(amount_ns, {unit: size for unit, size in _DURATIONS_NS.items() if unit not in ("µs", "w")})


def size_text(amount_bytes: int) -> str:
    """Write a size in the largest exact binary unit: 2 * 2**30 is ``2GiB``, 1500 is ``1500B``."""
    return _text(amount_bytes, {unit: size for unit, size in _SIZES_BYTES.items() if "i" in unit or unit == "B"})


def share_text(ratio: float) -> str:
    percent = f"{Decimal(repr(ratio)) * 100:f}"
    return f"{percent.rstrip('0').rstrip('.') if '.' in percent else percent} %"


def _split(text: str, expected: str) -> tuple[Decimal, str]:
    match = _AMOUNT.match(text)
    if match is None:
        raise QuantityError(f"expected {expected}, found {text!r}")
    return Decimal(match[1]), match[2]


def _scaled(text: str, units: Mapping[str, int], expected: str) -> int:
    amount, unit = _split(text, expected)
    if not unit and amount:
        raise QuantityError(f"expected {expected}, found {text!r} without a unit")
    if unit and unit not in units:
        near = next((known for known in units if known.lower() == unit.lower()), None)
        hint = f"did you mean {near}?" if near else f"units are {', '.join(units)}"
        raise QuantityError(f"expected {expected}, found {text!r}: unknown unit {unit!r}, {hint}")
    scaled = amount * units.get(unit, 1)
    if scaled != int(scaled) or scaled >= 1 << 63:
        raise QuantityError(f"expected {expected}, found {text!r}, which is finer or larger than gpuwatch can store")
    return int(scaled)


def _text(amount: int, units: Mapping[str, int]) -> str:
    smallest = next(iter(units))
    for unit, size in reversed(list(units.items())):
        if amount and amount % size == 0:
            return f"{amount // size}{unit}"
    return f"{amount}{smallest}"
