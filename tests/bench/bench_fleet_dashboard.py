"""The cost of one refresh of the fleet dashboard on a Prometheus with 250 hosts of eight GPUs, by query, and of its
recording rules."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from dashboards.asking import HERE, PanelQuery, asked, asked_of, fill
from tests.bench import backfilled
from tests.bench.backfilled import SCRAPE_S, Cost, Rule, Served

BEFORE = "d2faa25d"  # a commit whose fleet dashboard queries no recorded series
_POINTS_COUNT = 240  # points of a panel's time axis, as on a wide screen
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
        evaluated = _recorded(folder, rules, until_s)
        with backfilled.serving(folder) as prometheus:
            count = int(prometheus.now('count({job="gpuwatch"})', until_s)[0].last)
            stored_text = f"{count} series, {samples_count / 1e6:.0f} million samples {SCRAPE_S} s apart"
            print(f"{backfilled.HOSTS_COUNT} hosts of {backfilled.GPUS_COUNT} GPUs, {stored_text}; CPU is Prometheus'")
            now = _refresh("one refresh of the fleet's dashboard, the last hour", own, prometheus, until_s)
            before = _refresh(f"the same at {BEFORE}, each 10 s", earlier, prometheus, until_s)
    print(f"\n{'recording rules of the dashboard, evaluated once':<60}{'series':>8}{'ms':>8}{'CPU ms':>8}")
    rules_cost = _printed((rule, "", cost) for rule, cost in evaluated.items())
    figures = {
        "refresh_s": now.took_s,
        "refresh_cpu_s": now.cpu_s,
        "rules_s": rules_cost.took_s,
        "rules_cpu_s": rules_cost.cpu_s,
    }
    return figures | ({"before_s": before.took_s, "before_cpu_s": before.cpu_s} if earlier else {})


def _recorded(folder: Path, rules: Sequence[Rule], until_s: int) -> dict[str, Cost]:
    """Backfill the rules' series; return the cost of each rule."""
    found: dict[str, Cost] = {}
    for level in backfilled.levels(rules):
        path = folder / "recorded.om"
        with backfilled.serving(folder) as prometheus:
            found |= {rule.name: backfilled.record(rule, prometheus, until_s, path) for rule in level}
        with path.open("a") as file:
            file.write("# EOF\n")
        backfilled.add_block(path, folder / "tsdb")
    return found


def _refresh(title: str, queries: Sequence[PanelQuery], prometheus: Served, until_s: int) -> Cost:
    """Run every query of a dashboard in some rounds; print the least cost of each, and return the sum."""
    begin_s, step_s = until_s - 3600, max(SCRAPE_S, 3600 // _POINTS_COUNT)
    values = {
        "job": "gpuwatch",
        "instance": ".*",
        "__range": "3600s",
        "__range_s": "3600",
        "__rate_interval": f"{4 * SCRAPE_S}s",
    }

    def cost(query: PanelQuery) -> Cost:
        expr = fill(query.expr, values)
        over = {"query": expr, "start": str(begin_s), "end": str(until_s), "step": str(step_s)}
        return (
            _least(prometheus, "query", {"query": expr, "time": str(until_s)})
            if query.instant
            else _least(prometheus, "query_range", over)
        )

    print(f"\n{title:<60}{'series':>8}{'ms':>8}{'CPU ms':>8}")
    return _printed((query.panel, query.ref, cost(query)) for query in queries)


def _least(prometheus: Served, kind: str, what: Mapping[str, str]) -> Cost:
    """Run a query three times, or fewer once the runs took 2 s together; return the least cost."""
    found: list[Cost] = []
    while len(found) < _ROUNDS_COUNT and sum(each.took_s for each in found) < _SLOW_S:
        found.append(prometheus.asked(kind, what))
    return Cost(found[0].series_count, min(each.took_s for each in found), min(each.cpu_s for each in found))


def _printed(rows: Iterable[tuple[str, str, Cost]]) -> Cost:
    total = Cost(0, 0.0, 0.0)
    for name, ref, cost in rows:
        print(f"{name[:56]:<57}{ref:<3}{cost.series_count:8}{1e3 * cost.took_s:8.0f}{1e3 * cost.cpu_s:8.0f}")
        total = Cost(total.series_count + cost.series_count, total.took_s + cost.took_s, total.cpu_s + cost.cpu_s)
    print(f"{'all of them, one after the other':<60}{total.series_count:8}{1e3 * total.took_s:8.0f}{1e3 * total.cpu_s:8.0f}")
    return total


def _earlier() -> list[PanelQuery]:
    """Return the dashboard's queries at the earlier commit, or none if the checkout lacks the commit."""
    command = ["git", "-C", str(HERE), "show", f"{BEFORE}:dashboards/fleet.json"]
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    return list(asked_of("fleet", json.loads(shown.stdout))) if shown.returncode == 0 else []


if __name__ == "__main__":
    main()
