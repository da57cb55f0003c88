"""What one refresh of the fleet's dashboard asks of a Prometheus with 250 hosts of eight GPUs, query by query; and its rules."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from dashboards.asking import HERE, PanelQuery, Prometheus, asked, asked_of, fill
from tests.bench import backfilled
from tests.bench.backfilled import SCRAPE_S, Rule

BEFORE = "d2faa25d"  # the commit before dashboards asked recording rules
_POINTS_COUNT = 240  # of a panel's axis of time, as wide as a screen shows
_ROUNDS_COUNT = 3
_SLOW_S = 2.0


def main() -> dict[str, float]:
    earlier = _earlier()
    own = list(asked("fleet"))
    until_s = backfilled.end_s()
    with tempfile.TemporaryDirectory(prefix="gw") as name:
        folder = Path(name)
        rules = backfilled.needed(backfilled.rules(), [query.expr for query in own])
        texts = [query.expr for query in (*own, *earlier)] + [rule.expr for rule in rules]
        samples_count = backfilled.write_scrapes(folder / "scrapes.om", backfilled.asked_names(texts), until_s)
        backfilled.add_block(folder / "scrapes.om", folder / "tsdb")
        evaluated_s = _recorded(folder, rules, until_s)
        with backfilled.serving(folder) as prometheus:
            series_count = int(prometheus.now('count({job="gpuwatch"})', until_s)[0].last)
            print(
                f"{backfilled.HOSTS_COUNT} hosts of {backfilled.GPUS_COUNT} GPUs, {series_count} series, {samples_count / 1e6:.0f} million samples {SCRAPE_S} s apart"
            )
            now_s = _refresh("one refresh of the fleet's dashboard, over the last hour", own, prometheus, until_s)
            before_s = _refresh(f"the same at {BEFORE}, which asked for all of it each 10 s", earlier, prometheus, until_s)
    print(f"\n{'recording rules, evaluated once':<76}{'ms':>8}")
    for rule, took_s in evaluated_s.items():
        print(f"{rule:<76}{1e3 * took_s:8.0f}")
    rules_s = sum(evaluated_s.values())
    print(f"{'all of them':<76}{1e3 * rules_s:8.0f}")
    return {"refresh_s": now_s, "rules_s": rules_s} | ({"before_s": before_s} if earlier else {})


def _recorded(folder: Path, rules: Sequence[Rule], until_s: int) -> dict[str, float]:
    """Backfill what the rules record; how long each takes."""
    took_s: dict[str, float] = {}
    for level in backfilled.levels(rules):
        path = folder / "recorded.om"
        with backfilled.serving(folder) as prometheus:
            took_s |= {rule.name: backfilled.record(rule, prometheus, until_s, path) for rule in level}
        with path.open("a") as file:
            file.write("# EOF\n")
        backfilled.add_block(path, folder / "tsdb")
    return took_s


def _refresh(title: str, queries: Sequence[PanelQuery], prometheus: Prometheus, until_s: int) -> float:
    """Print how long each query takes, the least of some rounds; return their sum."""
    if not queries:
        return 0.0
    step_s = max(SCRAPE_S, 3600 // _POINTS_COUNT)
    values = {
        "job": "gpuwatch",
        "instance": ".*",
        "__range": "3600s",
        "__range_s": "3600",
        "__rate_interval": f"{4 * SCRAPE_S}s",
    }
    print(f"\n{title:<68}{'series':>8}{'ms':>8}")
    total_s = 0.0
    for query in queries:
        expr = fill(query.expr, values)
        what = {"query": expr, "time": str(until_s)} if query.instant else {
            "query": expr, "start": str(until_s - 3600), "end": str(until_s), "step": str(step_s)
        }  # fmt: skip
        kind = "query" if query.instant else "query_range"
        took_s, count = _asked(prometheus, kind, what)
        total_s += took_s
        print(f"{query.panel[:58]:<60}{query.ref:<8}{count:8}{1e3 * took_s:8.0f}")
    print(f"{'all of them, one after the other':<76}{1e3 * total_s:8.0f}")
    return total_s


def _asked(prometheus: Prometheus, kind: str, what: Mapping[str, str]) -> tuple[float, int]:
    """Ask some times, once where it is slow; return the least time and how many series came."""
    took_s: list[float] = []
    while len(took_s) < _ROUNDS_COUNT and sum(took_s) < _SLOW_S:
        begun_s = time.perf_counter()
        found = prometheus.get(kind, **what)["result"]
        took_s.append(time.perf_counter() - begun_s)
    return min(took_s), len(found)


def _earlier() -> list[PanelQuery]:
    """The dashboard's queries of the commit before, where the checkout has it."""
    command = ["git", "-C", str(HERE), "show", f"{BEFORE}:dashboards/fleet.json"]
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    return list(asked_of("fleet", json.loads(shown.stdout))) if shown.returncode == 0 else []


if __name__ == "__main__":
    main()
