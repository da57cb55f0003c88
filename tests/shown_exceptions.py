"""Exceptions from the tests of the code on pages, with their reasons."""

from __future__ import annotations

from collections.abc import Mapping

# Pages with shell blocks that run in other tests, or that need equipment beyond a test machine.
PAGES_ELSEWHERE: Mapping[str, str] = {
    "CONTRIBUTING.md": "clones, installs, and is CI itself",
    "DEVELOPMENT.md": "builds, installs, and is CI itself",
    "docs/API.md": "tests/reference",
    "dashboards/README.md": "tests/dashboards/test_up.py; Docker was never run",
    "docs/DIFF.md": "tests/gpuwatch/diff/test_page.py",  # every shown output; the neighbouring tests cover the other forms
    "docs/LIBGPUWATCH.md": "tests/gpuwatch/libgpuwatch",
}

# Commands by their first words.  Commands of gpuwatch are parsed: each option must exist and accept its value.
NOT_RUN: Mapping[str, str] = {
    "pip install": "installs packages",
    "gpuwatch selftest": "needs minutes of a GPU: tests/gpuwatch/cli/test_selftest.py and test_qualify.py run it",
    "gpuwatch demo": "takes 10 s: tests/gpuwatch/cli/test_demo.py runs it",
    "gpuwatch top --trace": "runs until a key ends it: tests/gpuwatch/tui drives it",
    "gpuwatch daemon --listen": "runs until it is stopped: tests/gpuwatch/exporter scrapes one",
    "gpuwatch compare theirs.html": "needs reports of two machines: tests/gpuwatch/cli/test_compare_files.py compares two",
    "gpuwatch daemon install": "changes this machine's services: tests/systemd runs it",
    "systemctl": "needs the service installed: tests/systemd runs it",
    "GPUWATCH_SLURM": "settings of Slurm's prolog: tests/gpuwatch/fleet runs it",
    "PASSWORD=": "writes below /etc: tests/gpuwatch/exporter serves with such a file",
    "pytest --gpuwatch --benchmark-timer": "needs pytest-benchmark: tests/gpuwatch/harness runs it",
    "gpuwatch run --times r.json -- hyperfine": "needs hyperfine: tests/gpuwatch/cli/test_judged_results.py runs it",
    "gpuwatch run --untrusted": "rejects a program without GPU work: tests/gpuwatch/cli/test_run_untrusted.py runs it",
    "gpuwatch mark begin job-7": "needs root and another user: no test runs it",
    "gpuwatch mark end job-7": "needs root and another user: no test runs it",
}
NOT_RUN_WHOLE: Mapping[str, str] = {
    "gpuwatch top": "runs until a key ends it: tests/gpuwatch/tui drives it",
}

# Exit codes of gates, whose windows a busy machine may spoil; every other command exits with 0.
EXIT_CODES: Mapping[str, tuple[int, ...]] = {
    "gpuwatch mark end train --fail-on flagged,rejected": (0, 10, 11),
    "gpuwatch run --fail-on flagged,rejected -- python bench.py": (0, 10, 11),
    "gpuwatch ci --fail-on flagged,rejected,unproven -- python bench.py": (0, 1),
    "gpuwatch ci --since 30m --fail-on flagged,rejected": (0, 1),
    "gpuwatch ci --fail-on flagged,rejected -- python examples/ci/bench.py": (0, 1),
}

# Commands and blocks whose printed numbers depend on the machine, by the line or the block's first line.
NUMBERS_VARY = frozenset({"gpuwatch run --name train -- sleep 6"})

# Python blocks, by one of their lines.
PYTHON_NOT_RUN: Mapping[str, str] = {
    "import torch": "needs a GPU with torch",
    'policy = Policy(Claim.SUSTAINED, accept=frozenset({"dark-time"}), tolerance_ratio=0.02)': "tests/annotate/test_annotate_main.py",
}
