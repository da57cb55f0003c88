"""The plan by which the rules change to bounds, held against the rules there are."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from annotate.rules import RULES

PAGE = Path(__file__).parents[2] / "docs" / "RULE_TABLE.md"
CLASSES = ("bias", "integrity", "label", "retired")
_COLUMNS_COUNT = 10


def rows() -> list[tuple[str, list[str]]]:
    """Return the family and the cells of every row of the section on today's rules."""
    section = PAGE.read_text().split("\n## 2. ")[1].split("\n### Count")[0]
    parts = re.split(r"^### `(\w+)\.py`$", section, flags=re.MULTILINE)
    return [
        (family, [cell.strip() for cell in line.strip("|").split("|")])
        for family, text in zip(parts[1::2], parts[2::2], strict=True)
        for line in text.splitlines()
        if line.startswith("| `")
    ]


def test_rule_table_has_one_row_for_every_rule() -> None:
    retired = {cells[0].strip("`") for _, cells in rows() if cells[2].startswith("retired")}
    found = sorted((family, cells[0].strip("`")) for family, cells in rows())
    assert sorted(each for each in found if each[1] not in retired) == sorted(
        (rule.family, rule.name) for rule in RULES if rule.name not in retired
    )


def test_rule_table_rows_have_all_columns_and_a_class() -> None:
    for _, cells in rows():
        assert len(cells) == _COLUMNS_COUNT, cells[0]
        assert all(cells), cells[0]
        assert cells[2].startswith(CLASSES), cells[0]


def test_rule_table_counts_its_own_classes() -> None:
    """The table of counts agrees with the first word of each row's class."""
    told = PAGE.read_text().split("\n### Count\n")[1].split("\n## ")[0]
    counts = {name: int(number) for name, number in re.findall(r"^\| (\w+)[^|]*\| (\d+) \|$", told, re.MULTILINE)}
    found = Counter(re.split(r"\W", cells[2])[0] for _, cells in rows())
    assert counts == dict(found)
