"""The conversion of a stored run to rows of the contract, in plain values for both Parquet and NDJSON."""

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias
from urllib.parse import quote

from annotate.evidence import Device, Evidence, Host
from gpuwatch.fleet.columns import COLUMNS, PHYSICS, SCHEMA
from gpuwatch.fleet.window_physics import physics, stated_number
from gpuwatch.store import Run
from gpuwatch.utf8 import clean_text

Row: TypeAlias = dict[str, Any]  # by the contract's names, with the contract's types

_NAMES = [column.name for column in COLUMNS]
_OF_GPU = tuple(name.removeprefix("gpu_") for name in _NAMES if name.startswith("gpu_") and name != "gpu_uuid")
_OF_HOST = tuple(name.removeprefix("host_") for name in _NAMES if name.startswith("host_"))
_UNSEEN = dict.fromkeys(column.name for column in PHYSICS)
_WORST_FIRST = ("reject", "flag", "note")


def hostname(boot_id: str, named: str | None, given: str | None) -> str:
    """Return the machine name of a run's partition.  If that name changes between exports, the run is exported twice.

    A run without a recorded name, from a daemon that was killed early, gets the name of its boot.
    """
    return given or named or f"boot-{boot_id[:8]}"


def partition(begun_wall_s: float, host: str) -> str:
    """Return the folder of a run in Hive's form, with percent-encoded characters, which readers decode."""
    return f"date={_moment(begun_wall_s):%Y-%m-%d}/host={quote(host, safe='')}"


def rows(
    run: Run, devices: Mapping[str, Device | None], host: str, evidence: Mapping[str, Evidence | None] | None = None
) -> list[Row]:
    """Return one row per GPU, worst first, or one row without a GPU if the window covered none."""
    seen = {uuid: physics(each) for uuid, each in (evidence or {}).items() if each is not None}
    verdicts = {(verdict.get("device") or {}).get("uuid"): verdict for verdict in run.verdicts}
    uuids: Sequence[str | None] = (*verdicts, *(uuid for uuid in run.uuids if uuid not in verdicts)) or (None,)
    of_run = _of_run(run, host)
    return [
        {
            **_UNSEEN,
            **of_run,
            **_of_gpu(uuid, devices.get(uuid or "")),
            **_of_verdict(run, verdicts.get(uuid)),
            **seen.get(uuid or "", {}),
            **stated_number(verdicts.get(uuid) or {}),
        }
        for uuid in uuids
    ]


def _of_run(run: Run, host: str) -> Row:
    told_numbers, told_words = _facts(run.declared)
    limits = (run.policy.get("limits") or {}).items()
    return {
        "boot_id": run.boot_id,
        "run": run.id,
        "hostname": _text(host),
        "begun_utc": _moment(run.begun_wall_s),
        "begin_ns": run.begin_ns,
        "end_ns": run.end_ns,
        "length_s": None if run.end_ns is None else (run.end_ns - run.begin_ns) / 1e9,
        "label": _text(run.label),
        "claim": run.claim,
        "window_status": run.status,
        "gpus_count": len(run.uuids),
        "simulated": run.simulated,
        "source": _text(run.source),
        "pid": run.pid,
        "uid": run.uid,
        "user": _text(run.user),
        "process": _text(run.process),
        "parent": run.parent,
        "tags": {str(_text(name)): _text(text) for name, text in run.tags.items()},
        "accepted": sorted(run.policy.get("accept") or ()),
        "limits": [
            {"rule": rule, "limit": limit, "value": float(value)} for rule, of in limits for limit, value in dict(of).items()
        ],
        "told_numbers": told_numbers,
        "told_words": told_words,
        **{f"host_{name}": _text(getattr(run.host or Host(), name)) for name in _OF_HOST},
    }


def _of_gpu(uuid: str | None, device: Device | None) -> Row:
    return {f"gpu_{name}": getattr(device, name) if device else None for name in _OF_GPU} | {"gpu_uuid": uuid}


