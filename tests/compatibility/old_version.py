"""The files of an earlier version, and comparisons that allow additions but no losses."""

from __future__ import annotations

import json
import math
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

OLD = Path(__file__).parent / "a8d437f"
# Sentences may change, and versions increase.
PROSE = frozenset({"fix", "found", "judge_version", "meaning", "message", "remedy", "says", "summary", "version", "why"})


def unpack(folder: Path) -> None:
    """Unpack the earlier version's files."""
    with tarfile.open(OLD / "files.tar.xz") as archive:
        archive.extractall(folder, filter="data")


def outputs(kind: str) -> list[dict[str, Any]]:
    """Return commands with their output: ``stored`` commands read the files, ``live`` commands query a daemon."""
    found: list[dict[str, Any]] = json.loads((OLD / "outputs.json").read_text())[kind]
    return found


def interface() -> dict[str, Any]:
    """Return the names available to users of the earlier version."""
    found: dict[str, Any] = json.loads((OLD / "interface.json").read_text())
    return found


def lost(old: Any, new: Any, place: str = "") -> Iterator[str]:
    """Yield the parts of the earlier plain data that are missing or different now."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key, value in old.items():
            if key not in new:
                yield f"{place}.{key} is gone"
            elif key in PROSE and isinstance(value, str) and isinstance(new[key], str):
                continue
            else:
                yield from lost(value, new[key], f"{place}.{key}")
    elif isinstance(old, list) and isinstance(new, list):
        yield from _lost_entries(old, new, place)
    elif isinstance(old, float) and isinstance(new, float | int):
        if not math.isclose(old, new, rel_tol=1e-6):
            yield f"{place} was {old}, is {new}"
    elif old != new or isinstance(old, bool) != isinstance(new, bool):
        yield f"{place} was {json.dumps(old)[:200]}, is {json.dumps(new)[:200]}"


def _lost_entries(old: list[Any], new: list[Any], place: str) -> Iterator[str]:
    """Yield the losses of a list: findings and rules of a reason may grow by new rules; other entries keep their order."""
    if all(isinstance(each, dict) and "rule" in each for each in [*old, *new]):
        by_rule = {each["rule"]: each for each in new}
        for each in old:
            rule = each["rule"]
            if rule in by_rule:
                yield from lost(each, by_rule[rule], f"{place}[{rule}]")
            else:
                yield f"{place}[{rule}] is gone"
    elif place.endswith("].rules"):  # names of rules that judge a clock event reason
        yield from (f"{place}[{each}] is gone" for each in old if each not in new)
    elif len(old) != len(new):
        yield f"{place} had {len(old)} entries, has {len(new)}"
    else:
        for number, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from lost(before, after, f"{place}[{number}]")
