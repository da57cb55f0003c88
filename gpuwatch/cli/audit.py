"""gpuwatch audit: a list of stored windows, worst first, and verdicts on intervals and recordings."""

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from annotate.evidence import Evidence
from annotate.output.budget_words import leading_words
from annotate.output.report import length_words, plain
from annotate.user_policy import Policy
from annotate.verdict import Status, Verdict, worst
from gpuwatch import clock
from gpuwatch.cli import open_store, options, output, rejudge, times
from gpuwatch.cli.checked_commands import CheckedCommand
from gpuwatch.cli.exit_codes import Exit, list_statuses, worst_code
from gpuwatch.config.settings import Settings
from gpuwatch.errors import UsageError
from gpuwatch.interfaces import Run
from gpuwatch.utf8 import clean_text

_ROOMY = 110  # columns; a narrower table shortens dates and words to leave room for the findings
LISTED_COUNT = 200  # a few screens; a store may hold a million windows


@dataclass(frozen=True, slots=True)
class _Listed:
    """A stored run with its stored or new verdicts."""

    run: Run
    verdicts: tuple[Verdict, ...]

    @property
    def status(self) -> Status:
        return worst(self.verdicts).status

    @property
    def recorded_status(self) -> str | None:
        """Return the stored status; None for a window that was never judged."""
        return self.run.status if self.run.status in set(Status) else None


@dataclass(frozen=True, slots=True)
class _Listing:
    """The options of a list of windows."""

    since: str | None
    label: str | None
    status: str | None
    count: int | None
    again: bool
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _IntervalOptions:
    """The options of an interval or recording."""

    begin: str | None
    end: str | None
    gpus: tuple[str, ...]
    pids: tuple[int, ...]
    trace: str | None
    verbose: bool
    query: str | None


@click.command(
    "audit",
    cls=CheckedCommand,
    short_help="List the stored windows, worst first.",
    epilog="Example: gpuwatch audit --since 24h --status rejected,flagged",
)
@click.option("--since", metavar="TIME", help='List windows since this time: "24h" or "-5m" (ago), "14:02", "2026-11-20".')
@click.option(
    "--label", metavar="LABEL", shell_complete=options.completed_by("windows"), help="List only windows with this label."
)
@click.option(
    "--status", "status", metavar="STATUSES", help="List only these: valid, flagged, rejected, unproven. Comma-separated."
)
@click.option("--tag", "tags", metavar="KEY[=VALUE]", multiple=True, help="List only windows with this tag. Repeatable.")
@click.option(
    "--count",
    "-n",
    "count",
    metavar="N",
    type=click.IntRange(1, 2**63 - 1),  # the most that SQLite counts
    help="List at most N windows. Default: 200, or all when judging again.",
)
@click.option(
    "--rejudge", "again", is_flag=True, help="Judge the stored evidence again by this version's rules; write nothing."
)
@click.option("--from", "begin", metavar="TIME", help="Judge an interval that starts at this time.")
@click.option("--to", "end", metavar="TIME", help="End the interval at this time. Default: now, or the recording's end.")
@options.gpu_option("Judge only this GPU of an interval or recording. Repeatable.")
@click.option(
    "--pid", "pids", type=options.PID, multiple=True, help="Treat this process as measured in the interval. Repeatable."
)
@click.option("--trace", metavar="FILE", help="Judge a recording: an nvidia-smi log, or a file from `gpuwatch record`.")
@click.option("--verbose", "-v", is_flag=True, help="Print every fact and every rule of an interval or recording.")
@click.option("--query", metavar="COLUMNS", help="Give the columns of a log that was written with noheader.")
@options.policy_options
@options.fail_on_option
@options.json_option
@options.settings_options
@options.gathered(_Listing, "listing")
@options.gathered(_IntervalOptions, "interval")
def command(
    listing: _Listing, interval: _IntervalOptions, policy_options: options.PolicyOptions, fail_on: str | None, as_json: bool
) -> Exit:
    """List the windows in the store, worst first.

    With --rejudge, or with options of a policy such as --claim or --tolerance, judge the stored evidence again.  --from and --to
    judge any interval on the daemon's readings.  --trace judges a recording; --from and --to can then be seconds into it.
    """
    failing = options.fail_on(fail_on)
    policy = policy_options.policy()
    if interval.begin is not None or interval.end is not None or interval.trace is not None:
        given = {"--since": listing.since, "--label": listing.label, "--status": listing.status, "--count": listing.count}
        more = {"--tag": listing.tags or None, "--rejudge": listing.again or None}
        _refuse({**given, **more}, "expected a list of windows, found an interval or recording")
        chosen = options.settings().complete(policy or Policy())
        return _show(rejudge.judged(_evidence(interval), chosen), failing, verbose=interval.verbose, as_json=as_json)
    _refuse(
        {"--gpu": interval.gpus or None, "--pid": interval.pids or None, "--verbose": interval.verbose or None},
        "expected --from or --trace with it, found neither",
    )
    _refuse({"--query": interval.query}, "expected --trace with it, found none")
    return _list(listing, policy, failing, as_json=as_json)


