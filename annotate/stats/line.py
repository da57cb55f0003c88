"""A robust straight line through points with outliers, and the error of its slope.

The points are in the order of time, and adjacent points may be correlated.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from annotate.evidence import Values
from annotate.stats.robust import autocorrelations, centre, spread

# Huber's constant: 95 % of the efficiency of least squares for normal errors.
_HUBER_SD = 1.345


@dataclass(frozen=True, slots=True)
class FittedLine:
    """A line and the fitted points."""

    x: Values
    y: Values
    slope: float
    level: float

    def at(self, x: Values) -> Values:
        return self.level + self.slope * x

    @property
    def residuals(self) -> Values:
        return self.y - self.at(self.x)

    @property
    def r(self) -> float:
        """Return the correlation of the points; zero if x or y is constant."""
        return float(np.corrcoef(self.x, self.y)[0, 1]) if self.x.std() and self.y.std() else 0.0

    def slope_error(
        self,
        *,
        confidence: float = 0.95,
        batches_count: int = 20,
        least_count: Annotated[int, "fewer batches are too few, however long"] = 5,
        correlation: Annotated[float, "batches that correlate with the next one by more are made twice as long"] = 0.3,
    ) -> float | None:
        """Return half the width of the slope's interval, by a jackknife that leaves out one batch of adjacent values at a time.

        Return None if one batch alone decides the slope.

        Source: Künsch, Annals of Statistics 17 (1989) 1217-1241.
        """
        from scipy.special import stdtrit

        residuals = self.residuals
        weights = np.minimum(1.0, _HUBER_SD * spread(residuals, floor=1e-9) / np.maximum(np.abs(residuals), 1e-12))
        x, y = self.x - self.x.mean(), self.y - self.y.mean()
        terms = weights[:, np.newaxis] * np.column_stack([np.ones_like(x), x, y, x * x, x * y, residuals * x])
        count = batches_count
        while True:
            edges = np.linspace(0, len(x), count + 1).astype(np.int64)[:-1]
            sums = np.add.reduceat(terms, edges, axis=0)
            # The last column is the influence of each batch on the slope.
            if count < 2 * least_count or autocorrelations(sums[:, 5])[1] <= correlation:
                break
            count //= 2
        weight, x_, y_, xx, xy, _ = (sums.sum(axis=0) - sums).T
        determinant = weight * xx - x_**2
        if (determinant <= 1e-9 * weight * xx).any():
            return None
        slopes = (weight * xy - x_ * y_) / determinant
        variance = (count - 1) / count * float(np.square(slopes - slopes.mean()).sum())
        return float(stdtrit(count - 1, 0.5 + 0.5 * confidence) * np.sqrt(variance))


def robust_line(x: Values, y: Values, *, high_sd: float, floor: float) -> FittedLine:
    """Fit Huber's line, without points more than ``high_sd`` robust standard deviations (at least ``floor`` each) above it.

    Source: Huber, Annals of Mathematical Statistics 35 (1964) 73-101.
    """
    line, before = _huber(x, y), np.ones(len(x), np.bool_)
    for _ in range(2):
        kept = y - line.at(x) <= high_sd * spread(line.residuals, floor=floor)
        if (kept == before).all():  # the same points have the same line
            break
        line, before = _huber(x[kept], y[kept]), kept
    return line


def _huber(x: Values, y: Values) -> FittedLine:
    from scipy.optimize import least_squares

    middle_x, middle_y = centre(x), centre(y)
    design = np.column_stack([x - middle_x, np.ones_like(x)])
    about = y - middle_y
    start = np.linalg.lstsq(design, about)[0]
    # The residuals of an exact line have no scale, hence the floor.
    scale = _HUBER_SD * spread(about - design @ start, floor=1e-9)

    def residuals(line: Values) -> Values:
        return np.asarray(design @ line - about, np.float64)

    def slopes(_: Values) -> Values:
        return design

    line = least_squares(residuals, start, jac=slopes, loss="huber", f_scale=scale, x_scale="jac").x
    slope = float(line[0])
    return FittedLine(x, y, slope, middle_y + float(line[1]) - slope * middle_x)
