"""compare(): two or more functions on one GPU in one process, interleaved, and what may be said of them."""

from __future__ import annotations

import contextlib
import html
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from annotate.compare.decision import FLOOR_RATIO, Comparison, Decision, corrected, decide
from annotate.stats.intervals import Interval
from annotate.verdict import Verdict
from gpuwatch.client.testimony import spared
from gpuwatch.client.window import Window, window
from gpuwatch.comparing import blocks, floor_record, schedule
from gpuwatch.comparing import compare_arguments as asking
from gpuwatch.comparing.compare_arguments import Arm
from gpuwatch.comparing.load_variants import wants_inputs
from gpuwatch.comparing.schedule import Pairs, Runner
from gpuwatch.config import settings as config
from gpuwatch.errors import UsageError
from gpuwatch.measuring import reference as references
from gpuwatch.measuring import tensor_trees
from gpuwatch.measuring.reference import Match
from gpuwatch.measuring.to_dict import finite
from gpuwatch.process import torch_state
from gpuwatch.process.inputs import has_tensor
from gpuwatch.wire.messages import LABEL_LENGTH

if TYPE_CHECKING:
    from gpuwatch.comparing.blocks import BlockTimer

SCHEMA = 1
_FACTORY = "make_"
# Each arm has a clock of its own where power limits it; below this the two answers say the same.
_GAP_RATIO = 0.005
_STARVED_RATIO = 0.5
_LONGEST_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Every other arm against the first, the window they ran in, and how far their results agree.

    It prints as a report; ``c["b"]`` is one comparison, ``c.decision`` the first one's.
    """

    comparisons: tuple[Comparison, ...]
    matches: Mapping[str, Match]
    timer: str
    window: Window | None = None

    def __getitem__(self, name: str) -> Comparison:
        """Raises KeyError for an arm that was not compared."""
        for comparison in self.comparisons:
            if comparison.b == name:
                return comparison
        raise KeyError(name)

    @property
    def decision(self) -> Decision:
        return self.comparisons[0].decision

    @property
    def verdict(self) -> Verdict | None:
        """The verdict of the window they ran in (waits for the judge); None where nobody watched."""
        return None if self.window is None else self.window.verdict

    def __str__(self) -> str:
        lines = [str(comparison) for comparison in self.comparisons]
        verdict = self.verdict
        if verdict is not None:
            lines.append(str(verdict))
            if self._is_power_limited(verdict) and all(each.own_ratio is None for each in self.comparisons):
                lines.append("  power limits the clock both share here: own_steady=True measures each at the clock it earns")
        return "\n".join(lines)

    @staticmethod
    def _is_power_limited(verdict: Verdict) -> bool:
        return any(finding.rule == "power-limited" for finding in verdict.hazards)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; the schema is ``docs/schemas/comparison.json``."""
        verdict = self.verdict
        return {
            "schema": SCHEMA,
            "design": "interleaved",
            "timer": self.timer,
            "comparisons": [
                {name: finite(value) for name, value in comparison.to_dict().items()}
                | {"error_ratio": self._error_ratio(comparison)}
                for comparison in self.comparisons
            ],
            "verdict": None if verdict is None else verdict.to_dict(),
        }

    def _error_ratio(self, comparison: Comparison) -> float | None:
        match = self.matches.get(comparison.b)
        return None if match is None else finite(match.error_ratio)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def compare(
    arms: Mapping[str, Arm],
    *,
    inputs: Sequence[Any] | Callable[[], Sequence[Any]] = (),
    reference: str | None = None,
    seconds: float = 3.0,
    warm_s: float = 0.5,
    block_s: float = schedule.BLOCK_S,
    own_steady: bool = False,
    own_s: float = 3.0,
    rounds_count: int = 4,
    check: bool = True,
    tolerance_ratio: float | None = None,
    buffers_count: int = 3,
    floor_ratio: float | None = None,
    seed: int = 0,
    label: str | None = None,
    watch: bool = True,
    timer: BlockTimer | None = None,
    settings: config.Settings | None = None,
    say: Callable[[str], None] | None = None,
) -> Compared:
    """Compare functions of one call each: FASTER, SLOWER, SAME, INCONCLUSIVE or INCOMPARABLE against ``reference``.

    Blocks of ``block_s`` alternate (ABBA, the first letter drawn), so that all arms share one clock; that ratio is the
    answer.  ``own_steady=True`` adds each arm's own: alone, warm for ``own_s`` and then measured for as long, in rounds.

    ``inputs`` are what each call is given; a function that makes them is asked ``buffers_count`` times, because where
    data lies is part of a time.  An arm whose name begins with ``make_`` makes arms: it is asked so often too, and returns
    a function of one call with buffers of its own.  Unless ``check=False``, results on the same inputs are compared first.

    Raises UsageError for what can never be right; what an arm raises passes.
    """
    asked = asking.checked(
        arms, reference=reference, seconds=seconds, warm_s=warm_s, block_s=block_s, own_s=own_s, rounds_count=rounds_count,
        tolerance_ratio=tolerance_ratio, buffers_count=buffers_count, floor_ratio=floor_ratio, seed=seed, timer=timer,
        label=label, settings=settings,
    )  # fmt: skip
    if callable(inputs):
        given = [asking.arguments(inputs(), of="inputs()") for _ in range(asked.buffers_count)]
    else:
        given = [asking.arguments(inputs)]
    calls = _calls(arms, given, asked.buffers_count)
    first = asked.reference
    names = [first, *(name for name in arms if name != first)]
    # An arm that makes its own data has results of its own: only on given inputs must they agree.
    is_shared = any(given) and not any(map(_is_factory, arms.values()))
    comparable = check and (any(given) or not any(map(_is_factory, arms.values())))
    matches = _first_results(calls, names, asked.tolerance_ratio, comparable=comparable)
    timing = timer or blocks.here()  # not before the first calls, which may have made a context
    runners = {name: schedule.calibrated(timing, Runner(name, calls[name]), asked.block_s) for name in names}
    others = [runners[name] for name in names[1:]]
    measured = asked.floor_ratio if asked.floor_ratio is not None else _kept_floor(settings, shared=is_shared)
    floor = FLOOR_RATIO if measured is None else measured
    schedule.warmed(timing, list(runners.values()), asked.warm_s)
    own = {}
    with _watched((label or " and ".join(names))[:LABEL_LENGTH], settings, watch=watch) as watched:
        if watched is not None and has_tensor(given[0]):
            watched.inputs(*given[0])
        limit_s = max(_LONGEST_S, 2 * asked.seconds * len(others))
        pairs = schedule.interleaved(timing, runners[first], others, seconds=asked.seconds, limit_s=limit_s, seed=asked.seed)
        if watched is not None:
            _tell(watched, timing.name, len(others), measured)
        for runner in others if own_steady else ():
            if say is not None:
                say(f"each alone: {first} and {runner.name}, {asked.rounds_count} rounds of {4 * asked.own_s:g} s")
            own[runner.name] = schedule.own_steady(
                timing, runners[first], runner, warm_s=asked.own_s, seconds=asked.own_s, rounds_count=asked.rounds_count
            )
    found = [
        decide(first, name, each.log_ratios, floor_ratio=floor, a_s=each.a_s, b_s=each.b_s) for name, each in pairs.items()
    ]
    decided = corrected(found, {name: each.log_ratios for name, each in pairs.items()})
    comparisons = tuple(_explained(each, pairs[each.b], own.get(each.b), matches.get(each.b), timing.name) for each in decided)
    return Compared(comparisons=comparisons, matches=matches, timer=timing.name, window=watched)


