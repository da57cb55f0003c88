"""The named questions about a fleet.  Each is a file in ``sql/``, which DuckDB runs on exported windows."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gpuwatch.errors import UsageError
from gpuwatch.fleet.columns import COLUMNS, ColumnKind, ExportColumn

_MAGIC = b"PAR1"  # at both ends of a Parquet file
_HEAD = re.compile(r"((?:-- .*\n)+)")
# Parts of older versions lack some columns; the values of missing columns are NULL.
_VIEW = """CREATE TEMP VIEW windows AS
SELECT *, coalesce({tags}, "user", uid::VARCHAR) AS team FROM (
    SELECT * FROM contract
    UNION ALL BY NAME
    SELECT * FROM read_parquet({files}, hive_partitioning = false, union_by_name = true, filename = true)
) WHERE {simulated}"""
_TAGS = ", ".join(f"map_extract(tags, '{tag}')[1]" for tag in ("team", "account", "namespace"))
_TYPES = {
    ColumnKind.TEXT: "VARCHAR",
    ColumnKind.WHOLE: "BIGINT",
    ColumnKind.NUMBER: "DOUBLE",
    ColumnKind.FLAG: "BOOLEAN",
    ColumnKind.MOMENT: "TIMESTAMPTZ",
    ColumnKind.TEXTS: "VARCHAR[]",
    ColumnKind.NUMBERS: "MAP(VARCHAR, DOUBLE)",
    ColumnKind.WORDS: "MAP(VARCHAR, VARCHAR)",
}


@dataclass(frozen=True, slots=True)
class FleetQuestion:
    """One question: name, text, method, default period, and SQL over the view ``windows``."""

    name: str
    asks: str
    how: str
    since: str
    sql: str


@dataclass(frozen=True, slots=True)
class FleetAnswer:
    """The columns and rows of an answer; ``is_cut`` is True if there were more rows."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    is_cut: bool


@cache
def questions() -> dict[str, FleetQuestion]:
    folder = Path(__file__).with_name("sql")
    return {path.stem: _read(path) for path in sorted(folder.glob("*.sql"))}


def question(name: str) -> FleetQuestion:
    """Return the question of this name.

    Raises UsageError: for an unknown name.
    """
    known = questions()
    if name not in known:
        raise UsageError(f"expected one of {', '.join(known)}, found {name!r}; `gpuwatch fleet` lists the questions")
    return known[name]


def list_parts(places: Sequence[str]) -> list[str]:
    """Return the Parquet files among and below these paths.

    Raises UsageError: for a path without such a file.
    """
    found: list[str] = []
    for place in map(Path, places):
        if place.is_file():
            found.append(_checked(place))
            continue
        parts = sorted(map(str, place.glob("windows/schema=1/*/*/*.parquet"))) or sorted(map(str, place.rglob("*.parquet")))
        if not parts:
            what = "a folder without such a file" if place.is_dir() else "no such file or folder"
            raise UsageError(f"{place}: expected Parquet files that `gpuwatch export` wrote, found {what}")
        found += parts
    return found


def _checked(file: Path) -> str:
    with file.open("rb") as opened:
        if opened.read(len(_MAGIC)) != _MAGIC:
            raise UsageError(f"{file}: expected a Parquet file that `gpuwatch export` wrote, found another kind of file")
    return str(file)


def ask(
    asked: FleetQuestion,
    parts: Sequence[str],
    *,
    since_wall_s: float,
    until_wall_s: float,
    most_count: int,
    with_simulated: bool = False,
) -> FleetAnswer:
    """Query these files.

    Raises UsageError: without DuckDB, and for files that `gpuwatch export` did not write.
    """
    try:
        import duckdb
    except ImportError as error:
        raise UsageError(
            "fleet: expected the optional package duckdb, found none; run: pip install 'gpuwatch-validity[fleet]'"
        ) from error
    moments = [dt.datetime.fromtimestamp(each, tz=dt.UTC) for each in (since_wall_s, until_wall_s)]
    with duckdb.connect() as db:
        try:
            db.execute("SET TimeZone = 'UTC'; SET enable_progress_bar = false")
            db.execute("SET VARIABLE since = ?::TIMESTAMPTZ", moments[:1])
            db.execute("SET VARIABLE until = ?::TIMESTAMPTZ", moments[1:])
            db.execute(f"CREATE TEMP TABLE contract ({_columns(_CONTRACT)})")
            db.execute(view_sql(parts, with_simulated=with_simulated))
            _refuse_others(db)
            answer = db.execute(asked.sql)
            columns = tuple(str(each[0]) for each in answer.description or ())
            rows = answer.fetchmany(most_count + 1)
        except duckdb.Error as error:
            why = " ".join(str(error).partition("\nLINE ")[0].split())  # without the SQL statement
            raise UsageError(f"{asked.name}: expected windows that `gpuwatch export` wrote, found: {why}") from error
    return FleetAnswer(columns, tuple(rows[:most_count]), len(rows) > most_count)


def view_sql(parts: Sequence[str], *, with_simulated: bool = False) -> str:
    """Return the statement that creates the view ``windows`` over these files, given an empty table ``contract``."""
    files = ", ".join("'" + part.replace("'", "''") + "'" for part in parts)
    return _VIEW.format(tags=_TAGS, files=f"[{files}]", simulated="true" if with_simulated else "simulated IS NOT TRUE")


def _refuse_others(db: Any) -> None:  # a connection of duckdb
    """Raise UsageError for a file with a row without a boot_id, which no export wrote."""
    other = db.execute("SELECT filename FROM windows WHERE boot_id IS NULL LIMIT 1").fetchone()
    if other is not None:
        raise UsageError(f"{other[0]}: expected windows that `gpuwatch export` wrote, found rows without a boot_id")


_CONTRACT = (*COLUMNS, ExportColumn("filename", ColumnKind.TEXT, "the file of the row"))


def _columns(columns: Sequence[ExportColumn]) -> str:
    return ", ".join(f'"{each.name}" {_type(each)}' for each in columns)


def _type(column: ExportColumn) -> str:
    if column.inner:
        return f"STRUCT({_columns(column.inner)})[]"
    return _TYPES[column.kind]


def _read(path: Path) -> FleetQuestion:
    text = path.read_text(encoding="utf-8")
    head = _HEAD.match(text)
    lines = [line.removeprefix("-- ") for line in head[1].splitlines()] if head else []
    asks, *how, since = lines
    return FleetQuestion(path.stem, asks, " ".join(how), since.removeprefix("since: "), text)
