"""The meanings a user can give a number, and the evidence that each requires."""

from __future__ import annotations

from enum import StrEnum

from annotate.errors import UnknownNameError


class Claim(StrEnum):
    """The meaning a user gives a number; the judge reads the same signal differently under each.

    SUSTAINED is steady throughput as shipped: a steady power cap is normal, gaps are not.  BURST is latency with idle time
    before each call: gaps are meant, a cap is not.  FIXED_CLOCK is efficiency at one clock: any cap or drift spoils it.

    Example:
        >>> gpuwatch.Claim("fixed-clock") is gpuwatch.Claim.FIXED_CLOCK
        True
    """

    SUSTAINED = "sustained"  # steady throughput as shipped: a steady power cap is normal, gaps are not
    BURST = "burst"  # latency with idle before each call: gaps are meant, a cap is not
    FIXED_CLOCK = "fixed-clock"  # efficiency at one clock: any cap or drift spoils it

    @staticmethod
    def of(name: str) -> Claim:
        """Return the claim of this name.

        Args:
            name: sustained, burst or fixed-clock.

        Raises UnknownNameError: when there is no such claim; the message suggests the nearest.

        Example:
            >>> gpuwatch.Claim.of("burst").value
            'burst'
        """
        try:
            return Claim(name)
        except ValueError:
            raise UnknownNameError("claim", str(name), list(Claim)) from None


# Rules that must have been able to answer under every claim, else the window is unproven; the proofs require the rest.
REQUIRED = ("stale-daemon", "incomplete-body", "claimed-work")
