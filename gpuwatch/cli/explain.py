"""gpuwatch explain: the page of a rule, or what a clock event reason of the driver means."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import click

from annotate.errors import UnknownNameError
from gpuwatch.cli import options, output, reasons
from gpuwatch.cli.reasons import REASONS

if TYPE_CHECKING:
    from annotate.evidence import Reason
    from annotate.rule import Rule


@click.command("explain", short_help="A rule's page, or a clock event reason.")
@click.argument("name", metavar="[RULE|REASON]", required=False)
@options.json_option
@options.settings_options
def command(name: str | None, as_json: bool) -> None:
    """Print the page of RULE: why it matters, what it cannot see, what to do.  Without a name, list the rules.

    REASON is a clock event reason as nvidia-smi names it, or a mask: sw_power_cap, 0x4, 68.
    """
    from annotate.pages import page, words
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
            output.emit(page(rule).rstrip())
        return
    mask = reasons.named(name)
    if mask is None:
        raise UnknownNameError("rule or reason", name, [*known, *(explained.name for explained in REASONS.values())])
    bits = [bit for bit in REASONS if bit in mask]
    unknown = int(mask) & ~sum(REASONS)
    if as_json:
        output.emit_json({"mask": int(mask), "reasons": [_reason(bit) for bit in bits], "unknown_mask": unknown})
        return
    for bit in bits:
        explained = REASONS[bit]
        output.emit(f"{explained.name} ({bit:#x})")
        output.emit(textwrap.fill(explained.meaning, 100, initial_indent="  ", subsequent_indent="  "))
        output.emit(f"  judged by: {', '.join(explained.rules)}" if explained.rules else "  judged by no rule")
    if unknown:
        output.emit(f"{unknown:#x}\n  no reason this version knows: newer than driver 580, or no mask of clock event reasons")


def _rule(rule: Rule) -> dict[str, Any]:
    from annotate.pages import words

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
