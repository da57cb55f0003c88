"""The clock at which a model's number at one clock is stated, so that two people's numbers can be compared.

A reference clock lies inside the range that boards of a model show under load, whatever the kernel: the nearer a window's
own clock lies to it, the less the exponent's error counts.
"""

# Models are named as the driver names them: the longest name that a device's name begins with counts.
#
# H200: capped kernels ran at 1275 MHz (GEMM 16384) to 1742 MHz (attention), whose geometric middle is 1490 MHz.  Between
# two clean windows the number at one clock differs by at most 0.20 % at 1500 MHz, 0.31 % at 1400 and 0.29 % at 1600
# (15 pairs, GEMM 4096 and attention, driver 580.159.04, 2026-11-22).
REFERENCE_CLOCKS_MHZ = {"NVIDIA H200": 1500.0}
_LEAST_MHZ, _MOST_MHZ = 100.0, 10_000.0


def reference_clock_mhz(model: str | None, given_mhz: float | None = None) -> float | None:
    """Return the given clock, else that of the model; None for a model nobody measured.

    Raises ValueError: for a given clock that no SM has.
    """
    if given_mhz is not None:
        if not _LEAST_MHZ <= given_mhz <= _MOST_MHZ:
            raise ValueError(f"expected a reference clock from {_LEAST_MHZ:.0f} to {_MOST_MHZ:.0f} MHz, found {given_mhz}")
        return float(given_mhz)
    names = [name for name in REFERENCE_CLOCKS_MHZ if model is not None and (model == name or model.startswith(f"{name} "))]
    return REFERENCE_CLOCKS_MHZ[max(names, key=len)] if names else None
