"""gpuwatch explain: the page of a rule, or what a clock event reason of the driver means."""

from __future__ import annotations

import difflib
import re
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import click

from annotate import clock_reasons
from annotate.clock_reasons import REASONS
from annotate.verdict import Status
from gpuwatch.cli import options, output
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from annotate.evidence import Reason
    from annotate.rule import Rule


_STATUSES = {
    Status.VALID.value: "Every rule that the claim requires could look, and none found a hazard that was not accepted.",
    Status.UNPROVEN.value: "No hazard was found, but evidence that the claim requires is missing: `why` names it. The number "
    "may be fine; nobody can say so.",
    Status.FLAGGED.value: "A hazard was found that may move the number: quote it with the number, mend it, or accept it with "
    "--accept RULE if it is what you meant to measure.",
    Status.REJECTED.value: "A hazard was found that is too large to quote the number with it: remove its cause and measure again.",
}


@click.command("explain", short_help="A rule's page, or a clock event reason.")
@click.argument("name", metavar="[RULE|REASON|STATUS]", required=False)
@options.json_option
@options.settings_options
def command(name: str | None, as_json: bool) -> None:
    """Print the page of RULE: why it matters, what it cannot see, what to do.  Without a name, list the rules.

    REASON is a clock event reason as nvidia-smi names it, or a mask: sw_power_cap, 0x4, 68.  STATUS: valid, unproven …
    """
    from annotate.output.rule_pages import page, words
    from annotate.rules import RULES

    known = {rule.name: rule for rule in RULES}
    if name is None:
        if as_json:
            output.emit_json({"rules": [_rule(rule) for rule in RULES], "reasons": [_reason(bit) for bit in REASONS]})
        else:
            output.emit(
                output.table(
                    [(rule.name, rule.family, words(rule).summary) for rule in RULES], header=("RULE", "FAMILY", "SUMMARY")
                )
            )
            output.say("\ngpuwatch explain RULE prints its page; clock event reasons (sw_power_cap, 0x4) are explained too")
        return
    if name.strip().lower() in known:
        rule = known[name.strip().lower()]
        if as_json:
            output.emit_json({"rule": _rule(rule)})
        else:
            columns = output.width(sys.stdout)
            output.emit(page(rule).rstrip() if columns is None else _on_terminal(page(rule).rstrip(), columns))
        return
    if (status := name.strip().lower()) in _STATUSES:
        if as_json:
            output.emit_json({"status": {"name": status, "meaning": _STATUSES[status]}})
        else:
            output.emit(f"{status}\n{_filled(_STATUSES[status])}")
        return
    if _is_zero(name):
        if as_json:
            output.emit_json({"mask": 0, "reasons": [], "unknown_mask": 0})
        else:
            output.emit("0x0\n  no reason was active: nothing held the clocks down")
        return
    mask = clock_reasons.named(name)
    if mask is None:
        names = [*known, *_STATUSES, *(explained.name for explained in REASONS.values())]
        alike = difflib.get_close_matches(name.lower(), names, n=3) or [each for each in names if name and name.lower() in each]
        near = " or ".join(repr(each) for each in alike[:3])
        hint = f"did you mean {near}? " if near else ""
        raise UsageError(f"unknown rule or reason {name!r}; {hint}`gpuwatch explain` lists them")
    bits = [bit for bit in REASONS if bit in mask]
    unknown = int(mask) & ~sum(REASONS)
    if as_json:
        output.emit_json({"mask": int(mask), "reasons": [_reason(bit) for bit in bits], "unknown_mask": unknown})
        return
    for bit in bits:
        explained = REASONS[bit]
        output.emit(f"{explained.name} ({bit:#x})")
        output.emit(_filled(explained.meaning))
        output.emit(f"  judged by: {', '.join(explained.rules)}" if explained.rules else "  judged by no rule")
    if unknown:
        output.emit(f"{unknown:#x}\n  no reason this version knows: newer than driver 580, or no mask of clock event reasons")


def _filled(words: str) -> str:
    columns = min(output.width(sys.stdout) or 100, 100)
    return textwrap.fill(words, max(columns, 20), initial_indent="  ", subsequent_indent="  ")


def _is_zero(name: str) -> bool:
    try:
        return int(name.strip(), 0) == 0
    except ValueError:
        return False


def _on_terminal(page: str, columns: int) -> str:
    """A page without its Markdown: marks gone, lines broken at words, the table aligned, what a rule fills in as an ellipsis."""
    columns = max(min(columns, 100), 20)
    blocks = []
    for block in page.split("\n\n"):
        if block.startswith("|"):
            lines = [line.strip("| ").split(" | ") for line in block.splitlines() if not line.startswith("|--")]
            cells = [[_unmarked(cell) for cell in line] for line in lines]
            sizes = [max(len(line[index]) for line in cells) for index in (0, 1)]
            indent = " " * (sum(sizes) + 6)
            rows = [f"  {line[0]:<{sizes[0]}}  {line[1]:<{sizes[1]}}  {' | '.join(line[2:])}" for line in cells]
            blocks.append(
                "\n".join(textwrap.fill(row, max(columns, len(indent) + 20), subsequent_indent=indent) for row in rows)
            )
        else:
            blocks.append("\n".join(textwrap.fill(_unmarked(line), columns) for line in block.splitlines()))
    return "\n\n".join(blocks)


def _unmarked(words: str) -> str:
    words = re.sub(r"^#+ ", "", words)
    words = re.sub(r"\*\*(.+?)\*\*|(?<!\w)\*(\S[^*]*?)\*(?!\w)", lambda mark: mark[1] or mark[2], words)
    return re.sub(r"\{[^{}]*\}", "…", words.replace("`", ""))


def _rule(rule: Rule) -> dict[str, Any]:
    from annotate.output.rule_pages import words

    said = words(rule)
    return {
        "name": rule.name,
        "family": rule.family,
        "summary": said.summary,
        "sections": dict(said.sections),
        "needs": list(rule.needs),
        "basis": rule.basis.value,
        "limits": {limit.name: {"default": limit.default, "why": limit.why} for limit in rule.limits.values()},
    }


def _reason(bit: Reason) -> dict[str, Any]:
    explained = REASONS[bit]
    return {"name": explained.name, "mask": int(bit), "meaning": explained.meaning, "rules": list(explained.rules)}
