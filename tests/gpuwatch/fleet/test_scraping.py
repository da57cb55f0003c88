"""Tests that promtool accepts the files of docs/FLEET.md, and that three servers agree on many machines.

The servers are Prometheus, a VictoriaMetrics that Prometheus feeds, and a VictoriaMetrics that scrapes.
"""

from __future__ import annotations

import math
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.gpuwatch.fleet.servers import Server, blocks, machines, prometheus, rules, victoria
from tests.gpuwatch.fleet.warehouse import PAGE
from tests.gpuwatch.programs import program
from tests.waiting import wait_until

RECORDING = PAGE.parents[1] / "dashboards" / "recording.yml"
# The servers scrape at different moments, and a GPU changes within seconds.
OF_FLEET, OF_ONE = 0.05, 0.15
MOST_SLOWER = 16.0  # from this slowdown of the scrapes on, a failure is final
OLD_S = 0.3  # a sample's usual age: with ``over_s=4`` readings arrive every 0.2 s, and a page takes some hundredths of a second
OF_MACHINES = (
    "gpuwatch:gpu_held_back:ratio5m", "gpuwatch:gpu_held_back_by_hardware:ratio5m", "gpuwatch:gpu_clock_under_load:ratio5m",
    "gpuwatch:gpu_power:watts5m", "gpuwatch:windows:increase1d",
)  # fmt: skip


