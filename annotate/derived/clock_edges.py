"""The uncertainty of the times at which an unstamped clock changed its level: one refresh of the driver's gauge each."""

from collections.abc import Sequence

import numpy as np

from annotate.derived.clock_blocks import ClockBlocks
from annotate.evidence import Evidence
from annotate.stats.change_points import SeriesLevel

_BLURRED_COUNT = 2  # a level of at most this many blocks is a mean over its edges


def edges_ratio(evidence: Evidence, blocks: ClockBlocks, levels: Sequence[SeriesLevel]) -> float:
    """Return the share of the work that the edges of short levels can hide, a refresh each; 0 for stamps or a single level.

    For longer levels, early and late edges cancel.
    """
    window = evidence.window
    if blocks.stamped_ratio >= 0.5 or len(levels) < 2 or window.length_ns <= 0:
        return 0.0
    at_ns, mhz = blocks.at_ns[blocks.known], blocks.mhz[blocks.known]
    level = np.empty(len(mhz), np.intp)
    for number, each in enumerate(levels):
        level[each.places] = number
    means = np.exp([each.mean for each in levels])
    edges = np.flatnonzero(np.diff(level))
    short = np.array([len(each.places) <= _BLURRED_COUNT for each in levels])
    blurred = [int(edge) for edge in edges if short[level[edge]] or short[level[edge + 1]]]
    depth_mhz = sum(_shown_range_mhz(evidence, blocks, int(at_ns[edge + 1])) for edge in blurred)
    refresh_ns = evidence.trace.refresh_of_ns("sm_clock_mhz")
    return min(1.0, depth_mhz / float(means.max()) * refresh_ns / window.length_ns)


def _shown_range_mhz(evidence: Evidence, blocks: ClockBlocks, edge_ns: int) -> float:
    reach_ns = _BLURRED_COUNT * blocks.width_ns
    begin_ns, end_ns = max(edge_ns - reach_ns, evidence.window.begin_ns), min(edge_ns + reach_ns, evidence.window.end_ns)
    shown = evidence.trace.within("sm_clock_mhz", begin_ns, end_ns).observed.values
    shown = shown[shown > 0.0]
    return blocks.scale * float(shown.max() - shown.min()) if len(shown) else 0.0
