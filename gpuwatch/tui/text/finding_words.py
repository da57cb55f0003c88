"""The lines of a verdict on the screen, as `gpuwatch show` prints them, with the figures of each finding."""

import textwrap
from collections.abc import Callable
from functools import partial

from annotate.output import report
from annotate.output.fact_words import bare_phrase
from annotate.verdict import Finding, Verdict
from gpuwatch.tui.text import words
from gpuwatch.tui.text.words import Piece, Tone

_SEVERITIES = {"reject": ("R", Tone.BAD), "flag": ("F", Tone.WARN), "note": ("n", Tone.NOTE)}
_INDENT = " " * 4


def around(verdict: Verdict, width: int, *, every: bool) -> tuple[list[list[Piece]], list[list[Piece]]]:
    """Return the lines of ``report.around``, wrapped: the lines before the findings and the lines after.

    With ``every``, the lines also name each rule that found no hazard.
    """
    head, tail = report.around(verdict, verbose=every, more="press a to list them")
    chip = words.STATUSES[verdict.status.value]
    status, _, rest = head[0].partition("  ")
    first = [Piece(f"{chip.letter} {status}", chip.tone), Piece(words.cut(f"  {rest}", width - len(status) - 2))]
    return [first, *_wrapped(head[1:], width, Tone.DIM)], _wrapped(tail, width, Tone.DIM)


def lines(finding: Finding, format_time: Callable[[int], str], width: int) -> list[list[Piece]]:
    """Return the lines of a finding: its rule, effect and time, its sentence, its remedy and its figures."""
    letter, tone = _SEVERITIES.get(finding.severity or "note", ("n", Tone.NOTE))
    head = f"  {finding.severity}{', accepted' if finding.accepted else ''}{_effect(finding)}{_when(finding, format_time)}"
    rule = f"{letter} {report.plain(finding.rule)}"
    shown = [[Piece(rule, Tone.DIM if finding.accepted else tone), Piece(words.cut(head, max(width - len(rule), 8)), Tone.DIM)]]
    shown += _wrapped([_INDENT + report.plain(finding.says)], width, Tone.PLAIN)
    if finding.remedy:
        shown += _wrapped([f"{_INDENT}→ {report.plain(finding.remedy)}"], width, Tone.GOOD)
    figures = "   ".join(
        f"{report.plain(name)} {f'{value:.4g}' if isinstance(value, float) else bare_phrase(report.plain(str(value)))}"
        for name, value in finding.facts.items()
        if value is not None and not (isinstance(value, str) and value in finding.says)
    )
    return shown + (_wrapped([_INDENT + figures], width, Tone.DIM) if figures else [])


def _effect(finding: Finding) -> str:
    if finding.effect_ratio is None:
        return ""
    return f"   reads {abs(finding.effect_ratio):.1%} too {'long' if finding.effect_ratio > 0 else 'short'}"


def _when(finding: Finding, format_time: Callable[[int], str]) -> str:
    if finding.span_ns is None:
        return ""
    begin_ns, end_ns = finding.span_ns
    return f"   {format_time(begin_ns)} for {words.span(max(0, end_ns - begin_ns) / 1e9)}"


def _wrapped(texts: list[str], width: int, tone: Tone) -> list[list[Piece]]:
    wrap = partial(textwrap.wrap, width=max(width, 20), subsequent_indent=_INDENT, break_on_hyphens=False)
    return [[Piece(line, tone)] for text in texts for line in wrap(text)]