def _is_factory(arm: Arm) -> bool:
    return getattr(arm, "__name__", "").startswith(_FACTORY)


def _calls(
    arms: Mapping[str, Arm], given: Sequence[tuple[Any, ...]], buffers_count: int
) -> dict[str, tuple[Callable[[], object], ...]]:
    """Each arm as calls that need nothing, one for each set of buffers; all arms get the same sets."""
    calls: dict[str, tuple[Callable[[], object], ...]] = {}
    for name, arm in arms.items():
        if _is_factory(arm):
            count = max(buffers_count, len(given)) if not any(given) else len(given)
            made = [arm(*given[number % len(given)]) for number in range(count)]
            wrong = [each for each in made if not callable(each)]
            if wrong:
                raise UsageError(f"compare: {name}: a function named {_FACTORY}… is to return a function, found {wrong[0]!r}")
            calls[name] = tuple(each for each in made if callable(each))
            continue
        if wants_inputs(arm) and not any(given):
            raise UsageError(f"compare: {name}: expected inputs for a function that takes some; name them with inputs=")
        calls[name] = tuple(partial(arm, *each) for each in given)
    return calls


def _first_results(
    calls: Mapping[str, tuple[Callable[[], object], ...]],
    names: Sequence[str],
    tolerance_ratio: float | None,
    *,
    comparable: bool,
) -> dict[str, Match]:
    """Call each arm once, which also compiles it and makes a context; how far the results are from the first's.

    Nothing where that returns none.  The first's is copied: all may write to one buffer.
    """
    expected = calls[names[0]][0]()
    asking.check_result(names[0], expected)
    comparable = comparable and expected is not None
    expected = tensor_trees.mapped(expected, tensor_trees.copied) if comparable else None
    found = {}
    for name in names[1:]:
        result = calls[name][0]()
        asking.check_result(name, result)
        if comparable:
            nothing = Match(float("inf"), 0.0)
            found[name] = nothing if result is None else references.match_results(result, expected, tolerance_ratio)
    return found


