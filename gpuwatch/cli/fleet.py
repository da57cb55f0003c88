"""gpuwatch fleet: predefined questions about windows exported from many machines."""

from __future__ import annotations

import datetime as dt
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from annotate.output.report import plain
from gpuwatch import clock
from gpuwatch.cli import options, output, times
from gpuwatch.cli.checked_commands import CheckedCommand
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.fleet.fleet_questions import FleetAnswer, FleetQuestion

_LISTED_COUNT = 50


@dataclass(frozen=True, slots=True)
class _FleetOptions:
    """The options of one question."""

    since: str | None
    until: str | None
    count: int
    with_simulated: bool
    as_sql: bool


@click.command(
    "fleet",
    cls=CheckedCommand,
    short_help="Ask questions about exported windows of many machines.",
    epilog="Example: gpuwatch fleet slow-gpus /srv/gpuwatch --since 7d",
)
@click.argument("name", metavar="[NAME]", required=False, shell_complete=options.completed_by("fleet_questions"))
@click.argument("files", metavar="[FILES…]", nargs=-1, type=click.Path())
@click.option(
    "--since", metavar="TIME", help='Read windows since this time: "24h" (ago), "18:00", "2026-11-20". Default: by question.'
)
@click.option("--until", metavar="TIME", help="Read windows until this time. Default: now.")
@click.option(
    "--count", "-n", type=click.IntRange(1, 2**31), default=_LISTED_COUNT, show_default=True, help="Show at most N rows."
)
@click.option("--simulated", "with_simulated", is_flag=True, help="Include windows of simulated GPUs.")
@click.option("--sql", "as_sql", is_flag=True, help="Print the SQL of the question; read no files.")
@options.json_option
@options.settings_options
@options.gathered(_FleetOptions, "asking")
def command(name: str | None, files: tuple[str, ...], asking: _FleetOptions, as_json: bool) -> None:
    """Answer the question NAME from FILES: folders of `gpuwatch export --parquet`, or Parquet files.

    Without NAME, list the questions.  The command needs the extra `fleet`.
    """
    from gpuwatch.fleet import fleet_questions

    if name is None:
        _list(tuple(fleet_questions.questions().values()), as_json=as_json)
        return
    asked = fleet_questions.question(name)
    if asking.as_sql:
        output.emit(asked.sql.rstrip())
        return
    if not files:
        raise UsageError(f"fleet {name}: expected folders or files of `gpuwatch export --parquet`, found none")
    now_s = clock.wall_s()
    until_s = now_s if asking.until is None else times.wall_s(asking.until, "--until", now_s=now_s)
    # A default --since is relative to the end: a question about last month covers as much time as one about today.
    since_s = times.wall_s(asking.since or asked.since, "--since", now_s=until_s if asking.since is None else now_s)
    if not since_s < until_s:
        raise UsageError(f"--since, --until: expected a time before {times.text(until_s)}, found {times.text(since_s)}")
    answer = fleet_questions.ask(
        asked,
        fleet_questions.list_parts(files),
        since_wall_s=since_s,
        until_wall_s=until_s,
        most_count=asking.count,
        with_simulated=asking.with_simulated,
    )
    if as_json:
        rows = [dict(zip(answer.columns, map(_json, row), strict=True)) for row in answer.rows]
        asked_of = {"question": name, "asks": asked.asks, "since_wall_s": since_s, "until_wall_s": until_s}
        output.emit_json({**asked_of, "is_cut": answer.is_cut, "rows": rows})
    else:
        _table(asked, answer, since_s, until_s)


def _list(known: tuple[FleetQuestion, ...], *, as_json: bool) -> None:
    if as_json:
        listed = [{"name": each.name, "asks": each.asks, "how": each.how, "since": each.since} for each in known]
        output.emit_json({"questions": listed})
        return
    output.emit(output.table([(each.name, each.since, each.asks) for each in known], header=("NAME", "SINCE", "ASKS")))
    output.say("\ngpuwatch fleet NAME DIR answers a question, --sql prints its SQL, --since and --until choose the time")


def _table(asked: FleetQuestion, answer: FleetAnswer, since_s: float, until_s: float) -> None:
    output.say(f"{asked.asks}  {times.text(since_s)} to {times.text(until_s)}")
    if not answer.rows:
        output.say("no rows")
        return
    rows = [tuple(_cell(name, value) for name, value in zip(answer.columns, row, strict=True)) for row in answer.rows]
    output.emit(output.table(rows, header=tuple(map(_heading, answer.columns)), width=output.width(sys.stdout)))
    if answer.is_cut:
        output.say(f"these are the first {len(answer.rows)}; --count N shows more")


def _heading(column: str) -> str:
    return column.removesuffix("_ratio").removesuffix("_count").removesuffix("_utc").replace("_", " ").upper()


def _cell(column: str, value: Any) -> str:  # any type that DuckDB returns
    if value is None:
        return "-"
    if isinstance(value, dt.datetime):
        return times.text(value.replace(tzinfo=dt.UTC).timestamp())
    if isinstance(value, float) and column.endswith("_ratio"):
        return f"{100 * value:+.1f} %" if column.endswith(("slower_ratio", "change_ratio")) else f"{100 * value:.1f} %"
    return f"{value:.4g}" if isinstance(value, float) else plain(str(value))


def _json(value: Any) -> Any:
    return value.isoformat() if isinstance(value, dt.date) else value
