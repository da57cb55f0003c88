"""Target: a foreign report gives windows that can be judged again, or a one-line error."""

from __future__ import annotations

import base64
import copy
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from annotate.capsule import pack
from annotate.judge import judge
from gpuwatch.errors import UsageError
from gpuwatch.report import read_page, record
from gpuwatch.report.record import ReportedWindow
from gpuwatch.report.rejudge import agreement
from tests.annotate.builders import evidence
from tests.fuzz.dealt import Dealt
from tests.fuzz.refused import in_one_line, sampled
from tests.fuzz.targets import capsules

_PATH = Path(tempfile.mkdtemp(prefix="gpuwatch-fuzz")) / "report.html"
_PAGE = (
    '<html><meta data-nonce="{nonce}"><script type="application/json" id="gpuwatch-record">{data}</script>'
    '<script type="text/plain" id="gpuwatch-evidence">{evidence}</script>'
    '<script type="text/plain" id="gpuwatch-plotly">{library}</script></html>'
)


@cache
def _data() -> dict[str, Any]:
    about = evidence(length_s=0.3, period_s=0.1, signals={"sm_clock_mhz": 1980, "power_w": 600.0})
    # With another maker's name, the reader does not render the page again, which would be slow.
    return record.to_data(record.Record(windows=(ReportedWindow(verdict=judge(about), evidence=about),), maker="another"))[0]


def target(data: bytes) -> None:
    dealt = Dealt(data)
    if dealt.byte() < 64:
        _PATH.write_bytes(dealt.rest())
    else:
        _PATH.write_text(_altered(dealt), encoding="utf-8")
    try:
        held = read_page.load(_PATH)
    except UsageError as error:
        in_one_line(error)
        return
    for window in held.record.windows if sampled(data, 8) else ():
        assert agreement(window).differs is not None


def _altered(dealt: Dealt) -> str:
    facts = copy.deepcopy(_data())
    for _ in range(1 + dealt.byte() % 3):
        capsules.replace_value(facts, dealt)
    blob = capsules.alter(dealt) if dealt.byte() % 2 else pack.pack(())
    coded = base64.b64encode(blob).decode() if dealt.byte() % 8 else dealt.text()
    return _PAGE.format(nonce=dealt.text(), data=record.as_json(facts), evidence=coded, library=dealt.text())
