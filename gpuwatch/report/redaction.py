"""Redaction of a record: replacement of names of hosts, users and boards, after which evidence and verdict still agree."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from annotate.evidence import Evidence
from annotate.verdict import Verdict
from gpuwatch.errors import UsageError
from gpuwatch.report.record import ReportedWindow

KINDS = ("host", "user", "serial")


def kinds(text: str | None) -> tuple[str, ...]:
    """Parse the kinds to redact.

    Raises UsageError: for an unknown kind.
    """
    named = tuple(dict.fromkeys(word.strip() for word in text.split(","))) if text is not None else ()
    for name in named:
        if name not in KINDS:
            raise UsageError(f"--redact: expected some of {', '.join(KINDS)}, separated by commas, found {name!r}")
    return named


def redacted(windows: Iterable[ReportedWindow], what: Iterable[str]) -> tuple[ReportedWindow, ...]:
    """Replace names of these kinds in every field, and as words in any text.

    Each name has one replacement throughout, so that two windows on one board still show the same board.
    """
    windows, what = tuple(windows), frozenset(what)
    if not what:
        return windows
    stand_ins: dict[str, str] = {}
    for window in windows:
        for kind, name in _names(window):
            if kind in what and name and name.lower() not in stand_ins:
                count = sum(1 for each in stand_ins.values() if each.startswith(f"redacted-{kind}-"))
                stand_ins[name.lower()] = f"redacted-{kind}-{count + 1}"
    without = _replacer(stand_ins)
    return tuple(_redact_window(window, without) for window in windows)


def _names(window: ReportedWindow) -> Iterable[tuple[str, str | None]]:
    yield "user", window.user
    yield from ((kind, window.tags.get(tag)) for kind, tag in (("user", "user"), ("host", "node")))
    verdict, evidence = window.verdict, window.evidence
    yield "serial", verdict.device_uuid
    if evidence is None:
        return
    host, device = evidence.host, evidence.device
    yield from (("host", name) for name in (host.hostname, host.boot_id, host.container))
    yield "host", (host.hostname or "").partition(".")[0]  # people write the host's short name
    if device is not None:
        yield from (("serial", name) for name in (device.uuid, device.parent_uuid, device.pci_bus_id))
    for uuid in str(evidence.declared.get("cuda_uuids") or "").split(","):
        yield "serial", uuid.strip()
    for process_list in evidence.trace.process_lists:
        yield from (("user", process.user) for process in process_list.processes)


def _replacer(stand_ins: Mapping[str, str]) -> Callable[[str], str]:
    if not stand_ins:
        return lambda text: text
    # Longest first: a UUID inside a longer name must not leave the rest of that name.
    names = "|".join(re.escape(name) for name in sorted(stand_ins, key=len, reverse=True))
    # Letters inside a longer word are not the name; letters in a path or a file name are.
    pattern = re.compile(rf"(?<![^\W_])(?:{names})(?![^\W_])", re.IGNORECASE)
    return lambda text: pattern.sub(lambda match: stand_ins[match[0].lower()], text)


def _redact_window(window: ReportedWindow, without: Callable[[str], str]) -> ReportedWindow:
    return replace(
        window,
        verdict=Verdict.from_dict(_through(window.verdict.to_dict(), without)),
        evidence=None if window.evidence is None else _redact_evidence(window.evidence, without),
        packed=None,  # dropped with the signature, which covers the original
        signature=None,
        user=without(window.user) if window.user else None,
        process=without(window.process) if window.process else None,
        tags={name: without(text) for name, text in window.tags.items()},
    )


def _redact_evidence(evidence: Evidence, without: Callable[[str], str]) -> Evidence:
    trace = evidence.trace
    return replace(
        evidence,
        window=_through(evidence.window, without),
        device=_through(evidence.device, without),
        host=_through(evidence.host, without),
        declared={without(name): _through(value, without) for name, value in evidence.declared.items()},
        absence=_through(evidence.absence, without),
        trace=replace(
            trace,
            process_lists=tuple(
                replace(process_list, uuid=without(process_list.uuid), processes=_through(process_list.processes, without))
                for process_list in trace.process_lists
            ),
            events=_through(trace.events, without),
        ),
    )


def _through(value: Any, without: Callable[[str], str]) -> Any:  # records and JSON values of any type
    if isinstance(value, str):
        return without(value) if type(value) is str else value  # an enumeration's value is not a name
    if isinstance(value, Mapping):
        return {name: _through(inner, without) for name, inner in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(_through(inner, without) for inner in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{each.name: _through(getattr(value, each.name), without) for each in fields(value)})
    return value
