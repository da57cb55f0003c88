"""The experiments of the essays, of cards and of programs as committed evidence, and their tables in docs/VALIDATION.md.

    python -m tests.hardware.essays_page add FOLDER      replaces data by the output of ``essays.py`` or ``programs.py``

Experiments in the output are replaced as a whole; ``cards`` and ``programs`` keep the rows of other cards.  ``make pages``
judges the evidence again.
"""

from __future__ import annotations

import hashlib
import json
import math
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

from annotate.budget import Number, NumberBudget
from annotate.capsule.pack import pack, unpack
from annotate.evidence import Evidence
from annotate.judge import judge
from annotate.output.budget_words import number_words, percent
from annotate.verdict import Verdict
from tests.proof.plain_programs import simulated_programs
from tests.truth_windows import times_of, with_times

Row: TypeAlias = dict[str, Any]
TRACES = Path(__file__).parents[1] / "traces"
ESSAYS, CARDS, PROGRAMS = "h200-essays", "h200-cards", "h200-programs"
_NAMED = (Number.MEDIAN_AT_CLOCK, Number.MEDIAN, Number.MEAN)
# Results of the same experiment in the essays, on other cards: essay 000 on H100 and H200, essay 004 on B200.
_PRINTED = {
    "contention": "000: CPUs busy +0.3 % of the mean, GPU busy +21 %, both +36 %",
    "trial counts": "000: the time depends on the number of trials, because the power cap engages",
    "power cap": "000: 12.36 ms back to back; 11.11 ms with sleeps of 20 ms, 11.07 with 100 ms, 11.04 with 500 ms",
    "aggregations": "000: the mean grows most under noise; trimmed mean and median stay close",
    "caches": "000: a warm cache helps a matrix times a vector, and vectors that fit",
    "methods": "000: events, graphs and do_bench agree; below 10 µs no method is reliable",
    "launches": "004: Triton's dispatch 38.4 µs, a direct launch 25.0, a graph 21.4",
    "cupti": "004: CUPTI adds 8 to 15 % to every call, even when no session is active",
    "flags": "000: compiler flags alone change the time of the same source",
}


def add(folder: Path) -> None:
    """Replace the committed windows by a run's, with identities masked and times rounded."""
    from tests.hardware.render import masked  # imported late, because ``render`` renders the page of this module's data

    rows, evidences = json.loads((folder / "essays.json").read_text()), unpack((folder / "essays.capsule").read_bytes())
    taken = [
        ({**{name: value for name, value in row.items() if name != "run"}, "card": _digest(evidence)}, masked(evidence))
        for row, evidence in zip(rows, evidences, strict=True)
    ]
    for stem, experiment in ((CARDS, "cards"), (PROGRAMS, "programs")):
        if of_cards := [each for each in taken if each[0]["experiment"] == experiment]:
            fresh = {row["card"] for row, _ in of_cards}
            kept = [each for each in read(stem) if each[0]["card"] not in fresh] if _paths(stem)[0].exists() else []
            _write(stem, [*kept, *of_cards])
    if essays := [each for each in taken if each[0]["experiment"] in _PRINTED]:
        fresh = {row["experiment"] for row, _ in essays}
        found = {name: [each for each in read() if each[0]["experiment"] == name and name not in fresh] for name in _PRINTED}
        for each in essays:
            found[each[0]["experiment"]].append(each)
        _write(ESSAYS, [each for of in found.values() for each in of])


def _digest(evidence: Evidence) -> str:
    """Return a card's pseudonym, constant over windows, that reveals no identity."""
    assert evidence.device is not None
    return hashlib.sha256(evidence.device.uuid.encode()).hexdigest()[:8]


def _paths(stem: str) -> tuple[Path, Path, Path]:
    return TRACES / f"{stem}.json", TRACES / f"{stem}.capsule", TRACES / f"{stem}-times.npz.xz"


