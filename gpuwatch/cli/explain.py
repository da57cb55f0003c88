"""gpuwatch explain: the page of a rule, or the meaning of a clock event reason or status."""

from __future__ import annotations

import contextlib
import difflib
import io
import sys
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from annotate import clock_reasons
from annotate.clock_reasons import REASONS
from annotate.verdict import Status
from gpuwatch.cli import options, output
from gpuwatch.cli.checked_commands import CheckedCommand
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from annotate.evidence import Reason
    from annotate.rule import Rule


_STATUSES = {
    Status.VALID.value: "The evidence that the claim requires is complete, and no unaccepted disturbance changed the number by "
    "more than the tolerance.",
    Status.UNPROVEN.value: "Evidence that the claim requires is missing: `why` names the evidence. The number may be fine; this "
    "window cannot prove it.",
    Status.FLAGGED.value: "A disturbance may have changed the number by more than the tolerance, the number repeats less well "
    "than requested, or a proof is broken. Quote the cause with the number, remove the cause, or accept a hazard that you "
    "meant to measure with --accept RULE.",
    Status.REJECTED.value: "The number is off by more than five tolerances, or is not what it claims to be. Remove the cause and "
    "measure again.",
}

_WIDEST = 100  # columns; longer lines are hard to read
# Only styles that ``output`` lets through to a terminal: bold, italic and cyan.
_STYLES = (
    {"markdown.h2": "bold cyan", "markdown.strong": "bold", "markdown.em": "italic", "markdown.code": "cyan"}
    | dict.fromkeys(("markdown.table.header",), "bold")
    | dict.fromkeys(("markdown.table.border", "markdown.paragraph", "markdown.text"), "none")
)

_JSON_NAMES = {"Limits of detection": "What it cannot see"}  # keys of version 0.1.0, which programs may read
_RETIRED = "A rule of earlier versions, without effect; policies may still name it. Replaced by: {}."


@click.command(
    "explain",
    cls=CheckedCommand,
    short_help="Explain a rule or a clock event reason.",
    epilog="Example: gpuwatch explain power-limited",
)
@click.argument("name", metavar="[RULE|REASON|STATUS]", required=False, shell_complete=options.completed_by("explained"))
@options.json_option
@options.settings_options
def command(name: str | None, as_json: bool) -> None:
    """Print the page of RULE: importance, blind spots, remedy.  Without a name, list the rules.

    REASON is a clock event reason as nvidia-smi names it, or a mask: sw_power_cap, 0x4, 68.  STATUS is valid, unproven, flagged
    or rejected.
    """
    from annotate.rules import RETIRED, RULES

    rules = {rule.name: rule for rule in RULES}
    word = None if name is None else name.strip().lower()
    if name is None or word is None:
        data, text = _list(RULES)
    elif word in rules:
        data, text = {"rule": _rule(rules[word])}, _page(rules[word])
    elif word in RETIRED:
        data, text = {"rule": _retired(word, RETIRED[word])}, f"{word}\n{_filled(_RETIRED.format(RETIRED[word]))}"
    elif word in _STATUSES:
        data, text = {"status": {"name": word, "meaning": _STATUSES[word]}}, f"{word}\n{_filled(_STATUSES[word])}"
    elif (mask := _read_mask(name)) is not None:
        data, text = _explain_mask(mask)
    else:
        names = [*rules, *_STATUSES, *(explained.name for explained in REASONS.values())]
        alike = difflib.get_close_matches(name.lower(), names, n=3) or [each for each in names if name and name.lower() in each]
        near = " or ".join(repr(each) for each in alike[:3])
        hint = f"did you mean {near}? " if near else ""
        raise UsageError(f"unknown rule, reason or status {name!r}; {hint}`gpuwatch explain` lists them")
    output.emit_either(data, text, as_json=as_json)
    if name is None and not as_json:
        output.say(
            "\ngpuwatch explain RULE prints a rule's page, gpuwatch explain REASON (sw_power_cap, 0x4) a clock event reason"
        )


