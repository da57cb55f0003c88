"""The campaign's command.

python -m tests.campaign [--seconds S] [--seeds FIRST:LAST] [--rule RULE] [--workers N] [--fresh] [--out FILE]

A run continues from the file's state, unless the judge has changed since, and stops at the time limit or after the last seed.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path

from tests.campaign import measure, render, results

_CHUNK = 4
# Time between saves.
_SAVED_S = 120.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="stop after this time, in seconds")
    parser.add_argument("--seeds", default="0:3000", help="FIRST:LAST, the last not included")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--fresh", action="store_true", help="start again even if the judge has not changed")
    parser.add_argument("--out", type=Path, default=results.FILE)
    parser.add_argument("--rule", help="inject only the hazards of this rule, without saving")
    options = parser.parse_args()
    first, last = (int(edge) for edge in options.seeds.split(":"))
    before = results.Results(results.judge_digest())
    if not options.fresh and options.rule is None and options.out.exists():
        kept = results.load(options.out)
        before = kept if kept.judge == before.judge else before
    deadline_s = time.monotonic() + options.seconds
    found = before
    while (todo := [seed for seed in range(first, last) if seed not in found.seeds]) and time.monotonic() < deadline_s:
        seconds = min(_SAVED_S, deadline_s - time.monotonic())
        found = run(found, todo, seconds=seconds, workers=options.workers, rule=options.rule)
        if options.rule is None:
            results.save(found, options.out)
    print("\n".join(render.tables(found)))


def run(before: results.Results, todo: list[int], *, seconds: float, workers: int, rule: str | None = None) -> results.Results:
    """Run more seeds in several processes, until all are done or the time is up; started seeds are finished."""
    deadline_s = time.monotonic() + seconds
    chunks = [todo[i : i + _CHUNK] for i in range(0, len(todo), _CHUNK)]
    seeds: list[int] = []
    counts: Counter[str] = Counter()
    with ProcessPoolExecutor(workers) as pool:
        recorded = pool.submit(measure.of_recorded) if rule is None and not before.recorded else None
        running: dict[Future[measure.Counts], list[int]] = {}
        while chunks or running:
            while chunks and len(running) < 2 * workers and time.monotonic() < deadline_s:
                chunk = chunks.pop(0)
                running[pool.submit(measure.of_seeds, chunk, rule)] = chunk
            if not running:
                break
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for each in done:
                seeds += running.pop(each)
                counts.update(each.result())
        return before.plus(seeds, counts, recorded.result() if recorded else None)


if __name__ == "__main__":
    main()
