"""A verdict as text without colours, as Markdown, and as a small piece of HTML for notebooks without script or style sheet.

Labels, process names and device names come from outside, so they are always escaped for terminals and pages.
"""

import unicodedata
from collections import Counter
from collections.abc import Sequence
from html import escape

from annotate.output.budget_words import (
    bound_words,
    claim_line,
    has_own_line,
    has_times,
    headline,
    launch_line,
    leading_number,
    limits_line,
    second_number,
    short_shown_line,
    shown_line,
)
from annotate.output.fact_words import describe_facts
from annotate.output.markup import marked
from annotate.output.terminal_text import pack_lines, shorten_uuid, wrap_line
from annotate.verdict import Answered, Finding, Status, Verdict

_LONGEST_LABEL_COUNT = 120  # characters: a longer label is cut, with an ellipsis

_SEPARATOR = " · "
_TIMINGS = "timings"  # the basis of rules that need the times of iterations
_VALID_COUNT = 3  # lines of a valid verdict without notes
_MORE = "`gpuwatch show -v` lists them"
_BORDER = {Status.VALID: "#2e7d32", Status.UNPROVEN: "#6b7280", Status.FLAGGED: "#b45309", Status.REJECTED: "#b91c1c"}


def text(verdict: Verdict, *, verbose: bool = False, more: str = _MORE, width: int | None = None) -> str:
    """Return the text for a terminal: a line with status, window and GPU, a line per printed hazard, and the unchecked rules.

    ``more`` names the command that lists unchecked rules.  Lines wrap at words after ``width`` columns, or not at all for None.
    """
    return _text(verdict, _device(verdict), verbose=verbose, more=more, width=width)


def texts(verdicts: Sequence[Verdict], *, verbose: bool = False, more: str = _MORE, width: int | None = None) -> str:
    """Return the texts of one window's verdicts, one per GPU, worst first; UUIDs distinguish GPUs of one name."""
    names = Counter(verdict.device_name for verdict in verdicts)
    uuids = {verdict.device_uuid for verdict in verdicts if verdict.device_uuid}
    alike = Counter(shorten_uuid(uuid) for uuid in uuids)
    apart = {uuid: shorten_uuid(uuid) if alike[shorten_uuid(uuid)] == 1 else uuid for uuid in uuids}
    ordered = sorted(verdicts, key=lambda verdict: verdict.status.badness, reverse=True)
    return "\n".join(
        _text(
            verdict,
            _device(verdict, apart.get(verdict.device_uuid or "", "") if names[verdict.device_name] > 1 else ""),
            verbose=verbose,
            more=more,
            width=width,
        )
        for verdict in ordered
    )


def markdown(verdict: Verdict) -> str:
    """Return the verdict for a pull request: the lines of ``text``, a table of hazards, and all unchecked rules, folded."""
    status = f"**{verdict.status.value.upper()}**" + (" **SIMULATED**" if verdict.simulated else "")
    label = f" {marked(_label(verdict))}" if verdict.label else ""
    numbers = f"; {marked(plain(first))}" if (first := headline(verdict)) else ""
    lines = [f"{status}{label} on {marked(_device(verdict))}, {length_words(verdict.length_s)}{numbers}"]
    if verdict.why:
        lines += ["", f"Not proven: {marked(plain(verdict.why))}"]
    for line in _lines_below(verdict):
        lines += ["", marked(line)]
    if listed := _listed(verdict, is_all=False):
        lines += ["", "| Hazard | Severity | What was seen | What to do |", "|---|---|---|---|"]
        lines += [_row(finding, verdict) for finding in listed]
    if verdict.unobserved:
        lines += ["", f"<details><summary>Not checked: {_rules(len(verdict.unobserved))}</summary>", ""]
        lines += [f"- {marked(plain(finding.rule))}: {marked(plain(finding.says))}" for finding in verdict.unobserved]
        lines += ["", "</details>"]
    return "\n".join(lines) + "\n"


def plain(words: str) -> str:
    r"""Return words with escapes such as \x1b in place of control and format characters and newlines."""
    return words if words.isprintable() else "".join(map(_harmless, words))


def _harmless(character: str) -> str:
    if unicodedata.category(character)[0] == "C" or unicodedata.category(character) in ("Zl", "Zp"):
        return character.encode("unicode_escape").decode("ascii")
    return character


def around(verdict: Verdict, *, verbose: bool, more: str) -> tuple[list[str], list[str]]:
    """Return the lines of ``text`` before and after the hazards, for interfaces that show hazards differently."""
    if verbose:
        return _before(verdict, _device(verdict)), _full(verdict, has_figures=False)
    return _briefly(verdict, _device(verdict), more)


