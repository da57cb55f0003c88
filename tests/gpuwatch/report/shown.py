"""Pictures of a report for README, from a real Chromium: ``python -m tests.gpuwatch.report.shown [FOLDER]``, default docs/."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from annotate.capsule.pack import unpack
from tests.gpuwatch import chromium
from tests.gpuwatch.report.conftest import judged, rendered
from tests.gpuwatch.report.test_html_page import CAPSULE

LABEL, WIDTH, HEIGHT = "plain-run", 1280, 1222  # onset of an H200's power cap; the height includes the power plot


def pictures(folder: Path) -> None:
    piece = next(each for each in unpack(CAPSULE.read_bytes()) if each.window.label == LABEL)
    with chromium.running() as browser, tempfile.TemporaryDirectory() as made_in:
        report = Path(made_in) / "report.html"
        report.write_text(rendered(judged(piece)))
        page = browser.open(report)
        page.ask("Emulation.setDeviceMetricsOverride", width=WIDTH, height=HEIGHT, deviceScaleFactor=1, mobile=False)
        page.until("document.documentElement.dataset.drawn === 'yes'")
        for theme in ("light", "dark"):
            page.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
            page.run("new Promise((done) => setTimeout(done, 500))")
            page.screenshot(folder / f"report-{theme}.png", whole=False)


if __name__ == "__main__":
    pictures(Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).parents[3] / "docs")
