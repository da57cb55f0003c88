"""Rules about power: the power limit, another GPU's clock, and readings that are too old."""

from typing import Annotated

from annotate.claims import Claim
from annotate.derived.held import by_bits, by_counter, power_cap
from annotate.derived.sm_clock import measured, working
from annotate.evidence import Evidence, Fact, Reason
from annotate.ranges import Count, Refreshes, Share
from annotate.rule import Answer, Clear, Found, Rule, RuleKind, Severity, Unobserved, rule

# What the driver calls average power: field 185, and nvmlDeviceGetPowerUsage on boards of today.
_AVERAGE_S = 1.0
# Of a cap, by what the number claims.
_SEVERITIES = {Claim.SUSTAINED: Severity.NOTE, Claim.BURST: Severity.FLAG, Claim.FIXED_CLOCK: Severity.REJECT}


@rule(
    "power-limited",
    kind=RuleKind.LABEL,
    says="the power cap held for {capped_s:.2f} of {length_s:.2f} s{clock}",
    remedy="Quote the number with its clock and the power limit, or lock a clock that the board can hold.",
)
def power_limited(
    evidence: Evidence,
    claim: Claim,
    *,
    free_ratio: Annotated[Share, "capped for less than this, what the cap took is below every effect worth reporting"] = 0.02,
) -> Answer:
    """Finds windows in which the driver lowered the clock to stay inside the board's power limit.

    Why it matters:
        It is the everyday state of a 700 W board: a bf16 matrix product in a loop is capped 97-100 % of the time, at 26-30 %
        below the maximum clock, and takes 16-21 % longer than in a burst.  So under ``sustained`` it is a note, and the
        number is honest with its clock beside it; work that is meant to run in bursts or at one clock did not do so.

    What it cannot see:
        Whether the clock mattered: the time of a copy does not follow it.  The clock named here is the true one only where it
        was stamped: else the driver's, which reads 8-12 % above the true mean under a cap.  The cap is not "power at the
        limit": products of zeros are capped at 415 W of 700 W.

    Remedy:
        Quote the number with its clock and its power limit.  For a number at one clock, lock one that the board can hold
        for this work, some 5 % below the capped mean.

    Source:
        The driver's violation time at the window's edges, else its power-cap counter, which is brought up to date every
        100 ms (``error_ratio`` says what that leaves open), else the share of sampled clock event reasons.  Figures: H200 at
        700 W, driver 580.159.04.
    """
    held = power_cap(evidence)
    if held is None:
        return Unobserved(evidence.absence or "time under the power cap was not observed")
    mhz = working(evidence).mean()
    most_mhz = evidence.device.sm_clock_max_mhz if evidence.device else None
    facts: dict[str, Fact] = {
        "capped_ratio": held.ratio,
        "error_ratio": held.error_ratio,
        "capped_s": held.ratio * evidence.window.length_s,
        "length_s": evidence.window.length_s,
        "by": held.by,
        "driver_clock_mhz": mhz,
        "clock": "",
    }
    if held.ratio <= free_ratio:
        return Clear(facts)
    true = measured(evidence)
    clock_mhz, whose = (true.clock_mhz, f"by {true.by}") if true else (mhz, "by the driver's clock")
    facts["true_clock_mhz"] = true.clock_mhz if true else None
    if clock_mhz is not None:
        facts["clock"] = f", at {clock_mhz:.0f} MHz {whose}"
        if most_mhz:
            facts["of_maximum_ratio"] = clock_mhz / most_mhz
            facts["clock"] = f"{facts['clock']} ({clock_mhz / most_mhz:.0%} of the maximum)"
    return Found(_SEVERITIES[claim], facts)