def _write(stem: str, windows: Sequence[tuple[Row, Evidence]]) -> None:
    rows, evidence, times = _paths(stem)
    untimed = [(each, replace(each, timings=None)) for _, each in windows]
    rows.write_text(json.dumps([row for row, _ in windows], indent=1) + "\n", encoding="utf-8")
    evidence.write_bytes(pack([whole if _is_batched(whole) else bare for whole, bare in untimed]))
    times.write_bytes(times_of([bare if _is_batched(whole) else whole for whole, bare in untimed]))


def _is_batched(evidence: Evidence) -> bool:
    """Return True if entries are batches: the file of rounded times holds single calls only."""
    return evidence.timings is not None and evidence.timings.calls_count > 1


def read(stem: str = ESSAYS) -> list[tuple[Row, Evidence]]:
    """Read the committed rows with their evidence."""
    rows, evidence, times = _paths(stem)
    whole = unpack(evidence.read_bytes())
    timed = with_times(whole, times.read_bytes())
    evidences = [each if each.timings is not None else other for each, other in zip(whole, timed, strict=True)]
    return list(zip(json.loads(rows.read_text(encoding="utf-8")), evidences, strict=True))


@lru_cache(maxsize=3)
def judged(stem: str = ESSAYS) -> Sequence[tuple[Row, Verdict]]:
    return [(row, judge(evidence)) for row, evidence in read(stem)]


def of_cards() -> Iterator[str]:
    """Yield the lines of the table of kernels on several cards."""
    if not _paths(CARDS)[0].exists():
        return
    rows = judged(CARDS)
    numbers = {card: i + 1 for i, card in enumerate(dict.fromkeys(row["card"] for row, _ in rows))}
    yield from (
        "## The same kernels on several cards",
        "",
        f"`python -m tests.hardware.essays OUT cards` on {len(numbers)} NVIDIA H200, two windows of 3 s each; the mean of both medians, raw and at one clock.",
        "",
        "| kernel | "
        + " | ".join(f"card {i}, raw | card {i}, one clock" for i in numbers.values())
        + " | difference, raw | difference, one clock |",
        "|---|" + "---|---|" * (len(numbers) + 1),
    )
    for kernel in dict.fromkeys(row["condition"] for row, _ in rows):
        cells, raw, fixed = [], [], []
        for card in numbers:
            of = [verdict for row, verdict in rows if row["condition"] == kernel and row["card"] == card]
            raw.append(_middle(of, Number.MEDIAN))
            fixed.append(_middle(of, Number.MEDIAN_AT_CLOCK))
            clocks = {each.clock_mhz for verdict in of if (each := _number(verdict, Number.MEDIAN_AT_CLOCK)) and each.clock_mhz}
            at = ", ".join(f"{clock:.0f} MHz" for clock in sorted(clocks)) or "not given"
            cells.append(f"{raw[-1] * 1e6:.2f} µs | {fixed[-1] * 1e6:.2f} µs at {at}")
        yield f"| {kernel} | " + " | ".join(cells) + f" | {_apart(raw)} | {_apart(fixed)} |"
    yield ""


def of_programs() -> Iterator[str]:
    """Yield the lines of the table of honest programs."""
    if not _paths(PROGRAMS)[0].exists():
        return
    rows = judged(PROGRAMS)
    numbers = {card: i + 1 for i, card in enumerate(dict.fromkeys(row["card"] for row, _ in rows))}
    yield from (
        "## Plain windows around honest programs",
        "",
        f"`python -m tests.hardware.programs OUT` on {len(numbers)} NVIDIA H200: each program does the same work before, in and after a window of 4 s",
        "or, in C++, 6 s.  The true deviation is the window's calls per second over the mean of both others, minus 1; no window here is off.",
        "The last rows are simulated windows of 4 s without a disturbance (`tests/proof/plain_programs.py`), whose true deviation is 0.",
        "",
        "| program | card | verdict | disturbances at most | true deviation | missing proofs, or causes |",
        "|---|---|---|---|---|---|",
    )
    for row, verdict in rows:
        truth = f"{row['deviation_ratio']:+.2%}" if "deviation_ratio" in row else "–"
        yield _of_program(row["condition"], str(numbers[row["card"]]), truth, verdict)
    for name, evidence in simulated_programs().items():
        yield _of_program(name, "simulated", "+0.00%", judge(evidence))
    yield ""


