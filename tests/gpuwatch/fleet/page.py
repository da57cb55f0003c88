"""Writer of the tables of columns and questions in docs/FLEET.md, from the contract and the SQL files.

``python -m tests.gpuwatch.fleet.page`` writes the tables; ``--check`` only compares.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from gpuwatch.fleet.columns import COLUMNS, ExportColumn
from gpuwatch.fleet.fleet_questions import questions
from tests.gpuwatch.fleet.warehouse import PAGE


def written(text: str) -> str:
    """Return the page with the current tables."""
    for name, made in {"columns": table, "questions": list_questions}.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        before, _, rest = text.partition(begin)
        text = before + begin + made() + end + rest.partition(end)[2]
    return text


def list_questions() -> str:
    lines = ["| Name | Since | Question | How |", "|---|---|---|---|"]
    lines += [f"| `{name}` | {each.since} | {each.asks} | {each.how} |" for name, each in questions().items()]
    return "\n".join(lines) + "\n"


def table() -> str:
    lines = ["| Column | Type | Unit | NULL | Meaning |", "|---|---|---|---|---|"]
    for name, column in _all(COLUMNS):
        lines.append(
            f"| `{name}` | {column.kind.value} | {column.unit or ''} | {'' if column.always else 'yes'} | {column.meaning} |"
        )
    return "\n".join(lines) + "\n"


def _all(columns: tuple[ExportColumn, ...], prefix: str = "") -> Iterator[tuple[str, ExportColumn]]:
    for column in columns:
        yield prefix + column.name, column
        yield from _all(column.inner, f"{prefix}{column.name}[].")


def main(arguments: Sequence[str]) -> int:
    """Write the tables, or with ``--check`` return 1 if the page differs; otherwise return 0."""
    found = PAGE.read_text()
    if "--check" not in arguments:
        PAGE.write_text(written(found))
    elif written(found) != found:
        sys.stderr.write(f"the tables in {PAGE} differ from the contract and the questions: run make pages\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
