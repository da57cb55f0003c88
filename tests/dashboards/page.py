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
from tests.dashboards.watched import ROOT, measured, watched
from tests.waiting import sample_for

SPAN_S = 60.0
_HEAD = """\
# Content of the dashboards

This page shows every panel of the three dashboards as text, over one minute of three hosts:

- `busy` has six GPUs: capped, shared with a neighbour, too hot, partitioned, idle, and copying.
- `faulty` has two GPUs: one is lost for two seconds in every 20, and the other reported a memory error.
- `bare` has no driver.

All GPUs are SIMULATED. Prometheus and the daemons are real. The GPU dashboard shows GPU 0 of `busy`. The scale of a sparkline
runs from the lowest to the highest value.

`python -m dashboards.show http://127.0.0.1:9090` prints the panels of any Prometheus without Grafana.
`python -m tests.dashboards.page` writes this page.

"""


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, watched(Path(folder)) as fleet:
        while time.time() - fleet.begun_s < SPAN_S:
            for position in (0, 1, 2, 3, 5):
                measured(fleet.hosts["busy"], position, 3.3 if position in (0, 5) else 1.2)
            sample_for(2.0)
        whole = {name: shown(name, look) for name, look in looks(fleet.prometheus, since_s=SPAN_S)}
        of_one = {name: shown(name, look) for name, look in looks(fleet.prometheus, since_s=SPAN_S, instance="busy")}
    text = _HEAD + "\n".join((whole["fleet"], of_one["gpu"], whole["windows"]))
    (ROOT / "docs" / "DASHBOARDS.md").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
