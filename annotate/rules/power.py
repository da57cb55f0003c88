"""Rules about power: the power limit, sync boost, and windows too short for power readings."""

from collections.abc import Mapping
from typing import Annotated

import numpy as np
import numpy.typing as npt

from annotate.case import Case
from annotate.claims import Claim
from annotate.derived.clock_blocks import ClockBlocks
from annotate.derived.held import by_bits, by_counter, power_cap, running
from annotate.derived.held_bounds import clocks_beside, sync_boost_bounds
from annotate.evidence import Evidence, Fact, Reason, Times
from annotate.ranges import Count, Refreshes, Share
from annotate.rule import Answer, Clear, Found, Rule, RuleKind, Unobserved, rule
from annotate.stats.robust import centre

# The driver's average power (field 185, and nvmlDeviceGetPowerUsage on current boards) is a mean over this time.
_AVERAGE_S = 1.0
_THROUGHOUT_RATIO = 0.98  # above it the sentence prints no share: the counter's error is 2 %
_MOSTLY_RATIO = 0.5  # share of stamped blocks above which the clock counts as true; threshold of the 0/1 cap series


@rule(
    "power-limited",
    kind=RuleKind.LABEL,
    says="power-capped{share}{figures}",
    remedy="Quote the number with its clock and the power limit, or lock a clock that the board can hold.",
)
def power_limited(
    case: Case,
    *,
    free_ratio: Annotated[Share, "a cap for less time has an effect too small to report"] = 0.02,
) -> Answer:
    """Finds windows in which the driver lowered the clock to stay within the board's power limit.

    Why it matters:
        A 700 W board is usually in this state.  A bf16 matrix product in a loop is capped 97-100 % of the time, runs 26-30 %
        below the maximum clock and takes 16-21 % longer than in a burst.  The number is honest if quoted with its clock and
        power.  Under ``fixed-clock`` capped time breaks the proof that conditions held.

    Limits of detection:
        The effect of the clock on this work: the time of a copy does not follow the clock.  The true clock, without stamps:
        the driver's clock reads 8-12 % above the true mean under a cap.  Caps below the limit: products of zeros are capped
        at 415 W of 700 W.

    Remedy:
        Quote the number with its clock and its power limit.  For a number at one clock, lock a clock that the board can hold
        for this work, about 5 % below the capped mean.

    Source:
        The driver's violation time at the window's edges, else its power-cap counter, refreshed every 100 ms, else the share
        of sampled clock event reasons.  ``error_ratio`` is the resulting error.  Clock and power are those while the cap
        held: the stamped clock (``true``) or the driver's, and the driver's 20 ms power record or its gauge.  Figures: H200 at
        700 W, driver 580.159.04.
    """
    evidence = case.evidence
    held = power_cap(evidence)
    if held is None:
        return Unobserved(evidence.absence or "time under the power cap was not observed")
    facts: dict[str, Fact] = {
        "capped_ratio": held.ratio,
        "error_ratio": held.error_ratio,
        "capped_s": held.ratio * evidence.window.length_s,
        "length_s": evidence.window.length_s,
        "by": held.by,
    }
    if held.ratio <= free_ratio:
        return Clear(facts)
    throughout = held.ratio >= _THROUGHOUT_RATIO
    clock_mhz, is_true = _clock_while_capped(evidence, case.blocks, throughout=throughout)
    power_w = _power_while_capped(evidence, throughout=throughout)
    most_mhz = evidence.device.sm_clock_max_mhz if evidence.device else None
    whose = "true" if is_true else "by the driver's clock"
    figures = [f"{clock_mhz:.0f} MHz {whose}"] if clock_mhz is not None else []
    figures += [f"{power_w:.0f} W"] if power_w is not None else []
    facts |= {
        "share": "" if throughout else f" for {held.ratio:.0%} of the time",
        "figures": f": {', '.join(figures)}" if figures else "",
        "clock_mhz": clock_mhz,
        "by_stamps": is_true,
        "of_maximum_ratio": clock_mhz / most_mhz if clock_mhz is not None and most_mhz else None,
        "power_w": power_w,
    }
    return Found(facts=facts)


@rule(
    "sync-boost-limited",
    kind=RuleKind.BIAS,
    says="for {limited_s:.2f} of {length_s:.2f} s the clock followed the slowest GPU of a boost group{at}",
    remedy="Take this GPU out of its sync boost group, or measure the group as one.",
)
def sync_boost_limited(case: Case) -> Answer:
    """Finds windows in which this GPU's clock was held to that of another GPU.

    Why it matters:
        In a sync boost group every GPU runs at the clock of the slowest, so this number depends on another board's load and
        temperature.

    Limits of detection:
        The GPU that set the clock, and the clock without the group: the bound assumes the board's highest clock, so it never
        rejects.

    Remedy:
        Take the GPU out of the group (``dcgmi config``), or measure the whole group under one load.

    Source:
        The driver's sync-boost counter, else the clock event reason of that name.
    """
    evidence = case.evidence
    held = by_counter(evidence, "sync_boost_ns") or by_bits(evidence, Reason.SYNC_BOOST)
    if held is None:
        return Unobserved(evidence.absence or "neither sync-boost time nor event reasons were observed for long enough")
    if not held.ratio:
        return Clear({"limited_s": 0.0, "by": held.by})
    held_mhz, _ = clocks_beside(evidence, Reason.SYNC_BOOST)
    facts: dict[str, Fact] = {
        "limited_s": held.ratio * evidence.window.length_s,
        "length_s": evidence.window.length_s,
        "by": held.by,
        "held_mhz": held_mhz,
        "at": f", at {held_mhz:.0f} MHz" if held_mhz is not None else "",
    }
    return Found(facts=facts, bounds=sync_boost_bounds(evidence, case.beta))