def _of_program(name: str, card: str, truth: str, verdict: Verdict) -> str:
    status = verdict.status.value
    return f"| {name} | {card} | {status} | {_bound(verdict)} | {truth} | {verdict.why or _causes(verdict)} |"


def _number(verdict: Verdict, number: Number) -> NumberBudget | None:
    return verdict.budget.number(number) if verdict.budget is not None else None


def _middle(of: Sequence[Verdict], number: Number) -> float:
    values = [each.value for verdict in of if (each := _number(verdict, number)) is not None and each.value is not None]
    return statistics.fmean(values) if values else math.nan


def _apart(values: Sequence[float]) -> str:
    return f"{max(values) / min(values) - 1.0:.2%}" if len(values) > 1 else "–"


def section() -> Iterator[str]:
    """Yield the lines of the table of the essays' experiments."""
    rows = judged()
    device, date = rows[0][1].device_name, rows[0][0]["date"]
    yield from (
        "## Experiments of the essays",
        "",
        f"`python -m tests.hardware.essays OUT` on an {device} ({date}); the evidence is committed, and judged anew for this page.",
        "Contention and trial counts call a GEMM of 4096³ in bf16, aggregations one of 1024³.  The column `read` has the times of the",
        "experiment's method, the next columns gpuwatch's results for the window.  The essays used other cards, so their figures show",
        "the direction of an effect, not the size.",
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
        "- **Contention**: with a neighbour the median is *lower*, at half the calls per second: single calls run between the neighbour's,",
        "  at the clock that their power allows.  The number at 1500 MHz changes by 0.2 %.",
        "- **Trial counts**: ten calls from idle read 16 % less time than 30 000 calls; the three numbers at 1500 MHz agree to 0.2 %.",
        "- **Sleeps** hide the cap: 15 % less time per call, at 40 % or 12 % of the calls per second.",
        "- **Methods** of 200 calls per reading take 20 to 500 ms: most windows are too short for the books of utilisation, so unproven at best.",
        "- **CUPTI** (by torch's profiler) was measured in fresh processes by turns; the ratio has a 97 % interval over the turns.",
        "",
    )


def _read(row: Row) -> str:
    """Format the reading of the experiment's method."""
    if "said" in row:
        return str(row["said"])
    parts = [f"{name} {row[f'{name}_s'] * 1e6:.2f} µs" for name in ("least", "median", "mean", "trimmed") if f"{name}_s" in row]
    if row.get("ratios"):
        # The range of six values is a 97 % interval of their median.
        low, *_, high = sorted(row["ratios"])
        parts.append(f"{statistics.median(row['ratios']):.3f} ({low:.3f} to {high:.3f}) of the time without")
    if "calls_a_second" in row:
        parts.append(f"{row['calls_a_second']:.0f} calls/s")
    return f"{row['count']}: " + ", ".join(parts)


def _numbers(verdict: Verdict) -> str:
    numbers = verdict.budget.numbers if verdict.budget is not None else ()
    return ", ".join(number_words(each) for each in numbers if each.number in _NAMED and each.value is not None) or "–"


def _bound(verdict: Verdict) -> str:
    budget = verdict.budget
    if budget is None:
        return "–"
    bounds = [each.bound_ratio for each in budget.numbers if each.number in budget.claimed]
    return "not bounded" if None in bounds else percent(max((each for each in bounds if each is not None), default=0.0))


def _causes(verdict: Verdict) -> str:
    return ", ".join(each.rule for each in verdict.causes if each.severity != "note") or "–"


if __name__ == "__main__":
    if sys.argv[1:2] != ["add"] or len(sys.argv) != 3:
        sys.exit(__doc__)
    add(Path(sys.argv[2]))
