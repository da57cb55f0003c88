"""Ranges of the amounts that a user may set, declared in annotations: ``Annotated[Share, "why"]``."""

from dataclasses import dataclass
from typing import Annotated, TypeAlias, TypeGuard


@dataclass(frozen=True, slots=True)
class Range:
    """The smallest and the largest allowed amount, both included."""

    least: float = -1e300
    most: float = 1e300

    def holds(self, value: object) -> TypeGuard[float]:
        """Return True for a number in the range; booleans and NaN are outside every range."""
        return not isinstance(value, bool) and isinstance(value, int | float) and self.least <= value <= self.most

    def __str__(self) -> str:
        return f"{self.least:.12g} to {self.most:.12g}"


Share: TypeAlias = Annotated[float, Range(0.0, 1.0)]
PositiveShare: TypeAlias = Annotated[float, Range(1e-6, 1.0)]  # for a rule that a share of 0 would switch off
Factor: TypeAlias = Annotated[float, Range(0.1, 1000.0)]  # a multiple of a reference
Processors: TypeAlias = Annotated[float, Range(0.0, 1024.0)]  # 1 is the whole time of one CPU
Duration: TypeAlias = Annotated[float, Range(0.0, 3600.0)]  # seconds
Count: TypeAlias = Annotated[float, Range(0.0, 1e6)]
Refreshes: TypeAlias = Annotated[float, Range(1.0, 1000.0)]  # periods of the driver's page
Watts: TypeAlias = Annotated[float, Range(0.0, 1000.0)]
Bytes: TypeAlias = Annotated[float, Range(0.0, 1e12)]

TOLERANCE_RATIO = 0.01  # the specification's default
TOLERANCES = Range(0.0001, 0.2)  # no witness resolves 0.01 %; five times 20 % is the whole number
PRECISIONS = Range(0.0001, 0.5)
REFERENCE_CLOCKS = Range(100.0, 5000.0)  # MHz: no SM works at a clock outside
CARD_SPREADS = Range(0.0001, 0.3)  # GPUs of one model differ by up to 22 % (Sinha et al., SC 2022)
