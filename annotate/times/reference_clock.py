"""The reference clock of a model, at which numbers of two people can be compared, and the spread between cards of the model.

A reference clock lies inside the range of clocks that boards of a model show under load.  The nearer a window's clock lies
to the reference clock, the less the error of the exponent counts.
"""

import math
from collections.abc import Mapping

# Keys are the driver's names of models; the longest key that a device's name begins with counts.
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
LEAST_MHZ, MOST_MHZ = 100.0, 10_000.0  # no SM works at a clock outside this range


def reference_clock_mhz(model: str | None, given_mhz: float | None = None) -> float | None:
    """Return the given clock, else the model's, or None for an unmeasured model.

    Raises ValueError: for a given clock outside 100 to 10 000 MHz.
    """
    if given_mhz is not None:
        if not LEAST_MHZ <= given_mhz <= MOST_MHZ:
            raise ValueError(f"expected a reference clock from {LEAST_MHZ:.0f} to {MOST_MHZ:.0f} MHz, found {given_mhz}")
        return float(given_mhz)
    return _of_model(REFERENCE_CLOCKS_MHZ, model)


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