def _evidence(interval: _IntervalOptions) -> tuple[Evidence, ...]:
    """Return the evidence of an interval or recording, one piece per window and GPU.  Raises UsageError: for wrong options."""
    if interval.trace is None:
        if interval.begin is None:
            raise UsageError("--to: expected --from with it, found none")
        with open_store.reader(options.settings()) as store:
            return rejudge.interval(store, interval.begin, interval.end, interval.gpus, interval.pids)
    _refuse(
        {"--pid": interval.pids or None},
        "expected an interval of the store, found a recording; choose a GPU with --gpu instead",
    )
    recorded = rejudge.recorded(Path(interval.trace), interval.begin, interval.end, interval.gpus, query=interval.query)
    _explain_limits(recorded)
    return recorded


def _list(listing: _Listing, policy: Policy | None, failing: frozenset[Status], *, as_json: bool) -> Exit:
    label = None if listing.label is None else clean_text(listing.label)  # stored labels are cleaned the same way
    settings = options.settings()
    wanted = options.statuses("--status", listing.status)
    since_s = times.wall_s(listing.since, "--since", now_s=clock.wall_s()) if listing.since is not None else None
    is_rejudged = listing.again or policy is not None
    most = listing.count if listing.count is not None or is_rejudged else LISTED_COUNT
    with open_store.reader(settings) as store:
        # Judging again may change statuses, so the store cannot filter by status then.
        names = () if is_rejudged else [each.value for each in wanted]
        tags = _wanted_tags(listing.tags)
        runs = store.runs(since_wall_s=since_s, label=label, status=names, tags=tags, limit=most, worst_first=not is_rejudged)
        verdicts = rejudge.all_again(store, runs, policy) if is_rejudged else [rejudge.stored(run) for run in runs]
        listed = [_Listed(run, each) for run, each in zip(runs, verdicts, strict=True)]
    if wanted:
        listed = [each for each in listed if each.status in wanted]
    listed.sort(key=lambda each: (-each.status.badness, -each.run.begun_wall_s))
    if as_json:
        output.emit_json({"rejudged": is_rejudged, "counts": _counts(listed), "runs": [_plain(each) for each in listed]})
    else:
        _table(listed, settings)
        if is_rejudged:
            output.say(_changes(listed))
        if listing.count is None and len(listed) == most:
            output.say(f"these are the worst {most}; list more with --count N, fewer with --since, --label, --tag or --status")
    open_store.name_left_out(store)
    code = worst_code(list_statuses(verdict for each in listed for verdict in each.verdicts), failing)
    return code or (Exit.FAILED if store.left_out else Exit.OK)


def _wanted_tags(texts: Sequence[str]) -> dict[str, str | None]:
    """Read the values of --tag; a name alone matches any value.  Raises UsageError: for a missing name or value, and for two values."""
    wanted: dict[str, str | None] = {}
    for text in map(clean_text, texts):
        name, equals, value = text.partition("=")
        if not name or (equals and not value):
            raise UsageError(f"--tag: expected KEY or KEY=VALUE, such as team=vision, found {text!r}")
        if wanted.setdefault(name, value or None) != (value or None):
            raise UsageError(f"--tag: expected one value of {name}, found {wanted[name] or 'any'!r} and {value or 'any'!r}")
    return wanted


def _refuse(given: dict[str, Any], why: str) -> None:
    """Refuse options that would be ignored.  Raises UsageError: for the first that was given."""
    for name, value in given.items():
        if value is not None:
            raise UsageError(f"{name}: {why}")


