"""Tests that the examples of ``NEEDED`` run without a GPU, with the commands in their docstrings."""

from __future__ import annotations

import ast
import re
import shlex
import sys
from pathlib import Path

import pytest

from gpuwatch.config.settings import Settings
from tests.gpuwatch.harness.real_packages import EXAMPLES, environment, folder, run

# By example: the harness, and a part of gpuwatch's output.
NEEDED = {
    "plain_window.py": ("", "SIMULATED  matmul"),
    "test_plain.py": ("", "SIMULATED pytest: 1 window"),
    "test_benchmark.py": ("pytest-benchmark", "SIMULATED pytest-benchmark: 1 window"),
    "triton_do_bench.py": ("triton", "SIMULATED triton.testing.do_bench: 1 window"),
    "triton_steady.py": ("triton", "SIMULATED triton.testing.do_bench: 1 window"),
    "triton_perf_report.py": ("triton", "(first: matmul side=2048 provider=library make_matmul.<lambda>)"),
}
RUN_ELSEWHERE = {"torch_timer.py", "cupy_benchmark.py"}  # torch_program.py runs torch_timer.py; cupy_benchmark.py needs a GPU
HELPERS = {"matmul.py", "without_gpu.py"}


def command_of(example: Path) -> list[str]:
    """Return the command in an example's docstring, with the tests' interpreter."""
    shown = re.search(r"``((?:gpuwatch|python|pytest) [^`]+)``", ast.get_docstring(ast.parse(example.read_text())) or "")
    assert shown is not None, example
    words = shlex.split(shown[1])
    modules = {"gpuwatch": ["-m", "gpuwatch"], "pytest": ["-m", "pytest", "-p", "no:cacheprovider"], "python": []}
    replaced = [sys.executable if word == "python" else word for word in words[1:]]
    return [sys.executable, *modules[words[0]], *replaced]


def test_listed_harness_examples_exist() -> None:
    assert {each.name for each in EXAMPLES.glob("*.py")} >= {*NEEDED, *RUN_ELSEWHERE, *HELPERS}
    for name in RUN_ELSEWHERE:
        assert command_of(EXAMPLES / name)


@pytest.mark.parametrize("name", NEEDED)
def test_harness_example_runs_and_is_judged(name: str, copying: Settings) -> None:
    package, shown = NEEDED[name]
    paths = (folder(package),) if package else ()
    given = environment(copying, *paths, MPLBACKEND="agg", OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", CI="")
    ended = run(*command_of(EXAMPLES / name), given=given)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert shown in ended.stdout + ended.stderr
