"""Decisions of other tools on the same clean windows of real GPUs: equal pairs, and pairs with a true difference by construction.

    python -m tests.hardware.other_decisions FOLDER      decides again, into h200-decisions.json

``FOLDER`` holds cuda-bench 0.3.0 with its comparison: ``pip install --target FOLDER 'cuda-bench[compare]==0.3.0'``.  A pair is two
successive stamped clean windows of one process.  A difference stretches the second window's times and pauses alike, and
leaves out the calls that no longer fit into the window, so that its books still balance.  ``make pages`` renders the table.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from scipy.stats import mannwhitneyu

from annotate.compare.two_runs import of_runs
from annotate.evidence import Evidence, Timings
from tests.hardware.paired_disturbances import STAMPED
from tests.hardware.paired_scores import TRACES, read

RESULTS = TRACES / "h200-decisions.json"
DIFFERENCES = (0.0, 0.005, 0.01, 0.02)
ALPHA = 0.05
TOOLS = ("gpuwatch", "nvbench", "mann-whitney")
_MODULE = "cuda.bench.scripts.nvbench_compare_robust"
_STATUS = re.compile(r"\|[^|]*\b(SAME|FAST|SLOW|AMBG|\?\?\?\?)\b[^|]*\|\s*$", re.MULTILINE)
_NVBENCH = {"SAME": "same", "FAST": "faster", "SLOW": "slower", "AMBG": "open", "????": "open"}

Row: TypeAlias = dict[str, Any]
Pair: TypeAlias = tuple[str, Evidence, Evidence]


def pairs() -> Iterator[Pair]:
    """Yield the work and both windows of each pair."""
    whole, evidences = read()
    sessions: dict[tuple[str, int, str], list[Evidence]] = {}
    for stored, evidence in zip(whole.windows, evidences, strict=True):
        window = stored.window
        if window.is_reference and window.mode == STAMPED and evidence.timings is not None:
            sessions.setdefault((stored.card, window.seed, window.work), []).append(evidence)
    for (_, _, work), found in sessions.items():
        yield from ((work, a, b) for a, b in pairwise(found))


def stretched(evidence: Evidence, ratio: float) -> Evidence:
    """Return the window with every call and pause longer by this ratio."""
    times, window = evidence.timings, evidence.window
    assert times is not None
    at_ns = window.begin_ns + np.round((times.at_ns - window.begin_ns) * (1.0 + ratio)).astype(np.int64)
    longer = Timings(at_ns, times.took_s * (1.0 + ratio), times.sm_clock_mhz, times.calls_count)
    return replace(evidence, timings=longer.pick(at_ns + longer.took_s * 1e9 <= window.end_ns))


def decide(a: Evidence, b: Evidence, folder: Path) -> Row:
    """Return each tool's decision on the second window against the first: same, faster, slower or open."""
    assert a.timings is not None
    assert b.timings is not None
    found = mannwhitneyu(b.timings.took_s, a.timings.took_s)
    slower = np.median(b.timings.took_s) > np.median(a.timings.took_s)
    return {
        "gpuwatch": decide_here(a, b),
        "nvbench": _nvbench(a.timings, b.timings, folder),
        "mann-whitney": "same" if found.pvalue >= ALPHA else "slower" if slower else "faster",
    }


def decide_here(a: Evidence, b: Evidence) -> str:
    """Return gpuwatch's decision on two recorded windows, in the words of ``decide``."""
    decision = of_runs(a, b).decision.value
    return decision if decision in ("same", "faster", "slower") else "open"


def _nvbench(a: Timings, b: Timings, packages: Path) -> str:
    with tempfile.TemporaryDirectory() as folder:
        files = [str(_written(Path(folder), name, times)) for name, times in (("a", a), ("b", b))]
        environment = {**os.environ, "PYTHONPATH": str(packages)}
        command = [sys.executable, "-m", _MODULE, "--no-color", *files]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    status = _STATUS.search(done.stdout)
    if status is None:
        raise ValueError(f"expected a status from {_MODULE}, found: {done.stdout}{done.stderr}")
    return _NVBENCH[status[1]]