def first_lines(verdict: Verdict) -> list[str]:
    """Return numbers, labels, launch share, stated claim, overridden limits and proofs, each on one line if not empty."""
    return [line for line in (headline(verdict), *_lines_below(verdict)) if line]


def _text(verdict: Verdict, device: str, *, verbose: bool, more: str, width: int | None) -> str:
    lines, rest = (_before(verdict, device), _full(verdict)) if verbose else _briefly(verdict, device, more)
    listed = _listed(verdict, is_all=verbose)
    column = max((len(plain(finding.rule)) for finding in listed), default=0)
    hazards = [
        f"  {plain(finding.rule):<{column}}   {_marks(finding, verdict)}{_sentence(finding, verdict)}" for finding in listed
    ]
    if width is not None:
        lines = (
            pack_lines(lines, width, _VALID_COUNT)
            if verdict.status is Status.VALID and not verbose
            else [wrap_line(line, width, 4) for line in lines]
        )
        hazards = [wrap_line(line, width, column + 5) for line in hazards]
        rest = [wrap_line(line, width, 4) for line in rest]
    return "\n".join([*lines, *hazards, *rest])


def _before(verdict: Verdict, device: str) -> list[str]:
    lines = [_head(verdict, device, headline(verdict))]
    if verdict.why:
        lines.append(f"  {'why' if verdict.status is Status.UNPROVEN else 'not proven'}: {plain(verdict.why)}")
    lines += [f"  {line}" for line in _lines_below(verdict)]
    return lines


def _head(verdict: Verdict, device: str, numbers: str) -> str:
    simulated = "SIMULATED" if verdict.simulated else ""
    head = (verdict.status.value.upper(), simulated, _label(verdict), device, length_words(verdict.length_s), numbers)
    return "  ".join(part for part in head if part)


def _briefly(verdict: Verdict, device: str, more: str) -> tuple[list[str], list[str]]:
    """Return the lines before and after the hazards; a valid window has at most three of these lines."""
    if verdict.status is not Status.VALID:
        return _before(verdict, device), _short(verdict, more)
    lines = (_SEPARATOR.join(part for part in (second_number(verdict), *_conditions(verdict)) if part), _shown(verdict))
    return [_head(verdict, device, leading_number(verdict)), *(f"  {line}" for line in lines if line)], []


def _lines_below(verdict: Verdict) -> list[str]:
    """Return the lines below the first: labels, the GPU's share, the stated claim, overridden limits, and the proofs."""
    shown = plain(shown_line(verdict))
    return [line for line in (*_conditions(verdict), shown and f"shown: {shown}") if line]


def _conditions(verdict: Verdict) -> tuple[str, ...]:
    """Return labels, the GPU's share, the stated claim and overridden limits; each may be empty."""
    labels = _SEPARATOR.join(plain(label).rstrip(".") for label in verdict.labels)
    claim, limits = claim_line(verdict), plain(limits_line(verdict))
    return labels, plain(launch_line(verdict)), claim and f"claim: {claim}", limits and f"other limits: {limits}"


def _shown(verdict: Verdict) -> str:
    """Return the line of a valid verdict on its bound, its proofs and the unchecked rules."""
    shown, count = plain(short_shown_line(verdict)), len(_open_to_action(verdict))
    unchecked = f"not checked: {_rules(count)}" if count else ""
    if shown and not has_times(verdict):
        unchecked = f"{_rules(count)} need times" if count else "no times"
    return _SEPARATOR.join(part for part in (shown and f"shown: {shown}", unchecked) if part)


def _listed(verdict: Verdict, *, is_all: bool) -> list[Finding]:
    return [each for each in verdict.hazards if has_own_line(each, verdict.budget) or (is_all and not each.is_label)]


def _open_to_action(verdict: Verdict) -> list[Finding]:
    """Return the unchecked rules that failed, that the status lacks, or that only lack times which the user can give."""
    can_give_times = not has_times(verdict) and not verdict.claim_facts.whole_program
    return [
        each
        for each in verdict.unobserved
        if each.failure is not None
        or each.required
        or verdict.why == each.says != ""
        or (can_give_times and each.basis == _TIMINGS)
    ]


def _short(verdict: Verdict, more: str) -> list[str]:
    """Return a line with the number of unchecked rules that the user can act on; ``-v`` lists all unchecked rules."""
    unseen = _open_to_action(verdict)
    if not unseen:
        return []
    count = len(unseen)
    [(reason, times)] = Counter(finding.says for finding in unseen).most_common(1)
    why = "for the reason above" if reason and reason == verdict.why else plain(reason) or "no reason given"
    return [f"  not checked: {_rules(count)} ({why if times == count else f'{times} of them: {why}'}); {more}"]