@rule(
    "sync-boost-limited",
    kind=RuleKind.BIAS,
    says="for {limited_s:.2f} of {length_s:.2f} s the clock followed the slowest GPU of a boost group",
    remedy="Take this GPU out of its sync boost group, or measure the group as one.",
)
def sync_boost_limited(
    evidence: Evidence,
    claim: Claim,
    *,
    free_ratio: Annotated[Share, "a thousandth of the window cannot move a number by what anybody reports"] = 0.001,
) -> Answer:
    """Finds windows in which this GPU's clock was held to that of another.

    Why it matters:
        In a sync boost group every GPU runs at the clock of the slowest, so this number depends on what another board was
        doing, and on how warm it was.

    What it cannot see:
        Which GPU it followed, or by how much the clock would have been higher.  A single GPU never shows it.

    Remedy:
        Take the GPU out of the group (``dcgmi config``), or measure the whole group under one load.

    Source:
        The driver's sync-boost counter, which misses nothing, else the clock event reason of that name.
    """
    held = by_counter(evidence, "sync_boost_ns") or by_bits(evidence, Reason.SYNC_BOOST)
    if held is None:
        return Unobserved(evidence.absence or "neither sync-boost time nor event reasons were observed for long enough")
    facts: dict[str, Fact] = {
        "limited_s": held.ratio * evidence.window.length_s,
        "length_s": evidence.window.length_s,
        "by": held.by,
    }
    return Found(Severity.FLAG, facts) if held.ratio > free_ratio else Clear(facts)


@rule(
    "power-reading-stale",
    kind=RuleKind.LABEL,
    says="{window_s:.3g} s is too short to tell its power or energy: {because}",
    remedy="Repeat the body for {needed_s:.3g} s or more before quoting its power or energy.",
)
def power_reading_stale(
    evidence: Evidence,
    claim: Claim,
    *,
    samples_count: Annotated[Count, "the record of 20 ms: five samples are the 100 ms below which energy is guesswork"] = 5.0,
    refreshes_count: Annotated[Refreshes, "each edge may be a refresh off: with ten, a mean is good to a fifth"] = 10.0,
    averages_count: Annotated[Count, "the first second of a trailing mean still speaks of the time before"] = 2.0,
) -> Answer:
    """Finds windows too short for the power and energy that a sensor can tell of them.

    Why it matters:
        The usual power reading is a mean over the second before: in a window of 50 ms it is the power of whatever ran
        earlier.  Energies taken that way were 35 % off on average and 65 % at worst (arXiv 2312.02741).

    What it cannot see:
        How well the sensor itself samples: on some boards it looks for a quarter of the time only.  It concerns power and
        energy alone; the time is as good as other rules say.

    Remedy:
        Put more iterations of the same work into the window.

    Source:
        The finest power seen in the window: the driver's dense record (20 ms apart on an H200), else the instant reading
        with its measured refresh, else the mean over a second.
    """
    window, dense = evidence.window, evidence.trace.dense_power
    count = int(((dense.at_ns >= window.begin_ns) & (dense.at_ns <= window.end_ns)).sum())
    refresh_s = evidence.trace.refresh_of_ns("power_w") / 1e9
    # What each sensor needs, and how it falls short, finest first.
    needs: list[tuple[float, str]] = []
    if len(dense):
        # How far apart the driver's dense record keeps its samples.
        needs.append((samples_count * 0.02, f"the driver's record holds {count} samples of it"))
    if evidence.observes("power_w"):
        needs.append((refreshes_count * refresh_s, f"the reading is refreshed every {refresh_s:.2g} s"))
    if evidence.observes("power_average_w"):
        needs.append((averages_count * _AVERAGE_S, "the reading is a mean over the second before"))
    if not needs:
        return Unobserved(evidence.absence or "power was not observed")
    enough = count >= samples_count or any(window.length_s >= needed_s for needed_s, _ in needs[bool(len(dense)) :])
    # A record that was not read again before the judge asked holds too little of windows that were long enough for it.
    needed_s, because = min((need for need in needs if need[0] > window.length_s), default=(_AVERAGE_S, needs[0][1]))
    facts: dict[str, Fact] = {"window_s": window.length_s, "needed_s": needed_s, "because": because}
    return Clear(facts) if enough else Found(Severity.NOTE, facts)


RULES: tuple[Rule, ...] = (power_limited, sync_boost_limited, power_reading_stale)
