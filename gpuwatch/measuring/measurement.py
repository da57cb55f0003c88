"""The result of bench(): every figure of one benchmark, with the verdict that says whether to believe them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from annotate.verdict import Status
from gpuwatch.errors import RejectedError
from gpuwatch.measuring import render
from gpuwatch.measuring.figures import RateFigures
from gpuwatch.measuring.to_dict import to_dict


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measurement(RateFigures):
    """A benchmark's figures, for people, programs and files.

    The figures are those of the attempt that counts: the last valid one, else the last, and never the fastest.
    """

    def raise_for_verdict(self) -> None:
        """Raises RejectedError: when the verdict is rejected."""
        if self.verdict.status is Status.REJECTED:
            raise RejectedError(self.verdict)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON; the schema is ``docs/schemas/measurement.json``."""
        return to_dict(self)

    def __str__(self) -> str:
        return render.text(self)

    def _repr_html_(self) -> str:
        return render.html(self)