def _full(verdict: Verdict, *, has_figures: bool = True) -> list[str]:
    claim = "" if claim_line(verdict) else f"claim: {plain(verdict.claim)}; "  # else an upper line states the claim
    lines = [f"  {claim}judge {plain(verdict.judge_version)}"]
    figures = ((each.rule, describe_facts(each)) for each in (verdict.hazards if has_figures else ()))
    lines += [f"  figures of {plain(rule)}: {plain(words)}" for rule, words in figures if words]
    by_reason: dict[str, list[str]] = {}
    for finding in verdict.unobserved:
        by_reason.setdefault(plain(finding.says), []).append(plain(finding.rule))
    lines += [f"  not checked: {', '.join(rules)}: {says}" for says, rules in by_reason.items()]
    clear = [plain(finding.rule) for finding in verdict.findings if finding.answered is Answered.CLEAR]
    return [*lines, f"  clear: {', '.join(clear)}"] if clear else lines


def _marks(finding: Finding, verdict: Verdict) -> str:
    """Return the mark of a hazard that did not decide the status: accepted, a note, or a flag in a rejected window."""
    if finding.accepted:
        return "accepted: "
    if finding.severity == "note" or (finding.severity == "flag" and verdict.status is Status.REJECTED):
        return f"{finding.severity}: "
    return ""


def _sentence(finding: Finding, verdict: Verdict) -> str:
    says, remedy = _says(finding, verdict), plain(finding.remedy).rstrip(".")
    return f"{says}: {_lowered(remedy)}" if remedy else says


def _says(finding: Finding, verdict: Verdict) -> str:
    bound, says = bound_words(finding, verdict.budget), plain(finding.says).rstrip(".")
    if not bound:
        return says
    return f"{says[:-1]}, {bound})" if says.endswith(")") else f"{says} ({bound})"


def _lowered(sentence: str) -> str:
    """Return a sentence in the form after a colon: lower-case, except for names and acronyms."""
    return sentence[0].lower() + sentence[1:] if sentence[1:2].islower() or sentence[1:2] == " " else sentence


def _row(finding: Finding, verdict: Verdict) -> str:
    severity = f"{finding.severity}, accepted" if finding.accepted else str(finding.severity)
    return (
        f"| {marked(plain(finding.rule))} | {severity} | {marked(_says(finding, verdict))} | {marked(plain(finding.remedy))} |"
    )


def _label(verdict: Verdict) -> str:
    label = plain(verdict.label or "")
    return label if len(label) <= _LONGEST_LABEL_COUNT else label[: _LONGEST_LABEL_COUNT - 1] + "…"


def _device(verdict: Verdict, uuid: str = "") -> str:
    name = plain(verdict.device_name or "no GPU")
    return f"{name} ({plain(uuid)})" if uuid else name


def length_words(length_s: float) -> str:
    """Format a window's length in a fitting unit, for all interfaces."""
    if length_s < 0.9995:
        return f"{length_s * 1e3:.3g} ms"
    if length_s < 120:
        return f"{length_s:.1f} s"
    return f"{length_s / 60:.1f} min"


def _rules(count: int) -> str:
    return f"{count} rule" if count == 1 else f"{count} rules"


def html(verdicts: Sequence[Verdict]) -> str:
    """Return one HTML card per verdict, in the given order."""
    return "".join(map(_card, verdicts))


def _card(verdict: Verdict) -> str:
    title = [
        f"<b>{verdict.status.value.upper()}</b>",
        *(["<b>SIMULATED</b>"] if verdict.simulated else []),
        *(escape(text) for text in (verdict.label, verdict.device_name) if text),
        length_words(verdict.length_s),
        *([escape(first)] if (first := headline(verdict)) else []),
    ]
    why = f"<div>{escape(verdict.why)}</div>" if verdict.why else ""
    rows = "".join(_card_row(finding, verdict) for finding in _listed(verdict, is_all=False))
    below = "".join(f"<div>{escape(line)}</div>" for line in _lines_below(verdict))
    blind = len(verdict.unobserved)
    rest = f"<div>not checked: {blind} rule{'s' * (blind != 1)}</div>" if blind else ""
    return (
        f'<div style="border-left:4px solid {_BORDER[verdict.status]};padding:4px 10px;margin:4px 0">'
        f"<div>{' &nbsp; '.join(title)}</div>{why}{below}<table>{rows}</table>{rest}</div>"
    )


def _card_row(finding: Finding, verdict: Verdict) -> str:
    severity = f"{finding.severity}{', accepted' if finding.accepted else ''}"
    cells = (finding.rule, severity, f"{_says(finding, verdict)}: {finding.remedy}")
    return "<tr>" + "".join(f'<td style="text-align:left;vertical-align:top">{escape(cell)}</td>' for cell in cells) + "</tr>"