def test_fleet_page_rules_pass_promtool(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(blocks()["fleet-rules.yml"])
    checked = subprocess.run(
        [program("promtool"), "check", "rules", tmp_path / "rules.yml"], capture_output=True, text=True, check=False
    )
    assert "5 rules found" in checked.stdout, checked.stdout + checked.stderr


def test_fleet_page_configuration_passes_promtool(tmp_path: Path) -> None:
    for name, text in blocks().items():
        (tmp_path / name).write_text(text)
    (tmp_path / "recording.yml").write_text(RECORDING.read_text())
    checked = subprocess.run(
        [program("promtool"), "check", "config", tmp_path / "prometheus.yml"], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.timeout(1200)  # everything is slower on a crowded machine
def test_three_servers_agree_on_two_machines(tmp_path: Path) -> None:
    compare_servers(tmp_path, machines_count=2, gpus_count=4, period_s=0.5, over_s=8)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_three_servers_agree_on_five_machines(tmp_path: Path) -> None:
    compare_servers(tmp_path, machines_count=5, gpus_count=8, period_s=0.5, over_s=4)


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_three_servers_agree_on_fifty_machines(tmp_path: Path) -> None:
    compare_servers(tmp_path, machines_count=50, gpus_count=8, period_s=5.0, over_s=30)


def compare_servers(folder: Path, *, machines_count: int, gpus_count: int, period_s: float, over_s: int) -> None:
    """Compare the servers at a rate that this machine can serve; halve the rate while scrapes fail."""
    slower = crowding_ratio()
    while not compare_at_rate(folder / f"{slower:g}", machines_count, gpus_count, period_s, over_s, slower):
        slower *= 2


def compare_at_rate(folder: Path, machines_count: int, gpus_count: int, period_s: float, over_s: int, slower: float) -> bool:
    """Compare the servers at a time without a failed scrape before it; return False if there is no such time at this rate.

    Raises AssertionError: when the servers differ, or when there is no such time from ``MOST_SLOWER`` on.
    """
    folder.mkdir()
    with machines(machines_count, gpus_count, period_s=over_s / 20) as targets, victoria(folder / "written") as written:
        period_s, over_s = slower * period_s, math.ceil(slower * over_s)
        period = f"{round(period_s * 1e3)}ms"
        of_fleet, of_machines = (
            # A day is longer than the test, and each server extrapolates partial ranges differently.
            text.replace("[5m]", f"[{over_s}s]").replace("[1d]", f"[{over_s}s]")
            for text in (blocks()["fleet-rules.yml"], RECORDING.read_text())
        )
        whole = blocks()["prometheus.yml"].replace("http://victoria:8428", written.url)
        whole = whole.replace('["node1:9836", "node2:9836"]', str(targets))
        whole = whole.replace("15s\n", f"{period}\n  evaluation_interval: {period}\n")
        whole += "    queue_config: {batch_send_deadline: 300ms}\n"  # so that this test waits less
        scrapes = whole.partition("scrape_configs:")[2].partition("remote_write:")[0]
        alone = f"global:\n  scrape_interval: {period}\nscrape_configs:{scrapes}"
        with (
            prometheus(
                folder / "prometheus", {"prometheus.yml": whole, "fleet-rules.yml": of_fleet, "recording.yml": of_machines}
            ) as first,
            victoria(folder / "scraping", scrape_config=alone) as second,
        ):
            try:
                at_s = wait_for(first, written, second, machines_count, period_s, over_s)
            except AssertionError:
                if slower >= MOST_SLOWER:
                    raise
                return False
            late_ratio = 2 * max(late_s(server, at_s, over_s) for server in (first, second)) / over_s
            chosen = {name: expr for name, expr in rules(of_machines).items() if name in OF_MACHINES}
            assert (len(rules(of_fleet)), len(chosen)) == (5, 5)
            for name, expr in {**rules(of_fleet), **chosen}.items():
                ours = first.ask(name, at_s)
                assert ours, name
                assert written.ask(name, at_s) == pytest.approx(ours, rel=1e-6), name  # the same samples, stored elsewhere
                now = first.ask(expr, at_s)
                assert now.keys() == ours.keys(), name
                for server in (written, second):
                    near(server.ask(expr, at_s), now, name, late_ratio)
            gpus = first.ask("gpuwatch:fleet_gpus:sum", at_s)
            assert gpus == {'{"state": "answering"}': machines_count * gpus_count, '{"state": "lost"}': 0.0}
            for server in (first, written, second):
                assert server.ask("count(gpuwatch_gpu_field_supported)", at_s) == {}
                assert server.ask("count(gpuwatch_gpu_up)", at_s) == {"{}": machines_count * gpus_count}
    return True


def crowding_ratio(cpu_s: float = 0.2) -> float:
    """Return the current slowdown of a computation on this machine, from 1 to 4."""
    begun_s, until_s = time.monotonic(), time.process_time() + cpu_s
    while time.process_time() < until_s:
        pass
    return min(4.0, max(1.0, (time.monotonic() - begun_s) / cpu_s))


def wait_for(
    first: Server, written: Server, second: Server, machines_count: int, period_s: float, over_s: int
) -> float:  # fmt: skip
    """Return a time at which the servers have full ranges of every machine, and no failed scrape in the three periods before.

    A scrape that exceeds the period ends all series of its machine until the next scrape.  A rule's recorded value would
    then differ from the current value of its expression.
    """
    whole = (
        f"count(count_over_time(gpuwatch_up[{over_s}s]) >= 5 and on (instance) "
        f"(min_over_time(up[{3 * round(period_s * 1e3)}ms]) == 1)) and on () (min(gpuwatch_up offset {over_s}s) == 1)"
    )

    def moment() -> float:
        at_s = time.time() - 1.5
        # The last value of a rule can be one period old.
        moments = (at_s - 2 * period_s, at_s)
        is_whole = all(server.ask(whole, s) == {"{}": machines_count} for server in (first, written, second) for s in moments)
        return at_s if is_whole and first.ask("gpuwatch:fleet_windows_spoilt:ratio5m", at_s) else 0.0

    logs = (first.log, written.log, second.log)
    return wait_until(moment, what=lambda: "".join(log.read_text() for log in logs), deadline_s=30 + 3 * over_s, every_s=0.2)


def late_s(server: Server, at_s: float, over_s: int) -> float:
    """Return the largest age of a sample in seconds, minus the usual age on an idle machine."""
    of_scrapes = f"max(max_over_time(scrape_duration_seconds[{over_s}s]))"
    of_readings = f'max(max_over_time(gpuwatch_reading_age_seconds{{lane="fast"}}[{over_s}s]))'
    return max(0.0, server.ask(f"{of_scrapes} + {of_readings}", at_s)["{}"] - OLD_S)


def near(found: Mapping[str, float], expected: Mapping[str, float], name: str, late_ratio: float) -> None:
    assert found.keys() == expected.keys(), name
    apart = late_ratio + (OF_ONE if name in OF_MACHINES else OF_FLEET)
    for labels, value in expected.items():
        # Another server can have counted a few more windows.
        assert found[labels] == pytest.approx(value, rel=apart, abs=4 if "windows:" in name else apart), (name, labels)
