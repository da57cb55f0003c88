"""The order and length of the variants' runs, and the resulting pairs of times."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count, repeat
from statistics import median

import numpy as np

from annotate.compare.quad_decision import LEAST_PAIRS_COUNT
from annotate.compare.quads import Quads
from annotate.derived.launch_share import LaunchShare, launch_share
from annotate.stats.intervals import Interval
from gpuwatch.comparing.blocks import Block, BlockLaunch, BlockTimer, Timed

# The clock changes during longer blocks; the edges dominate shorter blocks.
BLOCK_S = 0.003
_CALIBRATION_S = 0.02
_CALIBRATION_COUNT = 3
_MOST_CALLS_COUNT = 100_000


@dataclass(frozen=True, slots=True)
class Runner:
    """A variant ready to run: one call for each set of buffers, and the number of calls in a block.

    ``before`` runs ahead of each call, outside the timed span.
    """

    name: str
    calls: tuple[Callable[[], object], ...]
    calls_count: int = 1
    before: Callable[[], object] | None = None

    def block(self, turn: int) -> Block:
        return Block(self.name, self.calls[turn % len(self.calls)], self.calls_count, self.before)


@dataclass(frozen=True, slots=True)
class Interleaved:
    """The quads of two variants, and the share of the whole run's blocks for which the GPU may have waited.

    ``launches`` holds each variant's launch share; empty if the timer cannot separate launches from calls.
    """

    quads: Quads
    starved_ratio: float
    launches: Mapping[str, LaunchShare] = field(default_factory=dict)


def calibrate(timer: BlockTimer, runner: Runner, block_s: float = BLOCK_S) -> Runner:
    """Return the runner with a block of about ``block_s``, at least one call."""
    calls_count = 1
    while True:
        trial = replace(runner, calls_count=calls_count)
        tries = [trial.block(turn) for turn in range(len(runner.calls) + 1)][-_CALIBRATION_COUNT:]
        whole_s = min(timed.whole_s for timed in timer.times(tries))
        if whole_s >= min(block_s, _CALIBRATION_S) or calls_count >= _MOST_CALLS_COUNT:
            wanted = round(block_s * calls_count / whole_s) if whole_s > 0 else _MOST_CALLS_COUNT
            return replace(runner, calls_count=min(max(1, wanted), _MOST_CALLS_COUNT))
        calls_count *= 4


def quad_blocks(a: Runner, others: Sequence[Runner], rng: random.Random) -> Iterator[Block]:
    """Yield ABBA or BAAB without end, the first letter drawn at random; other variants and buffers take turns."""
    for turn in count():
        b = others[turn % len(others)]
        buffers = turn // len(others)
        first, second = (a, b) if rng.random() < 0.5 else (b, a)
        for runner in (first, second, second, first):
            yield runner.block(buffers)


def run_interleaved(
    timer: BlockTimer,
    a: Runner,
    others: Sequence[Runner],
    *,
    seconds: float,
    limit_s: float,
    seed: int,
    least_count: int = LEAST_PAIRS_COUNT,
) -> dict[str, Interleaved]:
    """Run each other variant against the first until each has its time and enough pairs, or until the time is up."""
    quads: dict[str, list[list[Timed]]] = {other.name: [] for other in others}
    spent_s, starved, blocks_count = dict.fromkeys(quads, 0.0), 0, 0
    quad: list[Timed] = []
    for timed in timer.times(quad_blocks(a, others, random.Random(seed))):  # noqa: S311 - an order, not a secret
        quad.append(timed)
        starved += timed.starved
        blocks_count += 1
        if len(quad) < 4:
            continue
        name = next(each.block.variant for each in quad if each.block.variant != a.name)
        quads[name].append(quad)
        spent_s[name] += sum(each.whole_s for each in quad)
        quad = []
        enough = all(spent_s[other] >= seconds and 2 * len(quads[other]) >= least_count for other in quads)
        if enough or sum(spent_s.values()) >= limit_s:
            break
    starved_ratio = starved / max(1, blocks_count)
    return {name: Interleaved(_by_position(a.name, found), starved_ratio, _launches(found)) for name, found in quads.items()}


def _launches(quads: Sequence[Sequence[Timed]]) -> dict[str, LaunchShare]:
    by_variant: dict[str, list[tuple[Timed, BlockLaunch]]] = {}
    for timed in chain.from_iterable(quads):
        if timed.launch is not None:
            by_variant.setdefault(timed.block.variant, []).append((timed, timed.launch))
    return {name: _launch_share(found) for name, found in by_variant.items()}


def _launch_share(found: Sequence[tuple[Timed, BlockLaunch]]) -> LaunchShare:
    gaps_s = [launch.gap_s for _, launch in found if launch.gap_s is not None]
    return launch_share(
        median(timed.took_s for timed, _ in found),
        median(launch.overhead_s for _, launch in found),
        sum(timed.block.calls_count for timed, _ in found),
        starved_ratio=sum(timed.starved for timed, _ in found) / len(found),
        issue_s=median(launch.issue_s for _, launch in found),
        gap_s=median(gaps_s) if gaps_s else None,
    )


def _by_position(a: str, quads: Sequence[Sequence[Timed]]) -> Quads:
    """Sort the halves of each quad by the variant that ran first."""
    a_s, b_s = np.empty((len(quads), 2)), np.empty((len(quads), 2))
    for number, quad in enumerate(quads):
        for first, second in (quad[:2], quad[2:]):
            is_a_first = first.block.variant == a
            column = 0 if is_a_first else 1
            a_s[number, column], b_s[number, column] = (
                (first.took_s, second.took_s) if is_a_first else (second.took_s, first.took_s)
            )
    return Quads(a_s, b_s)


def warm_up(timer: BlockTimer, runners: Sequence[Runner], seconds: float) -> None:
    """Run the variants in turn for ``seconds``, and discard their times."""
    turns = (runner.block(turn) for turn in count() for runner in runners)
    _spend(timer, turns, seconds)


def run_alone(timer: BlockTimer, a: Runner, b: Runner, *, warm_s: float, seconds: float, rounds_count: int) -> Interval | None:
    """Run each variant alone in rounds ordered ABBA, and return the ratio's interval with each at its own clock.

    Each run warms up and then measures.  The interval is a t interval over the rounds.  Return None for fewer than two rounds.
    """
    logs = []
    for turn in range(rounds_count):
        took_s = {}
        for runner in (a, b) if turn % 2 == 0 else (b, a):
            _spend(timer, repeat(runner.block(turn)), warm_s)
            took_s[runner.name] = float(np.median(_spend(timer, (runner.block(each) for each in count()), seconds)))
        logs.append(np.log(took_s[b.name] / took_s[a.name]))
    if len(logs) < 2:
        return None
    from scipy.special import stdtrit

    centre = float(np.mean(logs))
    half = float(stdtrit(len(logs) - 1, 0.975) * np.std(logs, ddof=1) / np.sqrt(len(logs)))
    edges = [float(np.exp(value)) for value in (centre, centre - half, centre + half)]
    return Interval(edges[0], edges[1], edges[2], 0.95, len(logs))


def _spend(timer: BlockTimer, blocks: Iterator[Block], seconds: float) -> list[float]:
    took_s: list[float] = []
    spent_s = 0.0
    for timed in timer.times(blocks):
        took_s.append(timed.took_s)
        spent_s += timed.whole_s
        if spent_s >= seconds:
            break
    return took_s