def _written(folder: Path, name: str, times: Timings) -> Path:
    """Write a result of NVBench with these samples, as version 0.3.0 writes it."""
    took_s, clock_mhz = times.took_s, times.sm_clock_mhz
    assert clock_mhz is not None
    known = np.isfinite(clock_mhz)
    took_s, clock_hz = took_s[known].astype(np.float32), (clock_mhz[known] * 1e6).astype(np.float32)
    (folder / f"{name}.bin").write_bytes(took_s.tobytes())
    (folder / f"{name}-freqs.bin").write_bytes(clock_hz.tobytes())
    low, middle, high = (float(each) for each in np.quantile(took_s, (0.25, 0.5, 0.75)))
    mean, spread = float(took_s.mean()), float(took_s.std(ddof=1))
    values = {
        "min": float(took_s.min()), "max": float(took_s.max()), "mean": mean, "stdev/absolute": spread,
        "stdev/relative": spread / mean, "q1": low, "median": middle, "q3": high, "iqr/absolute": high - low,
        "iqr/relative": (high - low) / middle,
    }  # fmt: skip
    summaries = [_summary("nv/cold/sample_size", "int64", len(took_s))]
    summaries += [_summary(f"nv/cold/time/gpu/{key}", "float64", value) for key, value in values.items()]
    summaries.append(_summary("nv/cold/sm_clock_rate/mean", "float64", float(clock_hz.mean())))
    for tag, file in (("bin:nv/cold/sample_times", f"{name}.bin"), ("freqs-bin:nv/cold/sample_freqs", f"{name}-freqs.bin")):
        data = [
            {"name": "filename", "type": "string", "value": file},
            {"name": "size", "type": "int64", "value": str(len(took_s))},
        ]
        summaries.append({"tag": f"nv/json/{tag}", "data": data})
    path = folder / f"{name}.json"
    real = json.loads((TRACES.parent / "gpuwatch/results/files/nvbench-h200/r1.json").read_text(encoding="utf-8"))
    real["benchmarks"][0]["states"][0] |= {"summaries": summaries, "min_samples": len(took_s)}
    path.write_text(json.dumps(real), encoding="utf-8")
    return path


def _summary(tag: str, kind: str, value: float) -> Row:
    return {"tag": tag, "data": [{"name": "value", "type": kind, "value": str(value)}]}


def decide_all(packages: Path) -> None:
    """Decide on every pair and difference, and write the rows."""
    rows = []
    for i, (work, a, b) in enumerate(pairs()):
        for ratio in DIFFERENCES:
            rows.append({"pair": i, "work": work, "difference_ratio": ratio, **decide(a, stretched(b, ratio), packages)})
            print(rows[-1], flush=True)
    RESULTS.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n", encoding="utf-8")


def section(path: Path = RESULTS) -> Iterator[str]:
    """Yield the lines of the table of decisions."""
    if not path.exists():
        return
    rows = json.loads(path.read_text(encoding="utf-8"))
    yield from (
        "### Decisions of other tools on the same windows",
        "",
        f"Each of {len({row['pair'] for row in rows})} pairs is two successive clean windows of one work and process, with stamps.  A true difference stretches the second",
        "window's times and pauses (`tests/hardware/other_decisions.py`).  gpuwatch compares two recorded windows, at one clock if their",
        'clocks allow it; `nvbench-compare-robust` is of cuda-bench 0.3.0; Mann–Whitney tests raw times at 5 %.  "Open": inconclusive,',
        "incomparable or ambiguous.  Equal pairs of `decode` and `decode-graph` differ by up to 7 % (above), so a difference there is real.",
        "",
        "| true difference | work | pairs | gpuwatch: slower / faster / same / open | nvbench-compare-robust | Mann–Whitney |",
        "|---|---|---|---|---|---|",
    )
    for ratio in DIFFERENCES:
        for name, works in (("decode loops", True), ("all others", False)):
            of = [row for row in rows if row["difference_ratio"] == ratio and row["work"].startswith("decode") is works]
            cells = (
                " / ".join(str(sum(row[tool] == each for row in of)) for each in ("slower", "faster", "same", "open"))
                for tool in TOOLS
            )
            yield f"| {ratio:.1%} | {name} | {len(of)} | {' | '.join(cells)} |"
    yield ""


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 1:
        print(__doc__)
        return 2
    decide_all(Path(arguments[0]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
