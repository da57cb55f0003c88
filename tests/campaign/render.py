"""Markdown tables of the campaign: false alarms and misses with their bounds, by rule and of the verdict."""

from __future__ import annotations

from annotate.rules import RULES
from tests.campaign import results
from tests.campaign.mutator import Mutator
from tests.campaign.mutators import MUTATORS
from tests.campaign.results import Rate, Results

MOST_ALARMS_RATIO, MOST_MISSES_RATIO = 0.01, 0.05


def section() -> list[str]:
    """Return the lines of docs/VALIDATION.md on the committed results."""
    found = results.load()
    return [
        "## How often the judge is right: the simulator's campaign\n",
        f"Generated from `tests/campaign/results.json` (`make campaign`): {len(found.seeds)} clean windows of simulated H200s (3.2 to 8 s of"
        " seven kinds of kernel, warmed, iterations timed with true clocks, every second one with a baseline), each judged unchanged,",
        "and again with each hazard (`tests/campaign/mutators/`) at 1, 1.5, 2 and 3 times the limit of the hazard's rule.",
        f"The counts are of the judge {found.judge}, a digest of its source.  A false alarm is a flag or a rejection of a clean",
        "window.  A miss is a hazard of twice the limit that the hazard's rule did not flag, because it found nothing or lacked evidence.",
        "The last column counts windows that stayed valid.  Intervals are Clopper-Pearson, 95 %.  The targets are at most 1 % of",
        "false alarms and 5 % of misses; a figure in **bold** misses its target.  The simulator and the judge share assumptions, so",
        "windows of a real card are listed too.\n",
        *tables(found),
    ]


def tables(found: Results) -> list[str]:
    return [*verdicts(found), *alarms_and_misses(found)]


def verdicts(found: Results) -> list[str]:
    rows = [
        "### Of the verdict\n",
        "| clean windows | windows | flagged or rejected | 95 % | not valid |",
        "|---|---|---|---|---|",
    ]
    for title, prefix, recorded in (("simulated", "clean", False), ("recorded", "recorded", True)):
        alarms = notvalid = windows = 0
        for kind in found.names(prefix, recorded=recorded):
            path = f"{prefix}/{kind}"
            alarmed, valid = (found.rate(path, what, recorded=recorded) for what in ("alarms", "valid"))
            rows.append(
                f"| {title}: {kind} | {alarmed.trials} | {_percent(alarmed)} | {_bounds(alarmed)} | {_percent(_not(valid))} |"
            )
            alarms, notvalid, windows = alarms + alarmed.hits, notvalid + _not(valid).hits, windows + alarmed.trials
        whole = Rate(alarms, windows)
        rows.append(
            f"| **{title}, all** | {windows} | {_judged(whole, MOST_ALARMS_RATIO)} | {_bounds(whole)} | {_percent(Rate(notvalid, windows))} |"
        )
    missed = [found.missed(f"injected/{m.name}/2", "not valid") for m in MUTATORS if not m.is_label]
    whole = Rate(sum(each.hits for each in missed), sum(each.trials for each in missed))
    rows += [
        "",
        "Recorded windows overlap, so their intervals are too narrow.  Logs without a process list cannot be valid.",
        f"Of {whole.trials} windows with a hazard of twice its limit, {_judged(whole, MOST_MISSES_RATIO)} ({_bounds(whole)}) were called valid.\n",
    ]
    return rows


def alarms_and_misses(found: Results) -> list[str]:
    rows = [
        "### By rule\n",
        "| rule | false alarms | 95 % | recorded | hazard at 1× | 1× | 1.5× | missed at 2× | 95 % | 3× | verdict missed at 2× |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for rule in RULES:
        alarms = found.rate(f"clean-rule/{rule.name}", "alarms")
        real = found.rate(f"recorded-rule/{rule.name}", "alarms", recorded=True)
        head = f"{_judged(alarms, MOST_ALARMS_RATIO)} | {_bounds(alarms)} | {_percent(real)}"
        mine = [mutator for mutator in MUTATORS if mutator.rule == rule.name]
        if not mine:
            rows.append(f"| {rule.name} | {head} | not injected | | | | | | |")
        for position, mutator in enumerate(mine):
            rows.append(f"| {mutator.name} | {head if not position else ' | | '} | {_hazard(found, mutator)} |")
    return [*rows, ""]


def _hazard(found: Results, mutator: Mutator) -> str:
    def missed(multiple: float) -> Rate:
        return found.missed(f"injected/{mutator.name}/{multiple:g}")

    twice = missed(2.0)
    verdict = _percent(found.missed(f"injected/{mutator.name}/2", "not valid"))
    what = mutator.limit or "without a size"
    if mutator.claim.value != "sustained":
        what += f" (`{mutator.claim.value}`)"
    once, half, thrice = ("" if not mutator.limit else _percent(missed(m)) for m in (1.0, 1.5, 3.0))
    return f"{what} | {once} | {half} | {_judged(twice, MOST_MISSES_RATIO)} | {_bounds(twice)} | {thrice} | {verdict}"


def _not(rate: Rate) -> Rate:
    return Rate(rate.trials - rate.hits, rate.trials)


def _percent(rate: Rate) -> str:
    return f"{100 * rate.ratio:.3g} %" if rate.trials else "–"


def _judged(rate: Rate, most_ratio: float) -> str:
    return f"**{_percent(rate)}**" if rate.trials and rate.ratio > most_ratio else _percent(rate)


def _bounds(rate: Rate) -> str:
    low, high = rate.bounds
    return f"{100 * low:.2g}–{100 * high:.2g}" if rate.trials else "–"
