"""The text of a budget: the numbers of the first line, the proofs, and the size of each cause."""

import re

from annotate.amount_words import duration_text
from annotate.budget import Budget, Estimate, Number, NumberBudget, Proof, ProofState
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
# The words of proofs that a valid window needs not repeat; "" too.
_USUAL = re.compile(r"(busy [^,]*|books balance|clock steady to [\d.]+ %|nobody else|times steady to [\d.]+ %)?")


def percent(ratio: float) -> str:
    """Format a share with one decimal, or with two below 0.1 %."""
    if ratio == 0.0 or abs(ratio) >= _FINE_RATIO:
        return f"{100.0 * ratio:.1f} %"
    return f"{100.0 * max(ratio, _LEAST_SAID_RATIO):.2f} %"


def headline(verdict: Verdict) -> str:
    """Return the deviation of a flagged or rejected number, and the numbers with repeatability; empty without a budget."""
    return ", ".join(part for part in (leading_number(verdict), second_number(verdict)) if part)


def leading_number(verdict: Verdict) -> str:
    """Return the deviation of a flagged or rejected number, and the number that leads with interval, count and rate."""
    budget = verdict.budget
    if budget is None:
        return ""
    off = _off(budget) if verdict.status in (Status.FLAGGED, Status.REJECTED) else ""
    leading = leading_words(verdict)
    return ", ".join(part for part in (off, leading, *(_count_words(budget) if leading else ())) if part)


def second_number(verdict: Verdict) -> str:
    """Return the median at one clock, or the mean if that median leads; empty without times."""
    budget = verdict.budget
    if budget is None or budget.leading is None:
        return ""
    second = budget.number(Number.MEAN if budget.leading is Number.MEDIAN_AT_CLOCK else Number.MEDIAN_AT_CLOCK)
    return number_words(second) if second is not None else ""


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


def short_shown_line(verdict: Verdict) -> str:
    """Return the line "shown" of a valid verdict, whose proofs hold: the bound, unusual words of proofs, and the reference."""
    budget = verdict.budget
    if budget is None or not any(proof.state is ProofState.SHOWN for proof in budget.proofs):
        return ""
    proofs = [proof.says for proof in budget.proofs if proof.state is ProofState.SHOWN and not _USUAL.fullmatch(proof.says)]
    return _SEPARATOR.join([_most_words(budget, verdict.policy.get("card_spread_ratio")), *proofs, _scope_words(budget)])


def shown_line(verdict: Verdict) -> str:
    """Return the line "shown" with the claim's bound, the proofs and their reference; empty if no proof is shown."""
    budget = verdict.budget
    if budget is None:
        return ""
    shown = [proof.says for proof in budget.proofs if proof.state in (ProofState.SHOWN, ProofState.NOT_ASKED) and proof.says]
    if not any(proof.state is ProofState.SHOWN for proof in budget.proofs):
        return ""
    return _SEPARATOR.join([_most_words(budget, verdict.policy.get("card_spread_ratio")), *shown, _scope_words(budget)])


def has_times(verdict: Verdict) -> bool:
    """Return True if the window has times of iterations."""
    proofs = verdict.budget.proofs if verdict.budget is not None else ()
    return any(each.proof is Proof.STEADY_TIMES and each.state is not ProofState.NOT_ASKED for each in proofs)


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
    largest = budget.largest_of(finding.rule) if budget is not None else None
    if largest is None:
        return ""
    return (
        _unbounded_words(largest.estimate) or "effect unknown" if largest.ratio is None else f"at most {percent(largest.ratio)}"
    )


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


def _count_words(budget: Budget) -> list[str]:
    """Return the count of the times and the rate of the calls, each if it is known."""
    steady = next((proof for proof in budget.proofs if proof.proof is Proof.STEADY_TIMES), None)
    count = steady.facts.get("entries_count") if steady is not None else None
    rate = budget.number(Number.THROUGHPUT)
    words = [f"n={count}"] if count is not None else []
    return words + ([f"{rate.value:.4g}/s"] if rate is not None and rate.value is not None else [])


def _scope_words(budget: Budget) -> str:
    count = budget.scope.windows_count
    return f"against this card's record of {count} windows" if budget.scope.kind == "record" else "against itself only"


def _unbounded_words(estimate: Estimate | None) -> str:
    """Return the estimate of an effect without an upper bound; empty without an estimate."""
    return "" if estimate is None or not estimate.value_ratio else f"about {percent(abs(estimate.value_ratio))}, no upper bound"


def _most_words(budget: Budget, card_spread_ratio: float | None) -> str:
    """Return the largest bound among the claimed numbers, and the thresholds that differ from the defaults."""
    found = [each for number in budget.claimed if (each := budget.number(number)) is not None]
    open_ends = [each for each in found if each.bound_ratio is None]
    worst = max(open_ends, key=lambda each: abs(each.estimate.value_ratio) if each.estimate else 0.0, default=None)
    if worst is not None:
        words = f"disturbances {_unbounded_words(worst.estimate) or 'without a bound'}"
    else:
        words = f"disturbances at most {percent(max((each.bound_ratio or 0.0 for each in found), default=0.0))}"
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