def _of_verdict(run: Run, verdict: Mapping[str, Any] | None) -> Row:
    if verdict is None:
        return {
            "status": run.status,
            "why": run.why or None,
            "judge_version": None,
            "found": None,
            "clear": None,
            "hazards": None,
            "unobserved": None,
            **_of_budget({}),
        }
    findings: list[Mapping[str, Any]] = list(verdict.get("findings") or ())
    hazards = sorted((each for each in findings if each.get("answered") == "found"), key=_rank)
    return {
        "status": verdict.get("status") or run.status,
        "why": verdict.get("why") or None,
        "judge_version": verdict.get("judge_version"),
        "found": [each["rule"] for each in hazards if _severity(each) != "note" and not each.get("accepted")],
        "clear": [each["rule"] for each in findings if each.get("answered") == "clear"],
        "hazards": [_hazard(each) for each in hazards],
        "unobserved": [
            {"rule": each["rule"], "why": _text(each.get("says")) or None, "required": bool(each.get("required"))}
            for each in findings
            if each.get("answered") == "unobserved"
        ],
        **_of_budget(verdict),
    }


def _of_budget(verdict: Mapping[str, Any]) -> Row:
    """Return labels, tolerance, precision, numbers and proofs; all NULL without a budget, as in older verdicts."""
    budget = verdict.get("budget")
    if budget is None:
        return dict.fromkeys(("labels", "tolerance_ratio", "precision_ratio", "numbers", "proofs"))
    return {
        "labels": [_text(label) for label in verdict.get("labels") or ()],
        "tolerance_ratio": budget.get("tolerance_ratio"),
        "precision_ratio": budget.get("precision_ratio"),
        "numbers": [
            {name: number.get(name) for name in ("number", "value", "unit", "clock_mhz", "bound_ratio", "other_cards_ratio")}
            | {
                "repeatability_ratio": (number.get("repeatability") or {}).get("ratio"),
                "claimed": number.get("number") in budget.get("claimed", ()),
                "leading": number.get("number") == budget.get("leading"),
            }
            for number in budget.get("numbers", ())
        ],
        "proofs": [
            {
                "proof": proof["proof"],
                "state": proof["state"],
                "says": _text(proof.get("says")) or None,
                "missing": [_text(each) for each in proof.get("missing") or ()],
            }
            for proof in verdict.get("proofs") or ()
        ],
    }


def _hazard(finding: Mapping[str, Any]) -> Row:
    begin_ns, end_ns = finding.get("span_ns") or (None, None)
    numbers, words = _facts(finding.get("facts") or {})
    return {
        "rule": finding["rule"],
        "severity": _severity(finding),
        "says": _text(finding.get("says")) or None,
        "remedy": _text(finding.get("remedy")) or None,
        "basis": finding.get("basis"),
        "accepted": bool(finding.get("accepted")),
        "effect_ratio": finding.get("effect_ratio"),
        "begin_ns": begin_ns,
        "end_ns": end_ns,
        "numbers": numbers,
        "words": words,
    }


def _rank(finding: Mapping[str, Any]) -> tuple[bool, int]:
    return bool(finding.get("accepted")), _WORST_FIRST.index(_severity(finding))


def _severity(finding: Mapping[str, Any]) -> str:
    severity = finding.get("severity")
    return severity if severity in _WORST_FIRST else "note"


def _facts(facts: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, str]]:
    """Return numeric facts, and other facts as text, without None, NaN and numbers of 1e308 or more."""
    numbers: dict[str, float] = {}
    words: dict[str, str] = {}
    for name, value in facts.items():
        if isinstance(value, bool):
            words[str(_text(name))] = "true" if value else "false"
        elif isinstance(value, int | float):
            if -1e308 < value < 1e308 and math.isfinite(value):
                numbers[str(_text(name))] = float(value)
        elif value is not None:
            words[str(_text(name))] = str(_text(str(value)))
    return numbers, words


def _text(value: Any) -> Any:  # any column's value; texts become valid UTF-8
    """Return the value; a text's lone surrogates, which no file can store, are replaced."""
    return clean_text(value) if isinstance(value, str) else value


def _moment(wall_s: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(wall_s, tz=dt.UTC)


def plain(row: Row) -> Row:
    """Return a row for JSON: the schema number, then the columns in the contract's order, with times as text."""
    return {"schema": SCHEMA, **{name: row[name] for name in _NAMES}, "begun_utc": row["begun_utc"].isoformat()}
