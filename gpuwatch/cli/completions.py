"""Completions for shells."""

import contextlib
from collections.abc import Iterable

import click

from annotate.errors import AnnotateError
from gpuwatch.cli import open_store, options
from gpuwatch.errors import GpuwatchError

_RECENT_COUNT = 200  # windows whose labels are offered


def rules(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Offer rules, also after a comma."""
    from annotate.rules import RULES

    return _last_of_list((rule.name for rule in RULES), incomplete)


def limits(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Offer ``RULE.LIMIT=`` for every limit of every rule."""
    from annotate.rules import RULES

    names = (f"{rule.name}.{limit}=" for rule in RULES for limit in rule.limits)
    return [name for name in names if name.startswith(incomplete)]


def explained(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Offer rules, clock event reasons and statuses for `gpuwatch explain`."""
    from annotate.clock_reasons import REASONS
    from annotate.verdict import Status

    names = (*(reason.name for reason in REASONS.values()), *(status.value for status in Status))
    return [*rules(context, parameter, incomplete), *(name for name in names if name.startswith(incomplete))]


def windows(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Offer labels of recent windows, and run ids once a character is typed; nothing if the store cannot be read."""
    found: list[str] = []
    with contextlib.suppress(GpuwatchError, AnnotateError, OSError), context, open_store.reader(options.settings()) as store:
        for run in store.runs(limit=_RECENT_COUNT):
            found += [run.label or "", *([run.id] if incomplete else [])]
    return [name for name in dict.fromkeys(found) if name and name.startswith(incomplete)]


def fleet_questions(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Offer the questions of `gpuwatch fleet`."""
    from gpuwatch.fleet.fleet_questions import questions

    return [name for name in questions() if name.startswith(incomplete)]


def scenes(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Offer simulated scenes and fleets, also after a comma."""
    from gpuwatch.sources.simulated import FLEETS, SCENES

    return _last_of_list((*SCENES, *FLEETS), incomplete)


def sources(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Offer sources, and after ``simulated:`` the scenes."""
    kind, colon, begun = incomplete.partition(":")
    if colon and kind == "simulated":
        return [f"simulated:{name}" for name in scenes(context, parameter, begun)]
    return [name for name in ("auto", "nvml", "simulated", "simulated:", "replay:") if name.startswith(incomplete)]


def _last_of_list(names: Iterable[str], incomplete: str) -> list[str]:
    before, comma, begun = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in names if name.startswith(begun)]
