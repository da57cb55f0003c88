"""Pictures of the dashboards' tops, drawn with Grafana's own components from npm: ``python -m tests.pictures dashboards``.

npm installs the packages of ``picture/package.json`` into a folder that git ignores.  A run takes ten to twenty minutes.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dashboards.asking import asked, board, fill
from dashboards.show import TimeAndPlace, looks
from tests.dashboards.page import run_windows
from tests.dashboards.watched import ROOT, watched
from tests.gpuwatch import chromium

RUN_S, SPAN_S, STEP_S = 400.0, 120.0, 1.0  # a recorded share of five minutes needs five minutes
WIDTH, HEIGHT = 1600, 1000
SHOWN_GPU = "GPU-51301a7e-0000-0000-0000-000000000002"  # too hot
_PAGE = Path(__file__).parent / "picture"
_INSTALL = ("npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")


def pictures(folder: Path) -> None:
    """Draw each dashboard in both themes, from a real Prometheus that scraped real daemons with simulated GPUs."""
    page_at = built(ROOT / "build" / "grafana")
    contents = dict(queried())
    with chromium.running() as browser:
        page = browser.open(page_at)
        page.ask("Emulation.setDeviceMetricsOverride", width=WIDTH, height=HEIGHT, deviceScaleFactor=1, mobile=False)
        for name, content in contents.items():
            for theme in ("light", "dark"):
                icons_count = page.run(f"draw({json.dumps(content)}, {json.dumps(theme)})")
                page.until(f"document.querySelectorAll('svg').length >= {icons_count}")
                page.run("new Promise((done) => setTimeout(done, 1000))")
                page.screenshot(folder / f"dashboard-{name}-{theme}.png", whole=False)


def built(folder: Path) -> Path:
    """Install the packages, and return the page made from them."""
    shutil.copytree(_PAGE, folder, dirs_exist_ok=True)
    for command in (_INSTALL, ("npm", "run", "build")):
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return folder / "page.html"


def queried() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each dashboard with the answers to its queries (JSON, hence Any), after some minutes of windows."""
    with tempfile.TemporaryDirectory() as folder, watched(Path(folder)) as fleet:
        run_windows(fleet, RUN_S)
        for name, look in looks(fleet.prometheus, since_s=SPAN_S, uuid=SHOWN_GPU):
            values = {**look.values, "__rate_interval": "4s"} | ({"instance": "busy"} if name == "gpu" else {})
            yield name, _content(name, replace(look, values=values))


def _content(name: str, look: TimeAndPlace) -> Mapping[str, Any]:
    answers: dict[str, dict[str, Any]] = {}
    for query in (query for query in asked(name) if query.ref != "annotation"):
        expr = fill(query.expr, look.values)
        span = {"start": f"{look.begin_s:.0f}", "end": f"{look.end_s:.0f}", "step": f"{STEP_S:g}"}
        when = ("query", {"time": f"{look.end_s:.3f}"}) if query.instant else ("query_range", span)
        answers.setdefault(query.panel, {})[query.ref] = look.prometheus.get(when[0], query=expr, **when[1])["result"]
    return {"board": board(name), "answers": answers, "begin_s": look.begin_s, "end_s": look.end_s, "step_s": STEP_S}
