"""The essays' experiments as committed evidence, and their table in docs/VALIDATION.md.

    python -m tests.hardware.essays_page add FOLDER      what ``essays.py`` left there, in place of what was committed

``make pages`` judges the evidence anew.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

from annotate.budget import Number
from annotate.capsule.pack import pack, unpack
from annotate.evidence import Evidence
from annotate.judge import judge
from annotate.output.budget_words import number_words, percent
from annotate.verdict import Verdict
from tests.truth_windows import times_of, with_times

Row: TypeAlias = dict[str, Any]
TRACES = Path(__file__).parents[1] / "traces"
ROWS, EVIDENCE, TIMES = (TRACES / f"h200-essays{end}" for end in (".json", ".capsule", "-times.npz.xz"))
_NAMED = (Number.MEDIAN_AT_CLOCK, Number.MEDIAN, Number.MEAN)
# What the essays printed of the same experiment, on their own cards (000: H100 and H200; 004: B200).
_PRINTED = {
    "contention": "000: processors busy +0.3 % of the mean, GPU busy +21 %, both +36 %",
    "trial counts": "000: the time depends on the number of trials, because power's cap sets in",
    "power cap": "000: 12.36 ms back to back; 11.11 ms with sleeps of 20 ms, 11.07 with 100 ms, 11.04 with 500 ms",
    "aggregations": "000: the mean grows most under noise; trimmed mean and median stay close",
    "caches": "000: a warm cache helps a matrix times a vector, and vectors that fit",
    "methods": "000: events, graphs and do_bench agree; below 10 µs no method is reliable",
    "launches": "004: Triton's dispatch 38.4 µs, a direct launch 25.0, a graph 21.4; CUPTI adds 8 to 15 % to every call",
    "flags": "000: compiler flags alone change the time of the same source",
}


def add(folder: Path) -> None:
    """Commit a run's windows, identities masked, times rounded."""
    from tests.hardware.render import masked  # which makes the page of what is read here

    rows = [
        {name: value for name, value in row.items() if name != "run"}
        for row in json.loads((folder / "essays.json").read_text())
    ]
    evidences = [masked(each) for each in unpack((folder / "essays.capsule").read_bytes())]
    ROWS.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    EVIDENCE.write_bytes(pack([each if _is_batched(each) else replace(each, timings=None) for each in evidences]))
    TIMES.write_bytes(times_of([replace(each, timings=None) if _is_batched(each) else each for each in evidences]))


def _is_batched(evidence: Evidence) -> bool:
    """Return whether entries stand for batches: the file of rounded times holds single calls only."""
    return evidence.timings is not None and evidence.timings.calls_count > 1


def read() -> list[tuple[Row, Evidence]]:
    """Read the committed rows with their evidence."""
    whole = unpack(EVIDENCE.read_bytes())
    timed = with_times(whole, TIMES.read_bytes())
    evidences = [each if each.timings is not None else other for each, other in zip(whole, timed, strict=True)]
    return list(zip(json.loads(ROWS.read_text(encoding="utf-8")), evidences, strict=True))


@lru_cache(maxsize=1)
def judged() -> Sequence[tuple[Row, Verdict]]:
    """Judge the committed windows."""
    return [(row, judge(evidence)) for row, evidence in read()]


def section() -> Iterator[str]:
    """Yield the lines of the table."""
    rows = judged()
    device, date = rows[0][1].device_name, rows[0][0]["date"]
    yield from (
        "## The essays' own experiments",
        "",
        f"`python -m tests.hardware.essays OUT` on an {device} ({date}); the evidence is committed, and judged anew for this page.  Most",
        "calls are of a GEMM of 4096³ in bf16.  Times are what the experiment's own method reads; beside them what gpuwatch says of the",
        "window.  The essays had other cards, so their figures stand for the direction, not for the size.",
        "",
        "| experiment | condition | read | gpuwatch's numbers | verdict | disturbances at most | causes |",
        "|---|---|---|---|---|---|---|",
    )
    before = ""
    for row, verdict in rows:
        if row["experiment"] != before:
            before = row["experiment"]
            yield f"| **{before}** | *{_PRINTED[before]}* | | | | | |"
        yield f"| | {row['condition']} | {_read(row)} | {_numbers(verdict)} | {verdict.status.value} | {_bound(verdict)} | {_causes(verdict)} |"
    yield from (
        "",
        "- **Contention**: the median beside a neighbour is *faster*, at half the calls a second: single calls run between the neighbour's,",
        "  at the clock their power allows.  The number at 1500 MHz moves by half a per cent.",
        "- **Trial counts**: ten calls from idle read 10 % faster at the clock they find; all five agree at one clock, where it is stamped.",
        "- **Sleeps** hide the cap: 15 % faster, at a third of the work or a tenth of it.",
        "- **Methods** of 200 calls a reading last 20 to 500 ms: most are too short for the books of utilisation, hence unproven at best.",
        "- **CUPTI** was collecting in the last row of launches, and stays attached to the process after it: the comparison of flags names it.",
        "",
    )


def _read(row: Row) -> str:
    """Write what the experiment's own method read."""
    if "said" in row:
        return str(row["said"])
    parts = [f"{name} {row[f'{name}_s'] * 1e6:.2f} µs" for name in ("least", "median", "mean", "trimmed") if f"{name}_s" in row]
    if "calls_a_second" in row:
        parts.append(f"{row['calls_a_second']:.0f} calls a second")
    return f"{row['count']}: " + ", ".join(parts)


def _numbers(verdict: Verdict) -> str:
    numbers = verdict.budget.numbers if verdict.budget is not None else ()
    return ", ".join(number_words(each) for each in numbers if each.number in _NAMED and each.value is not None) or "–"


def _bound(verdict: Verdict) -> str:
    budget = verdict.budget
    if budget is None:
        return "–"
    bounds = [each.bound_ratio for each in budget.numbers if each.number in budget.claimed]
    return "nobody can say" if None in bounds else percent(max((each for each in bounds if each is not None), default=0.0))


def _causes(verdict: Verdict) -> str:
    return ", ".join(each.rule for each in verdict.causes if each.severity != "note") or "–"


if __name__ == "__main__":
    if sys.argv[1:2] != ["add"] or len(sys.argv) != 3:
        sys.exit(__doc__)
    add(Path(sys.argv[2]))
