"""A table of the windows of a store, with verdict, number and number at one clock: ``python table.py STATE OUT.json``."""

import json
import sys
from pathlib import Path
from typing import Any

from gpuwatch.store import Reader


def _number(budget: dict[str, Any], name: str) -> dict[str, Any] | None:
    return next((each for each in budget.get("numbers", ()) if each["number"] == name), None)


def main(state: str, out: str) -> None:
    """Print a row for each window except those of the cost measurement, and write the verdicts."""
    kept = []
    print(f"{'window':24} {'status':9} {'timer':7} {'count':>6} {'median us':>10} {'at one clock':>22} why")
    with Reader(Path(state)) as reader:
        for run in reversed(list(reader.runs(limit=1000))):
            if run.label == "short":  # a window of the cost measurement
                continue
            verdict = dict(run.verdicts[0]) if run.verdicts else {}
            budget = verdict.get("budget") or {}
            median, at_clock = _number(budget, "median"), _number(budget, "median_at_clock")
            timings = reader._timings(run.id)
            count = len(timings.took_s) if timings is not None else 0
            kept.append(
                {"label": run.label, "status": run.status, "why": run.why, "declared": dict(run.declared), "verdict": verdict}
            )
            value = f"{median['value'] * 1e6:.2f}" if median and median["value"] else "-"
            at = (
                f"{at_clock['value'] * 1e6:.2f} at {at_clock['clock_mhz']:.0f} MHz"
                if at_clock and at_clock.get("clock_mhz")
                else "-"
            )
            found = ",".join(each["rule"] for each in verdict.get("findings", ()) if each["answered"] == "found")
            timer = str(run.declared.get("timer") or "-")
            print(f"{(run.label or '')[:24]:24} {run.status:9} {timer:7} {count:6} {value:>10} {at:>22} {run.why or found}")
    Path(out).write_text(json.dumps(kept, indent=1))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
