"""Rule pages written from docstrings and signatures: the only place that knows how a rule documents itself."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from annotate.claims import REQUIRED
from annotate.rule import Basis, Rule
from annotate.rules import RULES

HEADINGS = ("Why it matters", "What it cannot see", "Remedy", "Source")
_HEADING = re.compile(rf"^({'|'.join(HEADINGS)}):[ \t]*$", re.MULTILINE)
_ONE_FIELD = re.compile(r"\{\w+\}")
_BASES = {
    Basis.TELEMETRY: "readings of the GPU",
    Basis.HOST: "what the operating system says",
    Basis.DECLARED: "what the measured process declares",
    Basis.TIMINGS: "the times of single iterations",
    Basis.BASELINE: "what the window and its baseline have in common",
}
_HEAD = """\
# The rules

Written by `python -m annotate.output.rule_pages` from the rules themselves; edit those. A limit is overridden in a policy under the
rule's name, a hazard accepted by it. A rule that could not tell says so, and never passes for clear.
"""


@dataclass(frozen=True, slots=True)
class Words:
    """The parts of a rule's docstring: its first paragraph, and the body under each heading."""

    summary: str
    sections: dict[str, str]


def words(rule: Rule) -> Words:
    """Raises ValueError for a docstring that lacks a section, or has them out of order or empty."""
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
    """The rule's page in Markdown, beginning with a second-level heading."""
    said = words(rule)
    claims = [claim.value for claim, groups in REQUIRED.items() if any(rule.name in group for group in groups)]
    lines = [f"## {rule.name}", "", said.summary, ""]
    if not _ONE_FIELD.fullmatch(rule.says):  # what is all fact tells a reader nothing before there is one
        lines += [f"*It says:* {rule.says}", ""]
    for name, body in said.sections.items():
        lines += [f"**{name}.** {body}", ""]
    lines.append(f"*Evidence:* {_BASES[rule.basis]}" + (f"; needs {', '.join(map(_code, rule.needs))}." if rule.needs else "."))
    if claims:
        lines.append(f"Required for the claims {', '.join(claims)}.")
    if rule.limits:
        lines += ["", "| Limit | Default | Range | Why |", "|---|---|---|---|"]
        lines += [f"| `{limit.name}` | {limit.default:g} | {limit.range} | {limit.why} |" for limit in rule.limits.values()]
    return "\n".join(lines) + "\n"


def pages(rules: Sequence[Rule] = RULES) -> str:
    """All pages in the rules' order, with a table of contents by family."""
    contents = [
        f"- {family}: {', '.join(f'[{rule.name}](#{rule.name})' for rule in members)}"
        for family, members in groupby(rules, key=lambda rule: rule.family)
    ]
    return "\n".join([_HEAD, *contents, "", *(page(rule) for rule in rules)])


def _reflowed(body: str) -> str:
    """One line a paragraph, so that the page does not depend on how the docstring was wrapped."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", body)).replace("``", "`")


def _code(name: str) -> str:
    return f"`{name}`"


def main(arguments: Sequence[str], path: Path) -> int:
    """Write the pages, or with ``--check`` say whether they are fresh: 0, else 1; 2 for any other argument."""
    if arguments not in ([], ["--check"]):
        sys.stderr.write("usage: python -m annotate.output.rule_pages [--check]\n")
        return 2
    fresh = pages()
    if not arguments:
        path.write_text(fresh, encoding="utf-8")
        return 0
    if path.is_file() and path.read_text(encoding="utf-8") == fresh:
        return 0
    sys.stderr.write(f"{path.name} is stale; write it again: python -m annotate.output.rule_pages\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(__file__).parents[1] / "RULES.md"))
