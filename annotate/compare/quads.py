"""Balanced quads of blocks: ABBA or BAAB, the unit of an interleaved comparison."""

from dataclasses import dataclass

import numpy as np

from annotate.evidence import Values


@dataclass(frozen=True, slots=True)
class Quads:
    """The times of the blocks of whole quads, one row per quad, in the order they ran.

    The first column holds the pair in which ``a`` ran first, the second the pair in which ``b`` ran first.
    """

    a_s: Values
    b_s: Values

    def __len__(self) -> int:
        return len(self.a_s)

    @property
    def usable(self) -> "Quads":
        """Return the quads whose four times are finite and above zero."""
        times = np.hstack([self.a_s, self.b_s])
        kept = (np.isfinite(times) & (times > 0)).all(axis=1)
        return Quads(self.a_s[kept], self.b_s[kept])

    @property
    def log_ratios(self) -> Values:
        """Return the log ratio (b over a) of each pair without the effect of the pair's position, one row per quad.

        The effect of the position is half the median difference within a quad, for any mixture of blocks.
        """
        logs = np.log(self.b_s) - np.log(self.a_s)
        shift = 0.5 * float(np.median(logs[:, 0] - logs[:, 1])) if len(logs) else 0.0
        return np.asarray(logs - [shift, -shift])

    @property
    def centre_log(self) -> float:
        """Return the median log ratio of the pairs."""
        return float(np.median(self.log_ratios))
