"""The differences that explain a ratio, each with its evidence; all favour the faster side."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from annotate.amount_words import amount_text
from gpuwatch.diff.kernel_counters import METRICS, TRAFFIC, CounterMetric, Counters
from gpuwatch.diff.read_counters import SideName
from gpuwatch.diff.static_comparison import InstructionRow, StaticComparison
from gpuwatch.diff.timed_pair import TimedPair

MOST_REASONS = 3
_MOST_STRENGTH = math.log(10)  # a factor above ten weighs as much as ten
_LEAST_SHARE, _LEAST_FACTOR = 0.01, 0.02  # smaller differences explain nothing
_ITERATIONS = 32  # assumed iterations of each loop level
_UNCERTAIN = 0.1
_SECTOR_BYTES = 32


@dataclass(frozen=True, slots=True)
class RatioReason:
    """One difference with the side that it favours and its weight; uncertain if its interval includes zero."""

    cause: str
    says: str
    evidence: str
    favours: SideName
    weight: float
    is_uncertain: bool = False

    def __str__(self) -> str:
        return f"{self.says} ({self.evidence}){' ?' if self.is_uncertain else ''}"


def explain(timed: TimedPair, static: StaticComparison | None, counters: Counters) -> tuple[RatioReason, ...]:
    """Return at most three differences that favour the faster side, by falling weight; empty without a faster side."""
    winners: dict[str, SideName] = {"FASTER": "b", "SLOWER": "a"}
    winner = winners.get(timed.decision)
    if winner is None:
        return ()
    found = [*_counted(counters), *(_static(static, winner) if static is not None else ())]
    best: dict[str, RatioReason] = {}
    for each in sorted(found, key=lambda each: -each.weight):
        if each.favours == winner:
            best.setdefault(each.cause, each)
    return tuple(best.values())[:MOST_REASONS]


def why_none(timed: TimedPair) -> str:
    """Return the sentence to print if no difference explains the ratio."""
    if timed.decision == "SAME":
        return "there is no difference to explain"
    if timed.decision in ("FASTER", "SLOWER"):
        return "none of the observed differences explains the ratio"
    return "there is no ratio to explain"


def _counted(counters: Counters) -> Iterator[RatioReason]:
    for metric in METRICS:
        a, b = counters.mean("a", metric.name), counters.mean("b", metric.name)
        if metric.faster == 0 or a is None or b is None:
            continue
        size = abs(b - a) if metric.is_share else abs(math.log((b + 1) / (a + 1)))
        if size < (_LEAST_SHARE if metric.is_share else _LEAST_FACTOR):
            continue
        weight = abs(metric.faster) * min(size, _MOST_STRENGTH) * _relevance(metric, counters, max(a, b))
        is_uncertain = counters.is_uncertain(metric.name)
        favours: SideName = "b" if (b - a) * metric.faster > 0 else "a"
        cause = "occupancy" if metric.name == "occupancy_ratio" else metric.name
        says = _words(metric, a, b)
        yield RatioReason(cause, says, counters.source, favours, weight * (_UNCERTAIN if is_uncertain else 1.0), is_uncertain)


def _relevance(metric: CounterMetric, counters: Counters, most: float) -> float:
    """Return 1, or less for bank conflicts that are few among the instructions: a conflict delays its pipe by one cycle."""
    instructions = max(counters.mean("a", "instructions_count") or 0.0, counters.mean("b", "instructions_count") or 0.0)
    return min(1.0, 10 * most / instructions) if metric.name == "bank_conflicts_count" and instructions else 1.0


def _words(metric: CounterMetric, a: float, b: float) -> str:
    if metric.name in ("load_efficiency_ratio", "store_efficiency_ratio"):
        done = "loaded" if metric.name.startswith("load") else "stored"
        return f"bytes used of each {_SECTOR_BYTES}-byte sector {done}: A {a * _SECTOR_BYTES:.1f}, B {b * _SECTOR_BYTES:.1f}"
    if metric.is_share:
        return f"{metric.title}: A {a:.1%}, B {b:.1%}, {(b - a) * 100:+.1f} pp"
    if metric.name == TRAFFIC:
        return f"{metric.title}: A {amount_text(a, 'B')}, B {amount_text(b, 'B')}"
    return f"{metric.title}: A {a:,.0f}, B {b:,.0f}".replace(",", " ").replace("  B", ", B")


def _static(found: StaticComparison, winner: SideName) -> Iterator[RatioReason]:
    spills = [(side.code.spill_store_bytes or 0) + (side.code.spill_load_bytes or 0) for side in (found.a, found.b)]
    yield from _less("spills", "bytes of registers spilled to memory", "ptxas", spills, trust=1.0)
    a, b = found.a.occupancy, found.b.occupancy
    if a and b and a.ratio != b.ratio:
        shares = [f"{name} {each.ratio:.0%} (limited by {each.limited_by})" for name, each in (("A", a), ("B", b))]
        weight = 0.8 * abs(math.log(b.ratio / a.ratio))
        says = f"theoretical occupancy: {', '.join(shares)}"
        yield RatioReason("occupancy", says, "occupancy", "b" if b.ratio > a.ratio else "a", weight)
    widths = [_widest(found.sass, side) for side in ("a", "b")]
    if all(widths) and widths[0] != widths[1]:
        says = f"most bits of one global load or store: A {widths[0]}, B {widths[1]}"
        yield RatioReason("width", says, "SASS", "b" if widths[1] > widths[0] else "a", abs(math.log(widths[1] / widths[0])))
    tensor = [_weighed(found.sass, ("HMMA", "HGMMA", "IMMA", "IGMMA", "QGMMA", "QMMA", "DMMA"), side) for side in ("a", "b")]
    if bool(tensor[0]) != bool(tensor[1]):
        side: SideName = "a" if tensor[0] else "b"
        yield RatioReason("tensor", f"only {side.upper()} uses tensor cores", "SASS", side, 1.5)
    shared = [_weighed(found.sass, ("LDS", "STS"), side) for side in ("a", "b")]
    if bool(shared[0]) != bool(shared[1]):
        # Shared memory may spare memory traffic or be a detour, so this difference always favours the measured winner.
        only = "A" if shared[0] else "B"
        yield RatioReason("shared", f"only {only} goes through shared memory", "SASS", winner, 0.5 * _strength(shared))
    else:
        yield from _less("shared", "shared-memory accesses (a loop counts 32 times)", "SASS", shared, trust=0.5)
    for cause, title, kinds, trust in (
        ("atomics", "global atomics (a loop counts 32 times)", ("ATOM", "ATOMG", "RED", "REDG"), 0.8),
        ("barriers", "barriers (a loop counts 32 times)", ("BAR",), 0.5),
        ("instructions_count", "SASS instructions (a loop counts 32 times)", ("",), 0.2),
    ):
        yield from _less(cause, title, "SASS", [_weighed(found.sass, kinds, side) for side in ("a", "b")], trust=trust)


def _less(cause: str, title: str, evidence: str, amounts: list[int], *, trust: float) -> Iterator[RatioReason]:
    """Yield a difference in an amount of which less is faster, unless the difference is negligible."""
    if _strength(amounts) > _LEAST_FACTOR:
        says = f"{title}: A {amounts[0]}, B {amounts[1]}"
        yield RatioReason(cause, says, evidence, "b" if amounts[1] < amounts[0] else "a", trust * _strength(amounts))


def _strength(amounts: list[int]) -> float:
    return min(_MOST_STRENGTH, abs(math.log((amounts[1] + 1) / (amounts[0] + 1))))


def _weighed(rows: tuple[InstructionRow, ...], kinds: tuple[str, ...], side: str) -> int:
    chosen = (row for row in rows if "" in kinds or row.kind.split(".")[0] in kinds)
    return sum(int(getattr(row, side)) * _ITERATIONS**row.loop_depth for row in chosen)


def _widest(rows: tuple[InstructionRow, ...], side: str) -> int:
    """Return the bits of the widest global access; the narrow remainder of a vectorised loop does not count."""
    kinds = [row.kind.split(".") for row in rows if getattr(row, side)]
    return max(
        (int(width) for name, *rest in kinds for width in rest[:1] if name in ("LDG", "STG") and width.isdecimal()), default=0
    )
