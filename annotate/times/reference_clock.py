"""The clock at which a model's number at one clock is stated, so that two people's numbers can be compared, and how far cards
of the model differ there.

A reference clock lies inside the range that boards of a model show under load with any kernel: the nearer a window's own
clock lies to it, the less the exponent's error counts.
"""

import math
from collections.abc import Mapping

# Models are named as the driver names them: the longest name that a device's name begins with counts.
#
# H200: capped kernels ran at 1275 MHz (GEMM 16384) to 1742 MHz (attention), whose geometric middle is 1490 MHz.  Between
# two clean windows the number at one clock differs by at most 0.20 % at 1500 MHz, 0.31 % at 1400 and 0.29 % at 1600
# (15 pairs, GEMM 4096 and attention, driver 580.159.04, 2026-11-22).
REFERENCE_CLOCKS_MHZ = {"NVIDIA H200": 1500.0}

# The difference to allow for between two cards of the model in the median at one clock of the same kernel.
#
# H200: the largest difference on record, of two cards of one machine: 0.34 % (0.31 to 0.39) in GEMM 4096, at the middle of their
# clocks (docs/VALIDATION.md, "instances", 2026-11-22).  Three other cards, two processes each, differed by 0.13 % in a GEMM,
# 0.12 % in attention and 0.29 % in a convolution.  More cards may differ by more, hence the setting `card_spread`.
CARD_SPREADS_RATIO = {"NVIDIA H200": 0.0034}
# Fitted exponents of the same kernel differ between cards by up to this, so that its times move apart with the clock.
#
# H200: GEMM 8192 on five cards, at 1317 to 1342 MHz: 0.93 to 1.03.  At 1330 MHz their times lie 0.25 % apart, at 1500 MHz 1.3 %
# (docs/FLEET.md, 2026-11-23).
CARD_EXPONENTS = 0.1
LEAST_MHZ, MOST_MHZ = 100.0, 10_000.0  # of any SM


def reference_clock_mhz(model: str | None, given_mhz: float | None = None) -> float | None:
    """Return the given clock, else that of the model; None for an unmeasured model.

    Raises ValueError: for a given clock that no SM has.
    """
    if given_mhz is not None:
        if not LEAST_MHZ <= given_mhz <= MOST_MHZ:
            raise ValueError(f"expected a reference clock from {LEAST_MHZ:.0f} to {MOST_MHZ:.0f} MHz, found {given_mhz}")
        return float(given_mhz)
    return _of_model(REFERENCE_CLOCKS_MHZ, model)


def card_spread_ratio(model: str | None, given_ratio: float | None = None, *, moved: float = 0.0) -> float | None:
    """Return the given spread between cards, else that on record for the model; None for an unmeasured model.

    ``moved`` is the logarithm of the ratio of two clocks: the one that the number stands at, and the one it ran at.
    """
    if given_ratio is not None:
        return given_ratio
    found = _of_model(CARD_SPREADS_RATIO, model)
    return None if found is None else math.hypot(found, CARD_EXPONENTS * moved)


def _of_model(table: Mapping[str, float], model: str | None) -> float | None:
    names = [name for name in table if model is not None and (model == name or model.startswith(f"{name} "))]
    return table[max(names, key=len)] if names else None
