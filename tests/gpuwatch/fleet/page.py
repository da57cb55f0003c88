"""The table of columns on the fleet's page, written from the contract: ``python -m tests.gpuwatch.fleet.page``."""

from __future__ import annotations

from collections.abc import Iterator

from gpuwatch.fleet.contract import COLUMNS, Column
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


def _all(columns: tuple[Column, ...], prefix: str = "") -> Iterator[tuple[str, Column]]:
    for column in columns:
        yield prefix + column.name, column
        yield from _all(column.inner, f"{prefix}{column.name}[].")


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
