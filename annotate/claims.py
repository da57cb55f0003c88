"""The meanings a user can give a number, and the rules whose answer every meaning requires."""

from __future__ import annotations

from enum import StrEnum

from annotate.errors import UnknownNameError


class Claim(StrEnum):
    """The meaning that a user gives a number; the judge reads the same signal differently under each claim.

    SUSTAINED is steady throughput as shipped: a steady power cap is normal, gaps are not.  BURST is latency with idle time
    before each call: gaps are normal, a cap is not.  FIXED_CLOCK is efficiency at one clock: any cap or drift is a hazard.

    Raises ValueError: when ``Claim(name)`` names no claim; ``Claim.of(name)`` raises UnknownNameError instead.

    Example:
        >>> gpuwatch.Claim("fixed-clock") is gpuwatch.Claim.FIXED_CLOCK
        True
    """

    SUSTAINED = "sustained"
    BURST = "burst"
    FIXED_CLOCK = "fixed-clock"

    @staticmethod
    def of(name: str) -> Claim:
        """Return the claim of this name.

        Args:
            name: sustained, burst or fixed-clock.

        Raises UnknownNameError: when there is no such claim; the message suggests the nearest, or lists all.

        Example:
            >>> gpuwatch.Claim.of("burst").value
            'burst'
        """
        try:
            return Claim(name)
        except ValueError:
            raise UnknownNameError("claim", str(name), list(Claim)) from None


# Rules without whose answer no window is valid, under any claim; the proofs require further evidence.
REQUIRED = ("stale-daemon", "incomplete-body", "claimed-work")
