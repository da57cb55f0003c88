"""The generator of annotate/RULES.md.

``python -m tests.annotate.output.page`` writes the page; ``--check`` checks it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import annotate
from annotate.output.rule_pages import page
from annotate.rule import Rule
from annotate.rules import RULES

WRITTEN = Path(annotate.__file__).parent / "RULES.md"
_HEAD = """\
# The rules

`python -m tests.annotate.output.page` generates this page. To change it, edit the rules' docstrings. A policy overrides limits and
accepts hazards by the name of the rule. A rule without its evidence is reported as not checked, never as clear.
"""


def pages(rules: Sequence[Rule] = RULES) -> str:
    contents = [
        f"- {family}: {', '.join(f'[{rule.name}](#{rule.name})' for rule in members)}"
        for family, members in groupby(rules, key=lambda rule: rule.family)
    ]
    return "\n".join([_HEAD, *contents, "", *(page(rule) for rule in rules)])


def main(arguments: Sequence[str], path: Path) -> int:
    """Write the pages, or with ``--check`` return 0 for fresh pages and 1 for stale ones; return 2 for other arguments."""
    if arguments not in ([], ["--check"]):
        sys.stderr.write("usage: python -m tests.annotate.output.page [--check]\n")
        return 2
    fresh = pages()
    if not arguments:
        path.write_text(fresh, encoding="utf-8")
        return 0
    if path.is_file() and path.read_text(encoding="utf-8") == fresh:
        return 0
    sys.stderr.write(f"{path.name} is stale; write it again: python -m tests.annotate.output.page\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], WRITTEN))
