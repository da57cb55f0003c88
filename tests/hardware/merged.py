"""Rows of the campaigns on real GPUs, merged over runs, and their tables in docs/VALIDATION.md.

python -m tests.hardware.merged FOLDER …     appends a run's rows to the committed data
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tests.rate_bounds import clopper_pearson

Row: TypeAlias = dict[str, Any]
TRACES = Path(__file__).parents[1] / "traces"
VERDICTS = "h200-verdicts.jsonl"
FIGURES = "h200-figures.jsonl"
# Hazards on which a limit was set or corrected, from the recordings or from rows of these tables.
RECORDED_HAZARDS = frozenset({
    "from-idle-1s", "from-idle-3s", "neighbour", "cpu-hogs", "sleeps-20ms", "sleeps-500ms", "zeros", "own-streams",
    "side-stream-iterations", "background-threads", "tiny-eager", "gemv-eager",
})  # fmt: skip


def rows(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def append(folder: Path, data: Path = TRACES) -> None:
    """Append the rows of a run that the data does not contain yet."""
    verdicts = [
        row for path in sorted(folder.glob("verdicts-*.jsonl")) for row in map(json.loads, path.read_text().splitlines())
    ]
    lists = [*sorted(folder.glob("figures-*.json")), *folder.glob("effect.json")]
    figures = [row for path in lists for row in json.loads(path.read_text())]
    figures += [json.loads(path.read_text()) for path in sorted(folder.glob("stamps.json"))]
    for name, new in ((VERDICTS, verdicts), (FIGURES, figures)):
        path = data / name
        known = {json.dumps(row) for row in rows(path)}
        fresh = [line for line in map(json.dumps, new) if line not in known]
        if fresh:
            with path.open("a") as file:
                file.write("\n".join(fresh) + "\n")


def due(row: Row) -> bool:
    """Return True if the verdict was right: an allowed status, and for a hazard one of its rules or status unproven."""
    if row["status"] not in row["status_due"].split("|"):
        return False
    found = {rule for rule, _ in row["hazards"]}
    return row["kind"] == "clean" or row["status"] == "unproven" or bool(found & set(row["rules"]))


def caught(row: Row) -> bool:
    """Return True if an injected hazard at least prevented the status valid."""
    return bool(row["status"] != "valid")


def page(data: Path = TRACES) -> Iterator[str]:
    """Yield the lines of sections of docs/VALIDATION.md."""
    verdicts, figures = rows(data / VERDICTS), rows(data / FIGURES)
    if verdicts:
        yield from _verdicts(verdicts)
    tables: dict[str, list[Row]] = defaultdict(list)
    for row in figures:
        tables[row["table"]].append(row)
    for name, section in (
        ("stamps", _stamps), ("corrections", _corrections), ("comparisons", _comparisons), ("floors", _floors),
        ("methods", _methods), ("experiments", _experiments), ("essays", _instances),
    ):  # fmt: skip
        if tables[name]:
            yield from section(tables[name])


def _bounds(hits: int, trials: int) -> str:
    low, high = clopper_pearson(hits, trials)
    return f"{hits} of {trials} ({low:.1%} to {high:.1%})"


def _grouped(of: Iterable[Row], key: Callable[[Row], Any]) -> dict[Any, list[Row]]:
    out: dict[Any, list[Row]] = defaultdict(list)
    for row in of:
        out[key(row)].append(row)
    return dict(out)


def _verdicts(verdicts: list[Row]) -> Iterator[str]:
    clean = [row for row in verdicts if row["kind"] == "clean"]
    injected = [row for row in verdicts if row["kind"] == "injected"]
    dates = sorted({row["date"] for row in verdicts})
    yield from (
        "## Correct verdicts on real GPUs",
        "",
        f"{len(clean)} clean and {len(injected)} injected windows on NVIDIA H200 ({', '.join(dates)}; `tests/hardware/verdicts.py`,",
        "rows in `tests/traces/h200-verdicts.jsonl`).  Bounds are 95 % Clopper-Pearson.",
        "Limits were set on the recorded kernels; the others were in no recording.  The verdicts are by the rules of these dates.  Rows of",
        "the latest date are on evidence of a daemon with the compiled loop.",
        "Earlier rows are unchanged, although two faults were corrected since.  `background-thread` missed threads that started with the",
        "window, and had findings in some windows of `zeros`; `host-bound` mistook late launches for few launches.",
        "",
        "| windows | wrong |",
        "|---|---|",
        f"| clean, not `valid` | {_bounds(sum(row['status'] != 'valid' for row in clean), len(clean))} |",
    )
    for recorded, of in sorted(_grouped(clean, lambda row: row["recorded"]).items()):
        name = "kernels in recordings" if recorded else "kernels in no recording"
        yield f"| … of {name} | {_bounds(sum(row['status'] != 'valid' for row in of), len(of))} |"
    yield f"| injected, yet `valid` | {_bounds(sum(not caught(row) for row in injected), len(injected))} |"
    yield f"| injected, the hazard not named | {_bounds(sum(not due(row) for row in injected), len(injected))} |"
    for recorded in (False, True):
        of = [row for row in injected if (row["name"] in RECORDED_HAZARDS) is recorded]
        name = "on which limits were set or corrected" if recorded else "on which no limit was set"
        yield f"| … of hazards {name} | {_bounds(sum(not due(row) for row in of), len(of))} |"
    for kind, of, wrong in (
        ("clean, not `valid`", clean, lambda row: row["status"] != "valid"),
        ("injected, yet `valid`", injected, lambda row: not caught(row)),
        ("injected, the hazard not named", injected, lambda row: not due(row)),
    ):
        latest = [row for row in of if row["date"] == dates[-1]]
        yield f"| on {dates[-1]} alone: {kind} | {_bounds(sum(map(wrong, latest)), len(latest))} |"
    short = [row for row in verdicts if row["kind"] == "short-warm-up"]
    if short:
        flagged = sum(row["status"] != "valid" for row in short)
        yield from (
            "",
            f"Another {len(short)} windows started 0.7 s after a pause, by a mistake in the order of the first campaign: {flagged} of them were",
            "flagged (`regime-change` requires 3 s under a power cap).  These windows count as neither clean nor injected.",
        )
    few = [row for row in verdicts if row["kind"] == "few-hogs"]
    if few:
        yield from (
            "",
            f"Another {len(few)} windows ran with one busy process per CPU ({_counted(row['status'] for row in few)}): too few to delay a",
            "launch every time, so these windows count as neither.  The injection now starts two per CPU.",
        )
    yield from (
        "",
        "Of the three clean windows that were not valid, two contain a real onset of the power cap (a GEMM in fp32 at 700 W reached the",
        "cap after 1.26 s), and one started 2.5 s after a pause, although a capped clock takes 3 s to settle (`regime-change`).",
        "",
        "| hazard | limits set on it | windows | named | verdicts | rules with findings (flag or reject) |",
        "|---|---|---|---|---|---|",
    )
    for name, of in sorted(_grouped(injected, lambda row: row["name"]).items()):
        spoke = _counted(rule for row in of for rule, severity in row["hazards"] if severity != "note")
        recorded = "yes" if name in RECORDED_HAZARDS else "no"
        yield f"| {name} | {recorded} | {len(of)} | {sum(map(due, of))} | {_counted(row['status'] for row in of)} | {spoke} |"
    yield from ("", "| clean kernel | limits set on it | windows | valid | false findings |", "|---|---|---|---|---|")
    for name, of in sorted(_grouped(clean, lambda row: row["name"]).items()):
        spoke = _counted(rule for row in of for rule, severity in row["hazards"] if severity != "note")
        valid = sum(row["status"] == "valid" for row in of)
        yield f"| {name} | {'yes' if of[0]['recorded'] else 'no'} | {len(of)} | {valid} | {spoke} |"
    alarms = _grouped(
        ({"rule": rule} for row in clean for rule, severity in row["hazards"] if severity != "note"), lambda row: row["rule"]
    )
    yield from ("", "| rule | false alarms in clean windows |", "|---|---|")
    for rule, of in sorted(alarms.items()):
        yield f"| {rule} | {_bounds(len(of), len(clean))} |"
    yield f"| every other rule | {_bounds(0, len(clean))} |"
    yield ""


def _counted(words: Iterable[str]) -> str:
    counts: dict[str, int] = defaultdict(int)
    for word in words:
        counts[word] += 1
    return ", ".join(f"{word} {count}" for word, count in sorted(counts.items(), key=lambda pair: -pair[1])) or "–"


def _percent(ratio: float | None, digits: int = 2) -> str:
    return "–" if ratio is None else f"{ratio:.{digits}%}"


def _stamps(of: list[Row]) -> Iterator[str]:
    yield from (
        "## Cost of a stamp of the true clock",
        "",
        "`tests/hardware/stamps.py`.  The GPU's part is the time that a stamp after each call adds to a full queue, a median of five rounds.",
        "",
        "| date | host per stamp | GPU behind a copy / GEMM 1024 | SMs seen | timer's step | first and second allocation in a process | spread of SMs' clocks |",
        "|---|---|---|---|---|---|---|",
    )
    for row in of:
        behind = [float(np.median(row[f"stamp_behind_{name}_us"][1])) for name in ("copy", "gemm1k")]
        seen, there = row["sms_seen_min_of"]
        yield (
            f"| {row['date']} | {row['put_us']:.1f} µs | {behind[0]:.1f} / {behind[1]:.1f} µs | {seen} of {there} | "
            f"{row['timer_step_ns']} ns | {row['first_here_ms']:.0f}, {row['second_here_ms']:.2f} ms | {row['spread_of_sms_ratio']:.1%} |"
        )
    yield ""


def _corrections(of: list[Row]) -> Iterator[str]:
    yield from (
        "## The clock's correction",
        "",
        "Kernels back to back on capped, unlocked cards, without induced changes; β is fitted on one window of 3 s and applied to another of",
        "the same card, a second or more later.  Scatter: standard deviation of estimates of that length over their mean; median of",
        "the pairs of windows, and the worst in parentheses.  NVBench's rule discards iterations below 75 % of the maximum clock.  The",
        "last column is the mean of the kept iterations against the mean of all (–: all are discarded, and NVBench would sample on).",
        "",
        "| kernel | limits set on it | pairs | ms | true MHz 5–95 % | β | 100 ms raw | corrected | 300 ms raw | corrected | CV raw | corrected | gain at 100 ms | NVBench's rule discards | mean of the rest |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    )
    refused: dict[str, str] = {}
    for kernel, pairs in _grouped(of, lambda row: row["kernel"]).items():
        fits = [row for row in pairs if "refused" not in row["fit"]]
        for row in pairs:
            if "refused" in row["fit"]:
                refused[kernel] = row["fit"]["refused"]
        betas = sorted(row["fit"]["beta"] for row in fits)
        beta = "refused" if not fits else f"{betas[0]:.2f}–{betas[-1]:.2f}"
        raw, corrected = ([row["scatters"][0][which] for row in fits or pairs] for which in ("raw_ratio", "corrected_ratio"))
        gain = f"{np.median([r / c for r, c in zip(raw, corrected, strict=True)]):.0f}×" if fits else "no need"
        cells = [
            kernel, "yes" if pairs[0]["recorded"] else "no", str(len(pairs)), f"{np.median([r['time_s'] for r in pairs]) * 1e3:.4g}",
            f"{min(r['clock_low_mhz'] for r in pairs):.0f}–{max(r['clock_high_mhz'] for r in pairs):.0f}", beta,
            _spread(raw), _spread(corrected), *(_spread([r["scatters"][1][w] for r in fits or pairs]) for w in ("raw_ratio", "corrected_ratio")),
            _percent(float(np.median([r["cv_raw_ratio"] for r in pairs]))),
            _percent(float(np.median([r["cv_corrected_ratio"] for r in fits])) if fits else None), gain,
            _percent(float(np.median([r["nvbench_discards_ratio"] for r in pairs])), 0), _nvbench(pairs),
        ]  # fmt: skip
        yield f"| {' | '.join(cells)} |"
    if refused:
        yield from ("", "Refused, for example: " + " ".join(f"*{kernel}*: {reason}" for kernel, reason in refused.items()))
    yield ""


def _nvbench(pairs: list[Row]) -> str:
    apart = [row["nvbench_mean_s"] / row["mean_s"] - 1.0 for row in pairs if row.get("nvbench_mean_s") is not None]
    return f"{np.median(apart):+.2%}" if apart else "–"


def _spread(ratios: list[float | None]) -> str:
    known = [ratio for ratio in ratios if ratio is not None]
    return f"{np.median(known):.2%} ({max(known):.2%})" if known else "–"


def _comparisons(of: list[Row]) -> Iterator[str]:
    yield from (
        "## Comparisons",
        "",
        "Two equal arms (A/A), and two that differ by 0.5 % by construction (a GEMM 201 tiles deep against 200; a copy of 0.5 % more",
        "bytes).  gpuwatch decides.  For the other tools, a difference of two successive estimates counts as a difference if it exceeds",
        "the 95th percentile of the tool's A/A trials.  Both arms use the same buffers, and the floor is set to 0.1 %",
        "(`floor_ratio=0.001`), so that only the work separates the arms.  Arms with separate buffers: [BENCHMARKS](BENCHMARKS.md).",
        "",
        "| work | arms | trials | gpuwatch finds a difference | do_bench | torch Timer 0.2 s | gpuwatch's seconds |",
        "|---|---|---|---|---|---|---|",
    )
    for kind, both in sorted(_grouped(of, lambda row: row["kind"]).items()):
        limits = {
            name: float(np.quantile([abs(row[name]) for row in both if not row["differ"]], 0.95))
            for name in ("do_bench mean", "torch Timer 0.2 s")
        }
        for differ, trials in sorted(_grouped(both, lambda row: row["differ"]).items()):
            called = sum(row["decision"] in ("faster", "slower") for row in trials)
            peers = [
                f"{sum(abs(row[name]) > limit for row in trials)} (A/A p95 {limit:.2%}; sd {np.std([row[name] for row in trials]):.2%})"
                for name, limit in limits.items()
            ]
            error = np.std([row["change_ratio"] for row in trials])
            took = np.median([row["took_s"] for row in trials])
            yield (
                f"| {kind} | {'0.5 % apart' if differ else 'equal'} | {len(trials)} | {_bounds(called, len(trials))}, sd {error:.3%} | "
                f"{peers[0]} | {peers[1]} | {took:.1f} |"
            )
    yield ""


def _floors(of: list[Row]) -> Iterator[str]:
    yield from (
        "`gpuwatch selftest` on an H200, with two equal arms.",
        "",
        "| work | buffers | trials | floor |",
        "|---|---|---|---|",
    )
    for row in of:
        buffers = "the same" if row["shared"] else "separate"
        yield f"| {row['kind']} | {buffers} | {row['trials_count']} | {row['floor_ratio']:.3%} |"
    yield ""


def _methods(of: list[Row]) -> Iterator[str]:
    yield from (
        "## Timing methods on the same call",
        "",
        "Each estimate was taken after a pause of 0.2 s, as in a script.  Scatter is the standard deviation of the estimates over their",
        "mean; the mean is compared with the mean of the medians of `gpuwatch.bench`.",
        "",
        "| kernel | method | estimates | mean ms | against bench | scatter |",
        "|---|---|---|---|---|---|",
    )
    for kernel, rows_ in _grouped(of, lambda row: row["kernel"]).items():
        base = next((row["mean_s"] for row in rows_ if row["method"] == "gpuwatch.bench median"), None)
        for row in rows_:
            against = "–" if not base else f"{row['mean_s'] / base - 1.0:+.1%}"
            yield (
                f"| {kernel} | {row['method']} | {row['count']} | {row['mean_s'] * 1e3:.4f} | {against} | {_percent(row['scatter_ratio'])} |"
            )
    yield ""


def _experiments(of: list[Row]) -> Iterator[str]:
    yield from (
        "## Caches, timers, data",
        "",
        "`gpuwatch.bench` with each timer and each cache mode, and the verdict.",
        "",
        "| call | timer | cache | median µs | calls per entry | host's part µs | true MHz | verdict | hazards |",
        "|---|---|---|---|---|---|---|---|---|",
    )
    # A later measurement after a change replaces the earlier one.
    latest = {(row["call"], row["timer"], row["cache"]): row for row in of}
    for row in latest.values():
        if "refused" in row:
            yield f"| {row['call']} | {row['timer']} | {row['cache']} | refused: {row['refused']} | | | | | |"
            continue
        hazards = ", ".join(f"{rule} ({severity})" for rule, severity in row["hazards"]) or "–"
        issue = row.get("issue_s")
        clock = row.get("clock_mhz")
        yield (
            f"| {row['call']} | {row['timer']} | {row['cache'] or '–'} | {row['median_s'] * 1e6:.2f} | {row.get('calls_count', '–')} | "
            f"{'–' if issue is None else format(issue * 1e6, '.1f')} | {'–' if clock is None else format(clock, '.0f')} | {row['status']} | {hazards} |"
        )
    yield ""


def _instances(of: list[Row]) -> Iterator[str]:
    """Yield the table of two cards with the latest row of each condition: the rows are examples, not rates."""
    yield from (
        "## Two cards of one model",
        "",
        "The same calls on each GPU of one machine, and `gpuwatch compare` of the two, at one clock if both have stamps.",
        "",
        "| work | median on each GPU, ms | second against first at one clock | `gpuwatch compare` reports |",
        "|---|---|---|---|",
    )
    for row in {row["condition"]: row for row in of if row["experiment"] == "instances"}.values():
        each = ", ".join(f"{one['median_s'] * 1e3:.4f} ({one['clock_mhz']:.0f} MHz)" for one in row["each"])
        ratio = row["said"]["ratio"]["ratio"]
        yield f"| {row['condition']} | {each} | {ratio - 1.0:+.2%} | {row['said']['decision']}: {'; '.join(row['said']['reasons'][:1])} |"
    yield ""


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        append(Path(argument))