def _list(rules: Sequence[Rule]) -> tuple[dict[str, Any], str]:
    data = {"rules": [_rule(rule) for rule in rules], "reasons": [_reason(bit) for bit in REASONS]}
    rows = [(rule["name"], rule["family"], rule["summary"]) for rule in data["rules"]]
    return data, output.wrap_table(rows, header=("RULE", "FAMILY", "SUMMARY"))


def _page(rule: Rule) -> str:
    from annotate.output.rule_pages import page

    return _laid_out(page(rule)) or page(rule).rstrip()


def _laid_out(markdown: str) -> str:
    """Return a page laid out as in `gpuwatch top`; empty if the output has no width: a pipe gets text or Markdown."""
    columns = output.width(sys.stdout)
    if columns is None:
        return ""
    from rich.console import Console
    from rich.markdown import Markdown
    from rich.theme import Theme

    from annotate.output.rule_pages import without_facts

    console = Console(
        file=io.StringIO(),
        width=max(min(columns, _WIDEST), 20),
        color_system="standard" if output.is_coloured(sys.stdout) else None,
        force_terminal=True,
        theme=Theme(_STYLES),
    )
    with console.capture() as captured:
        console.print(Markdown(without_facts(markdown), hyperlinks=False))
    return "\n".join(line.rstrip() for line in captured.get().rstrip().splitlines())


def _explain_mask(mask: int) -> tuple[dict[str, Any], str]:
    bits = [bit for bit in REASONS if bit & mask]
    unknown = mask & ~sum(REASONS)
    data = {"mask": mask, "reasons": [_reason(bit) for bit in bits], "unknown_mask": unknown}
    lines = []
    for bit in bits:
        explained = REASONS[bit]
        judged = f"judged by: {', '.join(explained.rules)}" if explained.rules else "judged by no rule"
        lines += [f"{explained.name} ({bit:#x})", _filled(explained.meaning), f"  {judged}"]
    if unknown:
        lines.append(f"{unknown:#x}\n  unknown to this version: newer than driver 580, or not a mask of clock event reasons")
    from annotate.output.rule_pages import reason_page

    pages = "" if unknown else _laid_out("\n\n".join(map(reason_page, bits)))
    return data, pages or "\n".join(lines) or "0x0\n  no reason was active: nothing held the clocks down"


def _read_mask(name: str) -> int | None:
    """Read a reason's name or a mask of reasons; None for neither."""
    with contextlib.suppress(ValueError):
        if int(name.strip(), 0) == 0:
            return 0
    mask = clock_reasons.named(name)
    return None if mask is None else int(mask)


def _filled(words: str) -> str:
    columns = min(output.width(sys.stdout) or 100, 100)
    return textwrap.fill(words, max(columns, 20), initial_indent="  ", subsequent_indent="  ")


def _rule(rule: Rule) -> dict[str, Any]:
    from annotate.output.rule_pages import words

    said = words(rule)
    return {
        "name": rule.name,
        "family": rule.family,
        "summary": said.summary,
        "sections": {_JSON_NAMES.get(name, name): body for name, body in said.sections.items()},
        "needs": list(rule.needs),
        "basis": rule.basis.value,
        "limits": {
            limit.name: {
                "default": limit.default,
                "least": limit.range.least,
                "most": limit.range.most,
                "why": limit.why,
            }
            for limit in rule.limits.values()
        },
    }


def _retired(name: str, successor: str) -> dict[str, Any]:
    """Return a retired rule with every key of a rule."""
    said = {"name": name, "family": "retired", "summary": _RETIRED.format(successor), "sections": {}}
    return said | {"needs": [], "basis": "retired", "limits": {}}


def _reason(bit: Reason) -> dict[str, Any]:
    explained = REASONS[bit]
    return {"name": explained.name, "mask": int(bit), "meaning": explained.meaning, "rules": list(explained.rules)}
