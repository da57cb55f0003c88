"""Target: a text in many fields of a report.  The page parses to the same text, elements and attributes."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser

from annotate.evidence import Evidence, Process, Visibility
from annotate.judge import judge
from annotate.output.report import plain
from annotate.verdict import Answered, Finding, Verdict
from gpuwatch.report import html_page
from gpuwatch.report.record import Record, ReportedWindow
from tests.annotate.builders import evidence

_NONCE = "n" * 24
_MARK = "MARKEDTEXT"
_BLOCKS = ("gpuwatch-record", "gpuwatch-drawn")


class _Events(HTMLParser):
    """The parsed page with elements, attributes and texts in order.  Data blocks are separate."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[object, ...]] = []
        self.blocks: dict[str, str] = {}
        self._block: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, *attrs))
        self._block = dict(attrs).get("id") if tag == "script" else None

    def handle_endtag(self, tag: str) -> None:
        self.found.append(("/", tag))
        self._block = None

    def handle_data(self, data: str) -> None:
        if self._block is None:
            self.found.append(("text", " ".join(data.split(" "))))
        else:
            self.blocks[self._block] = self.blocks.get(self._block, "") + data

    def handle_comment(self, data: str) -> None:
        self.found.append(("comment", data))

    def handle_decl(self, decl: str) -> None:
        self.found.append(("declaration", decl))

    def unknown_decl(self, data: str) -> None:
        self.found.append(("declaration", data))

    def handle_pi(self, data: str) -> None:
        self.found.append(("instruction", data))


@cache
def _seen() -> tuple[Evidence, Verdict]:
    about = evidence(length_s=0.3, period_s=0.1, signals={"sm_clock_mhz": 1980, "power_w": 600.0})
    return about, judge(about)


def _rendered(text: str) -> _Events:
    about, verdict = _seen()
    process = Process(pid=1, name=text, user=text)
    assert about.device is not None
    about = replace(
        about,
        window=replace(about.window, label=text),
        device=replace(about.device, name=text, driver_version=text),
        host=replace(about.host, hostname=text, profilers=text, container=text),
        declared={"exception": text},
        trace=replace(
            about.trace,
            process_lists=tuple(
                replace(c, processes=(process,), visibility=Visibility.HOST) for c in about.trace.process_lists
            ),
        ),
    )
    found = Finding(
        rule="power-limited",
        answered=Answered.FOUND,
        severity="flag",
        says=text,
        remedy=text,
        facts={"what": text},
        accepted=False,
    )
    verdict = replace(
        verdict, label=text, device_name=text, why=text, claim=text, judge_version=text, findings=(found,),
        policy={"accept": [text], "limits": {text: {text: 1.0}}},
    )  # fmt: skip
    judged = ReportedWindow(verdict=verdict, evidence=about, run_id=text, begun=text, user=text, process=text)
    # Two windows, so that the page also shows their differences.
    other = replace(judged, verdict=replace(verdict, label="other"), evidence=None)
    html = html_page.render(Record(windows=(judged, other), redacted=(), maker=text), _NONCE)
    events = _Events()
    events.feed(html)
    events.close()
    return events


@cache
def _tame() -> _Events:
    return _rendered(_MARK)


def _filled(event: tuple[object, ...], text: str) -> tuple[object, ...]:
    return tuple(part.replace(_MARK, text) if isinstance(part, str) else part for part in event)


def target(data: bytes) -> None:
    # Not empty and without a final full stop, because the page treats both specially.
    text = "x" + data[:300].decode("utf-8", "replace") + "x"
    found, tame = _rendered(text), _tame()
    shown = plain(text)
    assert not re.search(r"[\0-\x1f\x7f]", shown)
    assert found.found == [_filled(event, shown) for event in tame.found]
    for name in _BLOCKS:
        assert not set("<>&\u2028\u2029") & set(found.blocks[name])
        assert json.loads(found.blocks[name]) is not None
    said = json.loads(found.blocks["gpuwatch-record"])["windows"][0]
    assert (said["verdict"]["label"], said["user"], said["verdict"]["findings"][0]["says"]) == (text, text, text)
