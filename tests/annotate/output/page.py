"""annotate/RULES.md, written from the rules: ``python -m tests.annotate.output.page``, or ``--check`` whether it is fresh."""

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

Written by `python -m tests.annotate.output.page` from the rules themselves; edit those. A limit is overridden in a policy under the
rule's name, a hazard accepted by it. A rule that could not tell says so, and never passes for clear.
"""


def pages(rules: Sequence[Rule] = RULES) -> str:
    """All pages in the rules' order, with a table of contents by family."""
    contents = [
        f"- {family}: {', '.join(f'[{rule.name}](#{rule.name})' for rule in members)}"
        for family, members in groupby(rules, key=lambda rule: rule.family)
    ]
    return "\n".join([_HEAD, *contents, "", *(page(rule) for rule in rules)])


def main(arguments: Sequence[str], path: Path) -> int:
    """Write the pages, or with ``--check`` say whether they are fresh: 0, else 1; 2 for any other argument."""
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