def _explain_limits(pieces: Sequence[Evidence]) -> None:
    """Print the limits of a recording without process lists, and the missing column that would help."""
    if not pieces or any(piece.trace.process_lists for piece in pieces):
        return
    output.say(
        "gpuwatch: a log holds no process list, so no verdict on it can be valid; its findings about clocks, "
        "power and temperature still count"
    )
    if not any(len(piece.trace.column("event_reasons_mask")) for piece in pieces):
        output.say(
            "gpuwatch: the log lacks the reasons for clock changes; add clocks_event_reasons.active to the columns of --query-gpu"
        )


def _show(verdicts: Sequence[Verdict], failing: frozenset[Status], *, verbose: bool, as_json: bool) -> Exit:
    shown = output.lay_out(verdicts, sys.stdout, verbose=verbose, more="`-v` lists them")
    output.emit_either({"verdicts": [verdict.to_dict() for verdict in verdicts]}, shown, as_json=as_json)
    return worst_code(list_statuses(verdicts), failing)


def _counts(listed: Sequence[_Listed]) -> dict[str, int]:
    return {status.value: sum(each.status is status for each in listed) for status in Status}


def _plain(each: _Listed) -> dict[str, Any]:
    run = each.run
    return {
        "run": run.id,
        "status": each.status.value,
        "recorded_status": each.recorded_status,
        "label": run.label,
        "claim": run.claim,
        "begun_wall_s": run.begun_wall_s,
        "length_s": each.verdicts[0].length_s,
        "gpus": list(run.uuids),
        "number": leading_words(worst(each.verdicts)),
        "hazards": _hazards(each),
        "why": worst(each.verdicts).why,
        "source": run.source,
        "simulated": run.simulated,
        "user": run.user,
        "tags": dict(run.tags),
    }


def _hazards(each: _Listed) -> list[str]:
    """Return the rules that found an unaccepted hazard, without notes."""
    findings = [finding for verdict in each.verdicts for finding in verdict.hazards if finding.severity != "note"]
    return list(dict.fromkeys(finding.rule for finding in findings if not finding.accepted))


def _table(listed: Sequence[_Listed], settings: Settings) -> None:
    flags = options.repeated(settings)
    if not listed:
        found = open_store.hint_at_simulated(settings)
        output.say(f"no window matches{found or f'; create one with: gpuwatch run{flags} -- COMMAND'}")
        return
    columns = output.width(sys.stdout)
    narrow = columns is not None and columns < _ROOMY
    size = _distinct_length({each.run.id for each in listed}) if narrow else None
    rows = [_row(each, each.run.id[:size], narrow=narrow) for each in listed]
    header: tuple[str, ...] = ("STATUS", "BEGUN", "LENGTH", "LABEL", "RUN", "FOUND")
    if not narrow and any(numbers := [leading_words(worst(each.verdicts)) for each in listed]):
        header = (*header[:3], "NUMBER", *header[3:])
        rows = [(*row[:3], number, *row[3:]) for row, number in zip(rows, numbers, strict=True)]
    output.emit(output.table(rows, header=header, width=columns))
    counts = ", ".join(f"{count} {name}" for name, count in _counts(listed).items() if count)
    output.say(f"\n{counts}; for details: gpuwatch show RUN{flags}")


def _changes(listed: Sequence[_Listed]) -> str:
    """Return a line about windows whose new status differs from the stored one, by kind."""
    changed = [each for each in listed if each.recorded_status not in (None, each.status.value)]
    if not changed:
        return "judged again: no status changed"
    kinds = Counter(f"{each.recorded_status} to {each.status.value}" for each in changed)
    words = ", ".join(f"{count} from {kind}" for kind, count in kinds.most_common())
    return f"judged again: {len(changed)} of {len(listed)} statuses differ from the stored ones ({words}); nothing was written"


def _distinct_length(ids: set[str]) -> int:
    """Return the least length, from 10 characters on, that distinguishes the ids.  `gpuwatch show` accepts the start of an id."""
    return next(size for size in range(10, 100) if len({each[:size] for each in ids}) == len(ids))


def _row(each: _Listed, run_id: str, *, narrow: bool) -> tuple[str, ...]:
    begun = times.text(each.run.begun_wall_s)
    found = ", ".join(_hazards(each)) or (worst(each.verdicts).why if each.status is Status.UNPROVEN else "")
    return (
        each.status.value.upper() + ((" SIM" if narrow else " SIMULATED") if each.run.simulated else ""),
        begun[5:16] if narrow else begun,  # without the year and the seconds
        length_words(each.verdicts[0].length_s),
        output.cut(plain(each.run.label or "-"), 10 if narrow else 32),
        run_id,
        output.cut(plain(found), 100),
    )
