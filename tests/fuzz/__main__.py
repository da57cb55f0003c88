"""Fuzzing with atheris: python -m tests.fuzz [TARGET …] [--runs N] [--seconds S] [--keep]

Each target starts with the kept corpus and works in build/fuzz/TARGET.  A crash, a hang of ten seconds or three gigabytes of
memory is a finding: build/fuzz/TARGET-crash has the input, and the exit code is 1.  Counts of a target without a finding are
added to tests/fuzz/results.json.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import re
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.fuzz import corpus
from tests.fuzz.targets import FAMILIES, NAMES

RESULTS = Path(__file__).parent / "results.json"
_BUILD = Path("build/fuzz")
_HANG_S, _MEMORY_MB, _LENGTH = 10, 3000, 1024


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"run these of {', '.join(NAMES)} (default: all)")
    parser.add_argument("--runs", type=int, default=10_000, help="run this number of inputs per target")
    parser.add_argument("--seconds", type=int, default=0, help="stop a target after this time (0: no limit)")
    parser.add_argument("--keep", action="store_true", help="add inputs that reach new lines to the kept corpus")
    options = parser.parse_args()
    unknown = sorted(set(options.targets) - set(NAMES))
    if unknown:
        parser.error(f"expected targets of {', '.join(NAMES)}, found {', '.join(unknown)}")
    failed = [name for name in options.targets or NAMES if not _fuzz(name, options.runs, options.seconds, keep=options.keep)]
    if failed:
        sys.exit(f"targets with findings: {', '.join(failed)}; the inputs are in {_BUILD}/TARGET-crash")


def _fuzz(name: str, runs: int, seconds: int, *, keep: bool) -> bool:
    work, crashes = _BUILD / name, _BUILD / f"{name}-crash"
    for folder in (work, crashes, corpus.FOLDER / name):
        folder.mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable, "-m", "tests.fuzz.child", name, f"-runs={runs}", f"-max_total_time={seconds}", f"-timeout={_HANG_S}",
        f"-rss_limit_mb={_MEMORY_MB}", f"-max_len={_LENGTH}", f"-artifact_prefix={crashes}/", "-print_final_stats=1",
        str(work), str(corpus.FOLDER / name),
    ]  # fmt: skip
    begun_s = time.monotonic()
    with (_BUILD / f"{name}.log").open("wb") as log:
        code = subprocess.run(command, stdout=log, stderr=log, check=False, preexec_fn=lambda: os.nice(19)).returncode
    said = (_BUILD / f"{name}.log").read_text(errors="replace")
    facts = _facts(said) | {"seconds": round(time.monotonic() - begun_s, 1)}
    ok = code == 0
    print(
        f"{name:16} {facts['inputs']:>9} inputs {facts['seconds']:>8} s, {facts['features']} features, {'ok' if ok else 'FOUND'}"
    )
    if ok:
        _add(name, facts)
        if keep:
            print(f"{name:16} {corpus.keep(name, work.iterdir())} kept")
    return ok


def _facts(said: str) -> dict[str, Any]:
    """Return the counts in libFuzzer's lines ``#123 DONE cov: 45 ft: 67 …`` and ``stat::number_of_executed_units: 123``."""
    executed = re.findall(r"stat::number_of_executed_units: *(\d+)", said)
    covered = re.findall(r"cov: (\d+) ft: (\d+)", said)
    edges, features = (int(each) for each in covered[-1]) if covered else (0, 0)
    return {"inputs": int(executed[-1]) if executed else 0, "edges": edges, "features": features}


def _add(name: str, facts: dict[str, Any]) -> None:
    """Add a run to the results file.  Inputs and seconds are summed over runs; edges and features are of the last run."""
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"targets": {}}
    before = results["targets"].get(name, {"inputs": 0, "seconds": 0.0})
    results["targets"][name] = facts | {
        "inputs": before["inputs"] + facts["inputs"],
        "seconds": round(before["seconds"] + facts["seconds"], 1),
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
    }
    of = {
        family: sum(results["targets"].get(each, {"inputs": 0})["inputs"] for each in each_of)
        for family, each_of in FAMILIES.items()
    }
    results |= {
        "families": of,
        "python": platform.python_version(),
        "atheris": version("atheris"),
        "numpy": version("numpy"),
        "msgspec": version("msgspec"),
    }
    RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
