"""The agreement of docs/RULE_TABLE.md with the rules."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from annotate.rules import RULES

PAGE = Path(__file__).parents[2] / "docs" / "RULE_TABLE.md"
CLASSES = ("bias", "integrity", "label", "retired")
_COLUMNS_COUNT = 10


def rows() -> list[tuple[str, list[str]]]:
    section = PAGE.read_text().split("\n## 2. ")[1].split("\n### Count")[0]
    parts = re.split(r"^### `(\w+)\.py`$", section, flags=re.MULTILINE)
    return [
        (family, [cell.strip() for cell in line.strip("|").split("|")])
        for family, text in zip(parts[1::2], parts[2::2], strict=True)
        for line in text.splitlines()
        if line.startswith("| `")
    ]


def new_rules() -> set[str]:
    section = PAGE.read_text().split("\n## 3. ")[1].split("\n## 4. ")[0]
    return set(re.findall(r"^\| new: `([\w-]+)`", section, re.MULTILINE))


def test_rule_table_has_one_row_for_every_rule() -> None:
    """Every rule has one row or is listed as new, and every row has a rule or is retired."""
    found = [(family, cells[0].strip("`")) for family, cells in rows()]
    assert len(found) == len(set(found))
    known = {(rule.family, rule.name) for rule in RULES}
    assert {each for each in known if each[1] not in new_rules()} <= set(found)
    assert {(family, cells[0].strip("`")) for family, cells in rows() if not cells[2].startswith("retired")} <= known


def test_rule_table_rows_have_all_columns_and_a_class() -> None:
    for _, cells in rows():
        assert len(cells) == _COLUMNS_COUNT, cells[0]
        assert all(cells), cells[0]
        assert cells[2].startswith(CLASSES), cells[0]


def test_rule_table_counts_match_its_rows() -> None:
    """The table of counts agrees with the first word of each row's class."""
    section = PAGE.read_text().split("\n### Count\n")[1].split("\n## ")[0]
    counts = {name: int(number) for name, number in re.findall(r"^\| (\w+)[^|]*\| (\d+) \|$", section, re.MULTILINE)}
    found = Counter(re.split(r"\W", cells[2])[0] for _, cells in rows())
    assert counts == dict(found)
