"""The table of columns on the fleet's page, written from the contract: ``python -m tests.gpuwatch.fleet.page``, or ``--check``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from gpuwatch.fleet.columns import COLUMNS, ExportColumn
from tests.gpuwatch.fleet.warehouse import PAGE

_BEGIN, _END = "<!-- columns -->\n", "<!-- /columns -->"


def written(text: str) -> str:
    """The page with today's table."""
    before, _, rest = text.partition(_BEGIN)
    return before + _BEGIN + table() + _END + rest.partition(_END)[2]


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
    """Write the table; with ``--check`` say whether the one there is it."""
    found = PAGE.read_text()
    if "--check" not in arguments:
        PAGE.write_text(written(found))
    elif written(found) != found:
        sys.stderr.write(f"the table in {PAGE} is not what the contract says: make pages\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
