"""The text of a budget: the numbers of the first line, the proofs, and the size of each cause."""

from annotate.amount_words import duration_text
from annotate.budget import Budget, Number, NumberBudget, ProofState
from annotate.ranges import TOLERANCE_RATIO
from annotate.verdict import Finding, Status, Verdict

_NAMES = {
    Number.THROUGHPUT: "throughput",
    Number.MEAN: "mean",
    Number.MEDIAN: "median",
    Number.MEDIAN_AT_CLOCK: "median at one clock",
    Number.RATIO: "ratio",
}
_FINE_RATIO = 0.001  # smaller shares have two decimals
_LEAST_SAID_RATIO = 0.0001  # smaller amounts are printed as this one: no witness resolves less
_SEPARATOR = " · "


def percent(ratio: float) -> str:
    """Format a share with one decimal, or with two below 0.1 %."""
    if ratio == 0.0 or abs(ratio) >= _FINE_RATIO:
        return f"{100.0 * ratio:.1f} %"
    return f"{100.0 * max(ratio, _LEAST_SAID_RATIO):.2f} %"


def headline(verdict: Verdict) -> str:
    """Return the deviation of a flagged or rejected number, and the numbers with repeatability; empty without a budget."""
    budget = verdict.budget
    if budget is None:
        return ""
    off = _off(budget) if verdict.status in (Status.FLAGGED, Status.REJECTED) else ""
    return ", ".join(part for part in (off, *_numbers(budget)) if part)


def leading_words(verdict: Verdict) -> str:
    """Return the number that leads the first line, with its repeatability; empty without times."""
    budget = verdict.budget
    leading = budget.number(budget.leading) if budget is not None and budget.leading is not None else None
    return number_words(leading) if leading is not None else ""


def number_words(number: NumberBudget) -> str:
    """Return one number with unit and repeatability; empty without a value."""
    if number.value is None:
        return ""
    name = f"median at {number.clock_mhz:.0f} MHz" if number.clock_mhz is not None else _NAMES[number.number]
    value = duration_text(number.value) if number.unit == "s" else f"{number.value:.4g} {number.unit}".rstrip()
    ratio = number.repeatability.ratio
    return f"{name} {value}" + (f" ±{percent(ratio)}{cards_words(number)}" if ratio is not None else "")


def cards_words(number: NumberBudget) -> str:
    """Return the interval on other cards of the model, or a note that the interval is of this card; empty for raw numbers."""
    if number.clock_mhz is None or number.repeatability.ratio is None:
        return ""
    ratio = number.other_cards_ratio
    return " (this card)" if ratio is None else f" (other cards ±{percent(ratio)})"


def shown_line(verdict: Verdict) -> str:
    """Return the line "shown" with the claim's bound, the proofs and their reference; empty if no proof is shown."""
    budget = verdict.budget
    if budget is None:
        return ""
    shown = [proof.says for proof in budget.proofs if proof.state in (ProofState.SHOWN, ProofState.NOT_ASKED) and proof.says]
    if not any(proof.state is ProofState.SHOWN for proof in budget.proofs):
        return ""
    count = budget.scope.windows_count
    scope = f"against this card's record of {count} windows" if budget.scope.kind == "record" else "against itself only"
    return _SEPARATOR.join([_most_words(budget, verdict.policy.get("card_spread_ratio")), *shown, scope])


def claim_line(verdict: Verdict) -> str:
    """Return the claim with its stated parts; empty if no part was stated."""
    facts = verdict.claim_facts
    stated = [f"locked at {facts.locked_mhz:.0f} MHz"] if facts.locked_mhz is not None else []
    stated += [f"a call every {duration_text(facts.every_s)}"] if facts.every_s is not None else []
    stated += ["times vary by design"] if facts.varies else []
    stated += ["a whole program"] if facts.whole_program else []
    return ", ".join([verdict.claim, *stated]) if stated else ""


def bound_words(finding: Finding, budget: Budget | None) -> str:
    """Return the largest bound of a cause on the claim's numbers, else on any, as text; empty for a cause without bounds."""
    if budget is None:
        return ""
    mine = [bound for number in budget.numbers for bound in number.bounds if bound.rule == finding.rule]
    claimed = [bound for bound in mine if bound.number in budget.claimed] or mine
    if not claimed:
        return ""
    largest = max(claimed, key=lambda bound: bound.size_ratio)
    return "effect unknown" if largest.ratio is None else f"at most {percent(largest.ratio)}"


def has_own_line(finding: Finding, budget: Budget | None) -> bool:
    """Return True if a hazard has a separate line: labels share one line, and small causes are not printed."""
    if finding.is_label:
        return False
    if budget is None or finding.severity != "note":
        return True
    mine = [bound for number in budget.numbers for bound in number.bounds if bound.rule == finding.rule]
    return not mine or any(budget.is_printed(bound) for bound in mine)


def _off(budget: Budget) -> str:
    """Return the claimed number with the largest proven deviation as text; empty within the tolerance."""
    found = [each for number in budget.claimed if (each := budget.number(number)) is not None and each.estimate is not None]
    worst = max(found, key=lambda each: each.estimate.nearer_ratio if each.estimate else 0.0, default=None)
    if worst is None or worst.estimate is None or worst.estimate.nearer_ratio <= budget.tolerance_ratio:
        return ""
    ends = sorted((abs(worst.estimate.low_ratio), abs(worst.estimate.high_ratio)))
    span = " to ".join(f"{100.0 * end:.1f}" for end in ends)
    return f"{_NAMES[worst.number]} {percent(abs(worst.estimate.value_ratio))} off ({span})"


def _numbers(budget: Budget) -> list[str]:
    """Return the leading number and the median at one clock, or the mean if that median leads."""
    second = Number.MEAN if budget.leading is Number.MEDIAN_AT_CLOCK else Number.MEDIAN_AT_CLOCK
    wanted = [number for number in (budget.leading, second) if number is not None] if budget.leading is not None else []
    return [number_words(found) for number in wanted if (found := budget.number(number)) is not None]


def _most_words(budget: Budget, card_spread_ratio: float | None) -> str:
    """Return the largest bound among the claimed numbers, and the thresholds that differ from the defaults."""
    ratios = [found.bound_ratio for number in budget.claimed if (found := budget.number(number)) is not None]
    known = [ratio for ratio in ratios if ratio is not None]
    words = (
        f"disturbances at most {percent(max(known, default=0.0))}"
        if len(known) == len(ratios)
        else "disturbances without a bound"
    )
    thresholds = [f"tolerance {percent(budget.tolerance_ratio)}"] if budget.tolerance_ratio != TOLERANCE_RATIO else []
    thresholds += [f"precision {percent(budget.precision_ratio)}"] if budget.precision_ratio is not None else []
    thresholds += [f"card spread {percent(card_spread_ratio)}"] if card_spread_ratio is not None else []
    return f"{words} ({', '.join(thresholds)})" if thresholds else words


def launch_line(verdict: Verdict) -> str:
    """Return the GPU's share of the number, with launches, the host's time per launch, and gaps; empty if not observed."""
    share = next((finding.facts.get("share") for finding in verdict.findings if finding.rule == "host-bound"), None)
    return share if isinstance(share, str) else ""


def limits_line(verdict: Verdict) -> str:
    """Return the limits that the policy overrides, each with its default; empty without any."""
    return ", ".join(
        f"{finding.rule}.{name} {limit.value:g} (default {limit.default:g})"
        for finding in verdict.findings
        for name, limit in finding.limits_overridden.items()
    )
