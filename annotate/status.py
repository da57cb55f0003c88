"""The four statuses of a verdict, without the imports of a verdict: a starting daemon needs the statuses only."""

from __future__ import annotations

from enum import StrEnum


class Status(StrEnum):
    """The four statuses of a verdict, best first: VALID, UNPROVEN, FLAGGED, REJECTED.

    VALID: the number may be quoted.  UNPROVEN: required evidence is missing.  FLAGGED: a bound exceeds the tolerance, the
    repeatability exceeds a demanded precision, a proof is broken, or a finding counts at any size.  REJECTED: the number is off
    by more than five tolerances, or is not what it claims to be.

    Raises ValueError: when ``Status(name)`` names no status.

    Example:
        >>> gpuwatch.Status("valid") is gpuwatch.Status.VALID
        True
        >>> gpuwatch.Status.REJECTED.badness > gpuwatch.Status.FLAGGED.badness
        True
    """

    VALID = "valid"
    UNPROVEN = "unproven"
    FLAGGED = "flagged"
    REJECTED = "rejected"

    @property
    def badness(self) -> int:
        """Return the place among the statuses: 0 for valid, 3 for rejected."""
        return list(Status).index(self)
