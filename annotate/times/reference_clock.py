"""The reference clock of a model, at which numbers of two people can be compared, and the spread between cards of the model.

A reference clock lies inside the range of clocks that boards of a model show under load.  The nearer a window's clock lies
to the reference clock, the less the error of the exponent counts.
"""

import math
from collections.abc import Mapping
from typing import TypeAlias

from annotate.ranges import REFERENCE_CLOCKS

ReferenceClock: TypeAlias = float | Mapping[str, float]  # MHz, for all models or by model

# Keys are the driver's names of models; the longest key that a device's name begins with counts.  The setting
# `reference_clock` adds or replaces models (docs/concepts/one-clock.md); an entry here needs a measurement as its source.
#
# H200: capped kernels ran at clocks around 1500 MHz, where clean windows differed by at most 0.20 % (docs/RULE_TABLE.md).
REFERENCE_CLOCKS_MHZ = {"NVIDIA H200": 1500.0}

# The difference to allow for between two cards of the model in the median at one clock of the same kernel.
#
# H200: the largest difference on record, between two cards of one machine in GEMM 4096, at the middle of their clocks
# (docs/VALIDATION.md).  More cards may differ by more, hence the setting `card_spread`.
CARD_SPREADS_RATIO = {"NVIDIA H200": 0.0034}
# Fitted exponents of one kernel differ between cards by up to this, so the times of the cards move apart with the clock.
#
# H200: the exponents of a GEMM on five cards are 0.93 to 1.03.  At 1330 MHz the times of the cards differ by 0.25 %, at 1500
# MHz by 1.3 % (docs/COMPARE.md).
CARD_EXPONENTS = 0.1


def reference_clock_mhz(model: str | None, given: ReferenceClock | None = None) -> float | None:
    """Return the given clock of this model, else the table's, or None for an unmeasured model.

    Raises ValueError: as ``checked_clock``.
    """
    set_mhz = set_clock_mhz(model, given)
    return _of_model(REFERENCE_CLOCKS_MHZ, model) if set_mhz is None else set_mhz


def set_clock_mhz(model: str | None, given: ReferenceClock | None) -> float | None:
    """Return the given clock of this model, or None if none was given.  Raises ValueError: as ``checked_clock``."""
    checked = None if given is None else checked_clock(given)
    return _of_model(checked, model) if isinstance(checked, Mapping) else checked


def checked_clock(given: object) -> ReferenceClock:
    """Return a reference clock, or reference clocks by model, as floats.

    Raises ValueError: for another type, a table without models, and a clock outside 100 to 5000 MHz.
    """
    by_model = given if isinstance(given, Mapping) else {"": given}
    checked: dict[str, float] = {}
    for model, mhz in by_model.items():
        if not REFERENCE_CLOCKS.holds(mhz):
            of_model = f" of {model}" if model else ""
            raise ValueError(f"expected a reference clock{of_model} from {REFERENCE_CLOCKS} MHz, found {mhz!r}")
        checked[model] = float(mhz)
    if by_model is not given:
        return checked[""]
    if not checked or not all(isinstance(model, str) and model for model in checked):
        raise ValueError(f"expected a clock, or clocks by the driver's names of models, found {given!r}")
    return checked


def card_spread_ratio(model: str | None, given_ratio: float | None = None, *, moved: float = 0.0) -> float | None:
    """Return the given spread between cards, else the recorded spread of the model, or None for an unmeasured model.

    ``moved`` is the logarithm of the clock of the number over the clock at which the work ran; it widens a recorded spread.
    """
    if given_ratio is not None:
        return given_ratio
    found = _of_model(CARD_SPREADS_RATIO, model)
    return None if found is None else math.hypot(found, CARD_EXPONENTS * moved)


def _of_model(table: Mapping[str, float], model: str | None) -> float | None:
    names = [name for name in table if model is not None and (model == name or model.startswith(f"{name} "))]
    return table[max(names, key=len)] if names else None
