"""The H200 table of docs/INTEGRATIONS.md, from tests/traces/h200-harnesses.json: ``python -m tests.hardware.harnesses_page [--check]``."""

from __future__ import annotations

import json
import statistics
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from annotate.verdict import Status

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "traces" / "h200-harnesses.json"
PAGE = ROOT / "docs" / "INTEGRATIONS.md"
BEGIN, END = "<!-- H200: python -m tests.hardware.harnesses_page -->", "<!-- end of H200 -->"
REFERENCE_MHZ = 1500.0  # the judge's reference clock of an H200
_KEPT = ("harness", "number_s", "status", "causes", "why", "median_at_clock_s", "clock_mhz", "true_clock_mhz")


def take(paths: Sequence[Path]) -> None:
    """Convert runs' output to committed data without ids; each harness keeps the run with most rows, on a tie the later."""
    found: dict[str, Any] = {}
    by_harness: dict[str, list[dict[str, Any]]] = {}
    for path in paths:
        found = json.loads(path.read_text())
        rows = [{name: row[name] for name in _KEPT if name in row} for row in found["rows"]]
        for name in dict.fromkeys(row["harness"] for row in rows):
            mine = [row for row in rows if row["harness"] == name]
            by_harness[name] = max((mine, by_harness.get(name, [])), key=len)
    rows = [row for mine in by_harness.values() for row in mine]
    DATA.write_text(json.dumps(found | {"runs_count": len(paths), "rows": rows}, indent=1) + "\n")


def render(found: dict[str, Any]) -> str:
    """Return the text from marker to marker."""
    harnesses = dict.fromkeys(row["harness"] for row in found["rows"])
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    return "\n".join([
        BEGIN,
        f"{found['gpu']}, {found['runs_count']} machines, a product of two {found['side']} × {found['side']} matrices of float16, each run after "
        f"{found['idle_s']:g} s of idle; {versions}. Scatter is (largest − smallest) / median of the runs.",
        "",
        f"| Harness | runs | number of the harness, median (scatter) | verdicts | most frequent causes | at {REFERENCE_MHZ:.0f} MHz, median (scatter) |",
        "|---|---|---|---|---|---|",
        *(_row(name, [row for row in found["rows"] if row["harness"] == name]) for name in harnesses),
        END,
    ])  # fmt: skip


def _row(name: str, rows: Sequence[dict[str, Any]]) -> str:
    statuses = Counter(row.get("status") for row in rows)
    verdicts = ", ".join(f"{statuses[status.value]} {status.value}" for status in Status if statuses[status.value])
    causes = Counter(cause for row in rows for cause in row.get("causes", ("too short",) if row.get("why") else ()))
    common = ", ".join(f"{cause} {count}" for cause, count in causes.most_common(3))
    return (
        f"| {name} | {len(rows)} | {_scatter([row['number_s'] for row in rows])} | {verdicts or 'not kept'} | {common or '–'} | "
        f"{_scatter(at_reference(rows))} |"
    )


def at_reference(rows: Sequence[dict[str, Any]]) -> list[float]:
    """Return the runs' medians at one clock, converted to the reference clock at an equal number of cycles."""
    known = [row for row in rows if row.get("median_at_clock_s")]
    return [row["median_at_clock_s"] * row["clock_mhz"] / REFERENCE_MHZ for row in known]


def _scatter(values_s: Sequence[float]) -> str:
    if not values_s:
        return "–"
    middle_s = statistics.median(values_s)
    count = f", {len(values_s)} runs" if len(values_s) < 5 else ""
    return f"{1e6 * middle_s:.1f} µs ({(max(values_s) - min(values_s)) / middle_s:.1%}{count})"


def main(arguments: Sequence[str]) -> int:
    """Convert the given data files, then write the table, or with ``--check`` compare the page."""
    if paths := [Path(given) for given in arguments if given != "--check"]:
        take(paths)
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    text = before + render(json.loads(DATA.read_text())) + rest.partition(END)[2]
    if "--check" not in arguments:
        PAGE.write_text(text, encoding="utf-8")
    elif text != page:
        sys.stderr.write(f"{PAGE.name} differs from {DATA.name}; run make pages\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
