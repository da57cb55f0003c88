"""NVTX ranges of a program under ``gpuwatch run``: the environment of the C library, and the library's reports."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import click

from annotate.amount_words import duration_text
from annotate.errors import AnnotateError
from annotate.output.report import plain
from annotate.verdict import Status, Verdict
from gpuwatch import libgpuwatch
from gpuwatch.cli import options, output
from gpuwatch.client.connection import Client, connect_running
from gpuwatch.client.window import Window
from gpuwatch.config.settings import Settings
from gpuwatch.errors import DaemonError, GpuwatchError, UsageError
from gpuwatch.results.file_bytes import read_bytes
from gpuwatch.wire.messages import JudgedReply
from gpuwatch.wire.peer import dial, list_sockets

_F = TypeVar("_F", bound=Callable[..., Any])
_META = "gpuwatch.nvtx"
_PATTERNS_COUNT = 16  # the limit of nvtx.c
_SHOWN_COUNT = 20  # windows of ranges, and names of ranges inside windows
_NESTED_COUNT = 8  # levels of runs inside runs
_REPORT_BYTES = 16 << 20
_TIMERS = ("host", "stamps")  # the names in windows.c
_INJECTION = "NVTX_INJECTION64_PATH"


@dataclass(frozen=True, slots=True)
class NvtxRanges:
    """The requested ranges, and the folder for the library's reports."""

    patterns: tuple[str, ...] = ()
    is_listed: bool = False
    is_synchronised: bool = False
    folder: Path | None = None

    @property
    def is_asked(self) -> bool:
        return bool(self.patterns) or self.is_listed

    @contextmanager
    def reporting(self) -> Iterator[NvtxRanges]:
        """Create the folder for the library's reports.

        Raises UsageError: when the library was not built.
        """
        if not self.is_asked:
            yield self
            return
        if not libgpuwatch.LIBRARY.exists():
            raise click.UsageError(
                f"--nvtx: expected {libgpuwatch.LIBRARY}, found none; install a C compiler, then gpuwatch again"
            )
        folder = Path(tempfile.mkdtemp(prefix="gpuwatch-nvtx-"))
        try:
            (folder / "report").touch(mode=0o600)
            (folder / "list").touch(mode=0o600)
            yield NvtxRanges(self.patterns, self.is_listed, self.is_synchronised, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def environment(self, settings: Settings, watched: Window, gpus: Iterable[str]) -> dict[str, str]:
        """Return the variables that load and configure the library; empty if no ranges are requested."""
        if self.folder is None:
            return {}
        policy = settings.complete(watched.policy)
        opening: dict[str, Any] = {"claim": policy.claim.value, "policy": policy.to_dict(), "tags": watched.tags.given}
        if named := list(gpus):
            opening["gpus"] = named
        found = {
            _INJECTION: str(libgpuwatch.LIBRARY),
            "GPUWATCH_NVTX": "\n".join(self.patterns),
            "GPUWATCH_NVTX_OPEN": json.dumps(opening)[1:-1],
            "GPUWATCH_NVTX_REPORT": str(self.folder / "report"),
        }
        if self.is_listed:
            found["GPUWATCH_NVTX_LIST"] = str(self.folder / "list")
        if self.is_synchronised:
            found["GPUWATCH_NVTX_SYNC"] = "1"
        if (other := os.environ.get(_INJECTION)) and other != str(libgpuwatch.LIBRARY):
            found["GPUWATCH_NVTX_NEXT"] = other
        if (socket := _answering_socket(settings)) is not None:
            found["GPUWATCH_NVTX_SOCKET"] = str(socket)
        return found

    def outer_timer(self) -> str | None:
        """Return the timer of ranges that became iterations of the program's own window; None without such ranges."""
        outer = (each.get("timer") for each in self._rows("report") if each.get("is_outer"))
        return next((timer for timer in outer if timer in _TIMERS), None)

    def print_verdicts(self, settings: Settings, parent: str | None) -> set[Status]:
        """Print the list of ranges, and the verdicts of ranges that became windows of this run; return the statuses."""
        if self.is_listed and self.folder is not None:
            output.say(listed(self._rows("list")))
        rows = list(self._rows("report"))
        for problem in dict.fromkeys(str(each["problem"]) for each in rows if "problem" in each):
            output.say(f"gpuwatch: --nvtx: {problem}")
        windows = [each for each in rows if "run" in each and not each.get("is_outer")]
        lone = [each for each in windows if each.get("is_lone")]
        windows = [each for each in windows if not each.get("is_lone")]
        statuses, judged = set(), _Judged()
        try:
            judged = _ask([str(each["run"]) for each in windows[:_SHOWN_COUNT]], settings, parent)
        except (GpuwatchError, AnnotateError) as error:
            output.say(f"gpuwatch: --nvtx: no verdict: {error}")
            statuses.add(Status.UNPROVEN)
        for run, verdict in judged.verdicts:
            show = f"gpuwatch show {run}{options.repeated(settings)}"
            text = output.lay_out([verdict], None, more=f"`{show}` shows details")
            output.say(text if show in text else f"{text}\n  details: `{show}`")
        if judged.strange_count:
            strange = output.counted(judged.strange_count, "window")
            output.say(f"gpuwatch: --nvtx: the report lists {strange} that this run did not open; ignored")
            statuses.add(Status.UNPROVEN)
        for line in _inside_others(rows):
            output.say(f"  {line}")
        if len(windows) > _SHOWN_COUNT:
            output.say(f"  {len(windows) - _SHOWN_COUNT} more windows of ranges: gpuwatch show")
        if lone:
            output.say(f"  {output.counted(len(lone), 'range')} shorter than 50 ms cannot be judged")
        if self.patterns and not self.is_listed and not rows:
            output.say(f"gpuwatch: --nvtx: no range matched {', '.join(self.patterns)}; --nvtx-list shows the program's ranges")
        return statuses | {verdict.status for _, verdict in judged.verdicts}

    def _rows(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield the JSON objects that the program's processes wrote; their fields are untrusted."""
        if self.folder is None:
            return
        try:
            text = read_bytes(self.folder / name, _REPORT_BYTES).decode(errors="replace")
        except UsageError:  # the program removed or replaced the file
            return
        for line in text.splitlines():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(row, dict):
                yield row


def listed(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the table of a program's ranges, the longest total first."""
    ranges: dict[tuple[str, str], _Ranges] = {}
    for row in rows:
        try:
            key, found = (str(row["domain"]), str(row["message"])), _Ranges.of(row)
        except (KeyError, ValueError, TypeError, OverflowError):
            continue
        ranges[key] = ranges.get(key, _Ranges()) + found
    if not ranges:
        return "gpuwatch: --nvtx-list: the program used no NVTX range, or ended without exit()"
    ordered = sorted(ranges.items(), key=lambda item: -item[1].total_ns)
    names = [f"{domain}:{message}" if domain else message for (domain, message), _ in ordered]
    cells = [(name, *found.cells()) for name, (_, found) in zip(names, ordered, strict=True)]
    return output.table(cells, header=("range", "count", "mean", "least", "most", "total"))


@dataclass(frozen=True, slots=True)
class _Ranges:
    count: int = 0
    total_ns: int = 0
    least_ns: int = field(default=1 << 63)
    most_ns: int = 0

    @staticmethod
    def of(row: Mapping[str, Any]) -> _Ranges:
        return _Ranges(*(int(row[name]) for name in ("count", "total_ns", "least_ns", "most_ns")))

    def __add__(self, other: _Ranges) -> _Ranges:
        least_ns, most_ns = min(self.least_ns, other.least_ns), max(self.most_ns, other.most_ns)
        return _Ranges(self.count + other.count, self.total_ns + other.total_ns, least_ns, most_ns)

    def cells(self) -> tuple[str, ...]:
        lengths_ns = (self.total_ns / max(1, self.count), self.least_ns, self.most_ns, self.total_ns)
        return str(self.count), *(duration_text(each / 1e9, 3) for each in lengths_ns)


def _answering_socket(settings: Settings) -> Path | None:
    """Return the socket of the daemon that serves these settings, for the library; None if no daemon answers."""
    for path in list_sockets(settings):
        try:
            connection = dial(path)
        except DaemonError:
            continue
        if connection is not None:
            connection.close()
            return path
    return None


@dataclass(frozen=True, slots=True)
class _Judged:
    """The windows of ranges with their verdicts, worst first, and the number of windows that another program opened."""

    verdicts: tuple[tuple[str, Verdict], ...] = ()
    strange_count: int = 0


def _inside_others(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for each name of ranges that are inside a window but are not its iterations."""
    counts: Counter[tuple[str, str]] = Counter()
    for row in rows:
        name, count = row.get("other"), row.get("other_count")
        if isinstance(name, str) and isinstance(count, int) and 0 < count < 1 << 53:
            counts[name, str(row.get("label") or "the program")] += count
    for (name, around), count in counts.most_common(_SHOWN_COUNT):
        inside, pattern = f"{plain(name)} inside {plain(around)}", shlex.quote(plain(name))
        yield f"{output.counted(count, 'range')} {inside} are not iterations; judge only these with --nvtx {pattern}"


def _ask(runs: list[str], settings: Settings, parent: str | None) -> _Judged:
    """Return the verdicts of those windows that are inside this run's window.  Raises DaemonError: without a daemon."""
    if not runs:
        return _Judged()
    client = connect_running(settings)
    if client is None:
        raise DaemonError("no daemon answers; see: gpuwatch daemon status", "unreachable")
    with closing(client):
        # Start with the last window, which is judged after the others.
        judged = [client.verdicts(run) for run in reversed(runs)]
        own = [each for each in reversed(judged) if _is_inside(each, parent, client)]
    verdicts = [(each.run, Verdict.from_dict(each.verdicts[0])) for each in own if each.verdicts]
    verdicts.sort(key=lambda found: found[1].status.badness, reverse=True)
    return _Judged(tuple(verdicts), len(judged) - len(own))


def _is_inside(window: JudgedReply, parent: str | None, client: Client) -> bool:
    """Return True if a window was opened inside this run's window, directly or through nested runs."""
    around = window.parent
    for _ in range(_NESTED_COUNT):
        if around is None or around == parent:
            break
        try:
            around = client.verdicts(around, wait_s=0.0).parent
        except GpuwatchError:  # the window of another user, or an unknown one
            return False
    return around is not None and around == parent


def nvtx_options(command: _F) -> _F:
    """Add --nvtx, --nvtx-list and --nvtx-sync; ``asked`` returns the values."""
    for option in (
        click.option(
            "--nvtx-sync", is_flag=True, expose_value=False, callback=_keep, help="Wait for the GPU at both ends of a range."
        ),
        click.option("--nvtx-list", is_flag=True, expose_value=False, callback=_keep, help="List COMMAND's NVTX ranges."),
        click.option(
            "--nvtx",
            metavar="PATTERN",
            multiple=True,
            expose_value=False,
            callback=_keep,
            help="Judge COMMAND's NVTX ranges of this name, such as step or NCCL:*. Repeatable.",
        ),
    ):
        command = option(command)
    return command


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    context.meta.setdefault(_META, {})[parameter.name] = value


def asked(*, is_untrusted: bool) -> NvtxRanges:
    """Return the ranges that the options of the running command request.

    Raises UsageError: for wrong patterns, --nvtx-sync without --nvtx, and untrusted code, which would report its own windows.
    """
    given = click.get_current_context().meta.get(_META, {})
    patterns = tuple(given.get("nvtx") or ())
    if is_untrusted and (patterns or given.get("nvtx_list")):
        raise click.UsageError("--nvtx: expected no --untrusted with it, found both; the program itself reports its ranges")
    if any(not each or "\n" in each for each in patterns) or len(patterns) > _PATTERNS_COUNT:
        raise click.UsageError(
            f"--nvtx: expected at most {_PATTERNS_COUNT} names, each one line of text, found {len(patterns)}: {list(patterns)}"
        )
    if given.get("nvtx_sync") and not patterns:
        raise click.UsageError("--nvtx-sync: expected --nvtx PATTERN with it, found none")
    return NvtxRanges(patterns, bool(given.get("nvtx_list")), bool(given.get("nvtx_sync")))
