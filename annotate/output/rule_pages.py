"""Pages of rules, from their docstrings and signatures, and of clock event reasons."""

import inspect
import re
from dataclasses import dataclass

from annotate.claims import REQUIRED
from annotate.clock_reasons import REASONS
from annotate.evidence import Reason
from annotate.rule import Basis, Rule

HEADINGS = ("Why it matters", "Limits of detection", "Remedy", "Source")
_HEADING = re.compile(rf"^({'|'.join(HEADINGS)}):[ \t]*$", re.MULTILINE)
_FACT = re.compile(r"\{[^{}]*\}")
_ONE_FIELD = re.compile(r"\{\w+\}")
_BASES = {
    Basis.TELEMETRY: "readings of the GPU",
    Basis.HOST: "the operating system's accounting",
    Basis.DECLARED: "facts declared by the measured process",
    Basis.TIMINGS: "the times of single iterations",
    Basis.BASELINE: "the evidence of the window and of its baseline",
}


@dataclass(frozen=True, slots=True)
class Words:
    """The parts of a rule's docstring: its first paragraph, and the body under each heading."""

    summary: str
    sections: dict[str, str]


def words(rule: Rule) -> Words:
    """Split a rule's docstring.

    Raises ValueError: for a missing summary, and for a missing, misplaced or empty section.
    """
    parts = _HEADING.split(inspect.cleandoc(rule.check.__doc__ or ""))
    found = tuple(parts[1::2])
    if found != HEADINGS:
        raise ValueError(f"{rule.name}: expected the sections {', '.join(HEADINGS)}; found {', '.join(found) or 'none'}")
    bodies = [inspect.cleandoc(body).strip() for body in parts[2::2]]
    summary = parts[0].strip()
    if not summary or not all(bodies):
        raise ValueError(f"{rule.name}: expected a sentence and a body under every heading")
    return Words(" ".join(summary.split()), {name: _reflowed(body) for name, body in zip(HEADINGS, bodies, strict=True)})


def page(rule: Rule) -> str:
    """Return the rule's page in Markdown, beginning with a second-level heading."""
    parts = words(rule)
    lines = [f"## {rule.name}", "", parts.summary, ""]
    if not _ONE_FIELD.fullmatch(rule.says):  # a template of one field has no words without facts
        lines += [f"*Message:* {rule.says}", ""]
    for name, body in parts.sections.items():
        lines += [f"**{name}.** {body}", ""]
    needs = ", ".join(f"`{name}`" for name in rule.needs)
    lines.append(f"*Evidence:* {_BASES[rule.basis]}" + (f"; needs {needs}." if needs else "."))
    if rule.name in REQUIRED:
        lines.append("Required under every claim.")
    if rule.limits:
        lines += ["", "| Limit | Default | Range | Why |", "|---|---|---|---|"]
        lines += [f"| `{limit.name}` | {limit.default:g} | {limit.range} | {limit.why} |" for limit in rule.limits.values()]
    return "\n".join(lines) + "\n"


def reason_page(bit: Reason) -> str:
    """Return the page of a clock event reason in Markdown, beginning with a second-level heading."""
    explained = REASONS[bit]
    judged = f"*Judged by:* {', '.join(explained.rules)}." if explained.rules else "*Judged by no rule.*"
    return f"## {explained.name} ({bit:#x})\n\n{explained.meaning}\n\n{judged}\n"


def without_facts(markdown: str) -> str:
    """Return a page for people, with an ellipsis in place of each fact's field."""
    return _FACT.sub("…", markdown)


def _reflowed(body: str) -> str:
    """Return one line per paragraph, so that the page does not depend on the wrapping of the docstring."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", body)).replace("``", "`")
