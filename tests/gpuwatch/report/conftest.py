"""Helpers that make reports of simulated windows, and a parser of the pages."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from functools import cache
from html.parser import HTMLParser
from typing import Any

from annotate.evidence import Evidence
from annotate.judge import judge
from gpuwatch.report import html_page, record
from gpuwatch.report.record import ReportedWindow
from gpuwatch.sources.simulated.offline import simulate

NONCE = "n" * 24
_VOID = {"meta", "br", "hr", "img", "input", "link"}


@cache
def scene(name: str) -> Evidence:
    return simulate(name)[0]


def judged(evidence: Evidence, **facts: Any) -> ReportedWindow:
    return ReportedWindow(verdict=judge(evidence), evidence=evidence, **facts)


def with_processes(evidence: Evidence, **changes: Any) -> Evidence:
    """Return the evidence with these changes to every process."""
    process_lists = tuple(
        replace(process_list, processes=tuple(replace(each, **changes) for each in process_list.processes))
        for process_list in evidence.trace.process_lists
    )
    return replace(evidence, trace=replace(evidence.trace, process_lists=process_lists))


def scaled(evidence: Evidence, ratio: float, label: str) -> Evidence:
    """Return the evidence with all times multiplied by a ratio, under another label."""
    assert evidence.timings is not None
    return replace(
        evidence,
        window=replace(evidence.window, label=label),
        timings=replace(evidence.timings, took_s=evidence.timings.took_s * ratio),
    )


def rendered(*windows: ReportedWindow) -> str:
    return html_page.render(record.make_record(windows), NONCE)


@dataclass
class Page(HTMLParser):
    """A browser's view of the page: balanced tags, text outside scripts and styles, and the blocks of data."""

    html: str
    attributes: list[tuple[str, str, str | None]] = field(default_factory=list)
    text: str = ""
    blocks: dict[str, str] = field(default_factory=dict)
    scripts: list[dict[str, str | None]] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._open: list[str] = []
        self._block: str | None = None
        self.feed(self.html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in _VOID:
            self._open.append(tag)
        if tag == "script":
            self.scripts.append(dict(attrs))
            self._block = dict(attrs).get("id") or "code"
            self.blocks[self._block] = ""

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag
        self._block = None

    def handle_data(self, data: str) -> None:
        if self._block is not None:
            self.blocks[self._block] += data
        elif self._open[-1:] != ["style"]:
            self.text += data

    @property
    def words(self) -> str:
        return " ".join(self.text.split())

    def data(self, name: str) -> Any:
        return json.loads(self.blocks[name])
