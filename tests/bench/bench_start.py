"""The wait for a machine's first window, which starts the daemon, and the memory in use afterwards.

The benchmark runs compiled bytecode, as installed by pip, alternating with a bare interpreter and imports of numpy and
gpuwatch.  Times are the least and the median of the rounds, because a busy machine only adds time.  Memory is PSS.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.gpuwatch.live import ended, settings
from tests.waiting import wait_until

_ROUNDS = 7
_ENTERED = """
import json, resource, sys, time
import gpuwatch
from gpuwatch.client.connection import connect
from gpuwatch.config.settings import load
found = load(dict(flag[2:].split("=", 1) for flag in sys.argv[1:]))
window = gpuwatch.window("start", settings=found)
began_s, used_s = time.perf_counter(), time.process_time()
window.__enter__()
enter_s, own_s = time.perf_counter() - began_s, time.process_time() - used_s
with connect(found, start=False) as client:
    status = client.status()
left = resource.getrusage(resource.RUSAGE_CHILDREN)  # the process that the daemon left behind: its imports
window.__exit__(None, None, None)
closed_s = time.perf_counter()
window.verdict
print(json.dumps({"pid": status["pid"], "enter_s": enter_s, "verdict_s": time.perf_counter() - closed_s,
                  "cpu_s": own_s + left.ru_utime + left.ru_stime + status["cpu_s"]}))
"""


@dataclass(frozen=True)
class Took:
    """The wall time and CPU time of one program or start."""

    wall_s: float
    cpu_s: float


def main(rounds: int = _ROUNDS) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="gw") as folder:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = f"{folder}/bytecode"
        floors = {"python -c pass": "pass", "import numpy": "import numpy", "import gpuwatch": "import gpuwatch"}
        took: dict[str, list[Took]] = {name: [] for name in (*floors, "enter a window, no daemon")}
        verdicts_s = []
        for number in range(rounds + 1):  # the first one compiles bytecode
            here = Path(folder) / str(number)
            here.mkdir()
            with _started(here, environment) as found:
                start = Took(found["enter_s"], found["cpu_s"])
            if number:
                took["enter a window, no daemon"].append(start)
                verdicts_s.append(found["verdict_s"])
            for name, program in floors.items():
                spent = _ran(program, environment)
                took[name] += [spent] if number else []
        print(f"least and median of {rounds}             wall s            CPU s")
        for name, each in took.items():
            walls, cpus = [one.wall_s for one in each], [one.cpu_s for one in each]
            print(
                f"{name:28} {min(walls):8.3f} {statistics.median(walls):8.3f} {min(cpus):8.3f} {statistics.median(cpus):8.3f}"
            )
        (here := Path(folder) / "memory").mkdir()
        memory = _memory(here, environment)
        print("\nmemory, MB (PSS)             daemon    judge  together")
        for name in ("judged", "rest"):
            daemon, judge = memory[f"{name}_daemon_mb"], memory[f"{name}_judge_mb"]
            print(
                f"{'a minute later, at rest' if name == 'rest' else 'a window judged':27} {daemon:7.1f} {judge:8.1f} {daemon + judge:9.1f}"
            )
        print(
            f"\na verdict, from the window's end: {min(verdicts_s):.2f} s just after the start, {memory['cold_s']:.2f} s by a judge that had left"
        )
        starts = took["enter a window, no daemon"]
        return {
            "enter_s": min(one.wall_s for one in starts),
            "enter_median_s": statistics.median(one.wall_s for one in starts),
            "enter_cpu_s": min(one.cpu_s for one in starts),
            "python_s": min(one.wall_s for one in took["python -c pass"]),
            "numpy_s": min(one.wall_s for one in took["import numpy"]),
            "cold_verdict_s": memory["cold_s"],
            "rest_mb": memory["rest_daemon_mb"] + memory["rest_judge_mb"],
            "judged_mb": memory["judged_daemon_mb"] + memory["judged_judge_mb"],
        }


@contextlib.contextmanager
def _started(folder: Path, environment: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Start a daemon with a first window; yield the window's figures, and end the daemon."""
    found = _window(folder, environment)
    try:
        yield found
    finally:
        os.kill(found["pid"], signal.SIGTERM)
        wait_until(lambda: ended(found["pid"]))


def _window(folder: Path, environment: Mapping[str, str]) -> dict[str, Any]:
    command = [sys.executable, "-c", _ENTERED, *settings(folder).flags()]
    # The daemon must outlive the minute after which the judge exits.
    minutes = {**environment, "GPUWATCH_DAEMON_IDLE_EXIT": "10min"}
    done = subprocess.run(command, env=minutes, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _ran(program: str, environment: Mapping[str, str]) -> Took:
    before, began_s = os.times(), time.perf_counter()
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    wall_s, after = time.perf_counter() - began_s, os.times()
    return Took(wall_s, after.children_user + after.children_system - before.children_user - before.children_system)


def _memory(folder: Path, environment: Mapping[str, str]) -> dict[str, float]:
    """Return megabytes of daemon and judge after a window and after the judge's exit, and seconds to a new window's verdict."""
    with _started(folder, environment) as found:
        daemon = psutil.Process(found["pid"])
        out = _held("judged", daemon)
        wait_until(lambda: not daemon.children(), what="the judge leaves")
        out |= _held("rest", daemon)
        out["cold_s"] = _window(folder, environment)["verdict_s"]
        return out


def _held(name: str, daemon: psutil.Process) -> dict[str, float]:
    judges = [each.memory_full_info().pss for each in daemon.children()]
    return {f"{name}_daemon_mb": daemon.memory_full_info().pss / 1e6, f"{name}_judge_mb": sum(judges) / 1e6}


if __name__ == "__main__":
    main()
