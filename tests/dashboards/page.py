"""Generator of ``docs/DASHBOARDS.md``, the text of every panel for a small simulated fleet.

Run ``python -m tests.dashboards.page``.  The page differs between runs, so no test compares the text.  Other tests cover the
queries and the drawing.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from dashboards.show import looks, shown
from tests.dashboards.watched import ROOT, Fleet, measured, watched
from tests.waiting import sample_for

SPAN_S = 60.0
_HEAD = """\
# Content of the dashboards

This page shows the dashboards `fleet.json`, `gpu.json` and `windows.json` of [dashboards](../dashboards/README.md): the top of each as a
picture, then every panel as text. All GPUs are SIMULATED. Prometheus and the daemons are real.

## Pictures

Grafana's own components from npm (`@grafana/ui` 11.6.0) drew these pictures. Nobody has seen the dashboards in a Grafana server. A page
of this repository stands in for the server: it reads the dashboard's JSON and Prometheus' answers, and lays out the panels. npm has no
state timeline, so the page draws the bars of "Reasons for the clock" itself. The pictures omit annotations, variables and menus.

The pictures show two minutes of the hosts below, scraped every second; the GPU is the one that is too hot.
`python -m tests.pictures dashboards` makes the pictures.

<picture>
  <source media="(prefers-color-scheme: dark)" srcset="dashboard-fleet-dark.png">
  <img alt="the fleet dashboard: eight simulated GPUs of three hosts by state, clock, power and heat" src="dashboard-fleet-light.png">
</picture>

<picture>
  <source media="(prefers-color-scheme: dark)" srcset="dashboard-gpu-dark.png">
  <img alt="the GPU dashboard: heat and the power cap hold the SM clock of a GPU below its limit" src="dashboard-gpu-light.png">
</picture>

<picture>
  <source media="(prefers-color-scheme: dark)" srcset="dashboard-windows-dark.png">
  <img alt="the windows dashboard: judged windows by status, host and rule" src="dashboard-windows-light.png">
</picture>

## Text

The text covers one minute of three hosts:

- `busy` has six GPUs: capped, shared with a neighbour, too hot, partitioned, idle, and copying.
- `faulty` has two GPUs: one is lost for two seconds in every 20, and the other reported a memory error.
- `bare` has no driver.

The GPU dashboard shows GPU 0 of `busy`. The scale of a sparkline runs from the lowest to the highest value.

`python -m dashboards.show http://127.0.0.1:9090` prints the panels of any Prometheus without Grafana.
`python -m tests.dashboards.page` writes this page.

"""


def run_windows(fleet: Fleet, span_s: float) -> None:
    """Measure windows on the busy host until the fleet's Prometheus has run for this time."""
    while time.time() - fleet.begun_s < span_s:
        for position in (0, 1, 2, 3, 5):
            measured(fleet.hosts["busy"], position, 3.3 if position in (0, 5) else 1.2)
        sample_for(2.0)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, watched(Path(folder)) as fleet:
        run_windows(fleet, SPAN_S)
        whole = {name: shown(name, look) for name, look in looks(fleet.prometheus, since_s=SPAN_S)}
        of_one = {name: shown(name, look) for name, look in looks(fleet.prometheus, since_s=SPAN_S, instance="busy")}
    text = _HEAD + "\n".join((whole["fleet"], of_one["gpu"], whole["windows"]))
    (ROOT / "docs" / "DASHBOARDS.md").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