@rule(
    "power-reading-stale",
    kind=RuleKind.LABEL,
    says="{window_s:.3g} s are too short to quote power or energy",
    remedy="Repeat the work for {needed_s:.3g} s or more to quote its power or energy.",
)
def power_reading_stale(
    evidence: Evidence,
    claim: Claim,
    *,
    samples_count: Annotated[Count, "five samples of the 20 ms record are 100 ms; shorter energies are unreliable"] = 5.0,
    refreshes_count: Annotated[Refreshes, "each edge may be a refresh off: with ten, a mean is within a fifth"] = 10.0,
    averages_count: Annotated[Count, "the first second of a trailing mean still covers the time before"] = 2.0,
) -> Answer:
    """Finds windows too short for the power and energy readings of their sensors.

    Why it matters:
        The usual power reading is a mean over the second before: in a window of 50 ms it is the power of earlier work.
        Energies taken that way were 35 % off on average and 65 % at worst (arXiv 2312.02741).

    Limits of detection:
        The sensor's own sampling: on some boards it measures only a quarter of the time.  The rule judges only power and
        energy, not the times.

    Remedy:
        Put more iterations of the same work into the window.

    Source:
        The finest power seen in the window: the driver's dense record (20 ms apart on an H200), else the instant reading
        with its measured refresh, else the mean over a second.
    """
    window, dense = evidence.window, evidence.trace.dense_power
    count = int(((dense.at_ns >= window.begin_ns) & (dense.at_ns <= window.end_ns)).sum())
    refresh_s = evidence.trace.refresh_of_ns("power_w") / 1e9
    # The time that each sensor needs and its shortcoming, finest sensor first.
    needs: list[tuple[float, str]] = []
    if len(dense):
        # The driver's dense record has a sample every 0.02 s.
        needs.append((samples_count * 0.02, f"the driver's record holds {count} samples of it"))
    if evidence.observes("power_w"):
        needs.append((refreshes_count * refresh_s, f"the reading is refreshed every {refresh_s:.2g} s"))
    if evidence.observes("power_average_w"):
        needs.append((averages_count * _AVERAGE_S, "the reading is a mean over the second before"))
    if not needs:
        return Unobserved(evidence.absence or "power was not observed")
    enough = count >= samples_count or any(window.length_s >= needed_s for needed_s, _ in needs[bool(len(dense)) :])
    # The last samples may be missing even in a long window, if the record was not read again before the judge ran.
    needed_s, because = min((need for need in needs if need[0] > window.length_s), default=(_AVERAGE_S, needs[0][1]))
    facts: dict[str, Fact] = {"window_s": window.length_s, "needed_s": needed_s, "because": because}
    return Clear(facts) if enough else Found(facts=facts)


def _capped_at(evidence: Evidence, at_ns: Times, *, throughout: bool) -> npt.NDArray[np.bool_]:
    if throughout:
        return np.ones(len(at_ns), np.bool_)
    capped = running(evidence, "power_cap_ns", Reason.SW_POWER_CAP)
    if not len(capped):
        return np.zeros(len(at_ns), np.bool_)
    place = np.clip(np.searchsorted(capped.at_ns, at_ns, side="right") - 1, 0, len(capped) - 1)
    return capped.values[place] > _MOSTLY_RATIO


def _clock_while_capped(evidence: Evidence, blocks: ClockBlocks | None, *, throughout: bool) -> tuple[float | None, bool]:
    """Return the mean clock of the capped blocks, if known, and whether it is true: stamped, or scaled to stamps."""
    if blocks is None:
        return None, False
    held = blocks.known & _capped_at(evidence, blocks.at_ns + blocks.width_ns // 2, throughout=throughout)
    if not held.any():
        return None, False
    is_true = blocks.scale != 1.0 or float(blocks.stamped[held].mean()) > _MOSTLY_RATIO
    return float(blocks.mhz[held].mean()), is_true


def _power_while_capped(evidence: Evidence, *, throughout: bool) -> float | None:
    window, dense = evidence.window, evidence.trace.dense_power
    inside = dense.where((dense.at_ns >= window.begin_ns) & (dense.at_ns <= window.end_ns))
    for power in (inside, evidence.within("power_w")):
        values_w = power.where(_capped_at(evidence, power.at_ns, throughout=throughout)).observed.values
        if len(values_w):
            return centre(values_w)
    return None


RULES: tuple[Rule, ...] = (power_limited, sync_boost_limited, power_reading_stale)
RETIRED_LIMITS: Mapping[str, tuple[str, ...]] = {sync_boost_limited.name: ("free_ratio",)}