def _kept_floor(settings: config.Settings | None, *, shared: bool) -> float | None:
    """This GPU's floor on record, where this process works on one."""
    with spared("looking for this GPU's floor"):
        uuids = str(torch_state.facts().get("cuda_uuids") or "").split(",")
        return floor_record.of((settings or config.load()).state, uuids[0], shared=shared) if uuids[0] else None
    return None


@contextlib.contextmanager
def _watched(label: str, settings: config.Settings | None, *, watch: bool) -> Iterator[Window | None]:
    if not watch:
        yield None
        return
    with window(label, settings=settings) as watched:
        yield watched


def _tell(watched: Window, timer: str, variants_count: int, floor_ratio: float | None) -> None:
    watched.tell(design="interleaved", timer=timer, variants_count=variants_count)
    if floor_ratio is not None:
        watched.tell(aa_floor_ratio=floor_ratio)


def _explained(comparison: Comparison, pairs: Pairs, own: Interval | None, match: Match | None, timer: str) -> Comparison:
    """The comparison with what stands beside the ratio: correctness first, then who waited, then the other clock."""
    reasons = list(comparison.reasons)
    decision = comparison.decision
    if match is None:
        reasons.append("results were not compared")
    elif not match.holds:
        decision = Decision.INCOMPARABLE
        wrong = f"its result differs: largest relative error {match.error_ratio:.2g}, {match.limit_ratio:.2g} allowed"
        reasons.insert(0, f"{comparison.b} computes something else: {wrong}")
    if timer == "host":
        reasons.append("timed by the host's clock")
    if pairs.starved_ratio > _STARVED_RATIO:
        reasons.append("the GPU waited for launches: these are times of the host; capture a graph to compare the kernels")
    is_of_gpu = timer != "host" and pairs.starved_ratio <= _STARVED_RATIO
    if own is not None and comparison.ratio is not None and is_of_gpu:
        reasons += _alone(comparison.ratio, own)
    return replace(comparison, decision=decision, own_ratio=own, timer=timer, reasons=tuple(reasons))


def _alone(shared: Interval, own: Interval) -> list[str]:
    """Why the ratio of arms alone is another than in turns, if it is: intervals that overlap do not say so."""
    gap = own.centre / shared.centre - 1.0
    if abs(gap) <= _GAP_RATIO or (own.low <= shared.high and shared.low <= own.high):
        return []
    more, slower = ("more", "slower") if gap > 0 else ("less", "faster")
    return [f"alone it is {abs(gap):.1%} {slower} than at a shared clock, as under a cap what draws {more} power is"]
