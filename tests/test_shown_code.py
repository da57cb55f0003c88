"""Tests that run the code on pages and compare its output, apart from the exceptions in ``shown_exceptions``."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
import pytest
import yaml

import gpuwatch
from gpuwatch.cli import main
from tests import shown_exceptions
from tests.gpuwatch.forked import daemons_of_windows
from tests.gpuwatch.programs import program
from tests.shown_code import ROOT, SHELL, Block, Command, asked_command, blocks, commands, inline_commands, is_same
from tests.shown_output import COLUMNS
from tests.waiting import PATIENCE_S

SECONDS_COUNT = "0.3"  # of a window in bench.py
SCENE = "simulated:steady-copy"
PAGE_FIRST = "README.md"
PARTS_COUNT = 4  # groups of the other pages, which several workers run in parallel
LISTED = frozenset((*SHELL, "python", "yaml", "toml", "sql", "c", "promql", "text", ""))
RUNS = ("gemm", "RUN", "RUN2")  # labels that pages use in commands without opening the window
REPORTS = ("a", "b", "gemm", "report")
FILES = ROOT / "tests" / "gpuwatch" / "results" / "files"
# A call that mostly waits: six commands compare such functions for three seconds each.
KERNEL = "import time\n\n\ndef f():\n    time.sleep(0.0002)\n    return sum(range(100))\n\n\ng = h = f\n"
TABLE = "took_ms,sm_mhz,begin_s\n" + "".join(f"{2 + row % 3 / 1000},1500,{row * 0.002:.3f}\n" for row in range(200))


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Prepare a reader's environment: a home with empty settings, and a checkout with the files that pages name."""
    with tempfile.TemporaryDirectory(prefix="gw") as folder:
        for name in [name for name in os.environ if name.startswith(("GPUWATCH_", "XDG_", "GITHUB_"))]:
            monkeypatch.delenv(name)
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        given = {"HOME": folder, "TMPDIR": folder, "PATH": path, "NO_COLOR": "1", "COLUMNS": COLUMNS}
        for name, value in (given | {"GPUWATCH_SOURCE": SCENE, "SECONDS_COUNT": SECONDS_COUNT}).items():
            monkeypatch.setenv(name, value)
        (settings := Path(folder) / ".config" / "gpuwatch").mkdir(parents=True)
        (settings / "config.toml").touch()
        (here := Path(folder) / "checkout").mkdir()
        lay_out_checkout(here)
        monkeypatch.chdir(here)
        before = dict(os.environ)
        try:
            with daemons_of_windows():
                yield here
        finally:
            for socket in Path(folder).glob("gpuwatch-*/*.sock"):
                main(["--socket", str(socket), "daemon", "stop"])
            os.environ.clear()  # a page may export any variable
            os.environ.update(before)


def lay_out_checkout(here: Path) -> None:
    """Write the files that pages name, with Python files committed for commands with a revision."""
    for name in ("docs", "examples", "tests"):
        (here / name).symlink_to(ROOT / name)
    shutil.copytree(FILES / "nvbench-h200", here, dirs_exist_ok=True)
    for was, now in (("r1", "before"), ("r3", "r")):
        shutil.copy(FILES / "nvbench-h200" / f"{was}.json", here / f"{now}.json")
    shutil.copy(ROOT / "tests" / "traces" / "h200-windows.capsule", here / "base.capsule")
    shutil.copy(ROOT / "examples" / "ci" / "bench.py", here / "bench.py")
    for name in ("naive", "tiled"):
        shutil.copy(ROOT / "examples" / "diff" / f"transpose_{name}.cu", here / f"{name}.cu")
    for name in ("a.py", "b.py", "c.py", "kernels.py"):
        (here / name).write_text(KERNEL)
    (here / "times.csv").write_text(TABLE)
    (here / "Makefile").write_text("benchmark:\n\tsleep 0.1\n")
    run_git(here, "init", "--quiet", "--initial-branch=main")
    run_git(here, "add", "*.py")
    run_git(here, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "--message", "Begin")
    run_git(here, "update-ref", "refs/remotes/origin/main", "HEAD")


def run_git(here: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=here, check=True, stdout=subprocess.DEVNULL)


def why_not_run(command: Command) -> str | None:
    """Return the listed reason, or that the command names an absolute path, or None for a runnable command."""
    line = command_line(command)
    if any(word.lstrip("'\"").startswith("/") for word in re.split(r"[\s=]", line)):
        return "reads or writes a folder of the machine"
    prefixes = {**shown_exceptions.NOT_RUN, **{f"{name}\n": why for name, why in shown_exceptions.NOT_RUN_WHOLE.items()}}
    return shown_exceptions.PAGES_ELSEWHERE.get(command.page) or next(
        (why for name, why in prefixes.items() if f"{line}\n".startswith(name)), None
    )


def command_line(command: Command) -> str:
    """Return a command's line without comment and sudo."""
    return command.line.partition("  #")[0].strip().removeprefix("sudo ")


def run(line: str, printed: Path) -> int:
    """Run one line like a shell, and gpuwatch in this process; write both streams to a file and return the exit code."""
    words = Command("", line).words
    if words[0] == "export":
        name, _, value = words[1].partition("=")
        os.environ[name] = value
        return 0
    if words[0] == "cd":
        os.chdir(words[1])
        return 0
    with printed.open("wb") as file:
        if words[0] != "gpuwatch" or set(line) & set("|;&$>{"):
            return subprocess.run(["bash", "-c", line], stdout=file, stderr=file, timeout=PATIENCE_S, check=False).returncode
        with streams_in(file.fileno()):
            return main(words[1:])


@contextlib.contextmanager
def streams_in(file: int) -> Iterator[None]:
    """Redirect standard output and standard error of this process and its children to one file, in order."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [(number, os.dup(number)) for number in (1, 2)]
    streams = sys.stdout, sys.stderr
    try:
        for number, _ in kept:
            os.dup2(file, number)
        sys.stdout, sys.stderr = (os.fdopen(os.dup(number), "w", encoding="utf-8") for number, _ in kept)
        yield
    finally:
        sys.stdout.close()
        sys.stderr.close()
        sys.stdout, sys.stderr = streams
        for number, was in kept:
            os.dup2(was, number)
            os.close(was)


def failures_of(shown: Iterable[Command], place: Path) -> list[str]:
    """Run commands in turn; return a sentence for each with an exit code or output that differs from its page."""
    printed, given, page = place.parent / "printed", dict(os.environ), ""
    failed = []
    for command in shown:
        if command.page != page:  # one page's exports do not reach the next
            os.environ.clear()
            os.environ.update(given)
            page = command.page
        line = command_line(command)
        code = run(line, printed)
        text = printed.read_text(encoding="utf-8") if printed.exists() else ""
        if code not in shown_exceptions.EXIT_CODES.get(line, (0,)):
            failed.append(f"{command.page}: `{line}` ended with {code}:\n{text}")
        elif command.shown and not is_same(command.shown, text, numbers_vary=line in shown_exceptions.NUMBERS_VARY):
            failed.append(f"{command.page}: `{line}` shows\n{command.shown}\nand printed\n{text}")
    return failed


def test_readme_commands_print_the_shown_output(place: Path) -> None:
    """The README's commands run in order on a machine without a GPU, and print the shown output."""
    shown = [each for each in commands() if each.page == PAGE_FIRST and why_not_run(each) is None]
    assert len(shown) >= 10
    assert sum(bool(each.shown) for each in shown) >= 3
    assert not (failed := failures_of(shown, place)), "\n".join(failed)


@pytest.mark.parametrize("part", range(PARTS_COUNT))
def test_commands_of_other_pages_run(part: int, place: Path, tmp_path: Path) -> None:
    """Every other page's commands run in a folder with the files that pages name, and print the shown output."""
    shown = [each for each in commands() if each.page != PAGE_FIRST and why_not_run(each) is None]
    assert len(shown) >= 15
    of_part = sorted({each.page for each in shown})[part::PARTS_COUNT]
    printed = tmp_path / "printed"
    for line in (*(f"gpuwatch run --name {name} -- sleep 0.4" for name in RUNS), f"gpuwatch report RUN -o {REPORTS[0]}.html"):
        assert run(line, printed) == 0, printed.read_text()
    for name in REPORTS[1:]:
        shutil.copy(f"{REPORTS[0]}.html", f"{name}.html")
    (key,) = place.parent.glob(".local/state/gpuwatch*/*.pub")
    for name in ("signer", "lab7"):
        shutil.copy(key, place / f"{name}.pub")
    assert not (failed := failures_of((each for each in shown if each.page in of_part), place)), "\n".join(failed)


def test_python_blocks_print_the_shown_output(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Every block of Python runs, fragments with a predefined ``step``, and prints the shown output."""
    assert run("gpuwatch run -- sleep 0.1", place / "printed") == 0  # starts the daemon
    for block in blocks():
        if block.language != "python" or why_not_python(block) is not None:
            continue
        capfd.readouterr()
        names = {"__name__": "__main__", "gpuwatch": gpuwatch, "step": lambda: None}
        exec(compile(block.code, block.place, "exec"), names)
        printed = capfd.readouterr().out
        assert printed.strip() or "print" not in block.code, block.place
        assert not block.shown or is_same(block.shown, printed, numbers_vary=block.first_line in shown_exceptions.NUMBERS_VARY)


def why_not_python(block: Block) -> str | None:
    """Return the listed reason against running a block, or None for a runnable block."""
    return shown_exceptions.PAGES_ELSEWHERE.get(block.page) or next(
        (shown_exceptions.PYTHON_NOT_RUN[line] for line in block.code.splitlines() if line in shown_exceptions.PYTHON_NOT_RUN),
        None,
    )


@pytest.mark.parametrize("block", [each for each in blocks() if each.language in ("yaml", "toml")], ids=lambda each: each.place)
def test_configuration_blocks_are_valid(block: Block, tmp_path: Path) -> None:
    """TOML passes gpuwatch's check, Prometheus configurations and rules pass promtool's, and other YAML parses."""
    path = tmp_path / f"shown.{block.language}"
    path.write_text(block.code)
    if block.language == "toml":
        assert main(["config", "validate", str(path)]) == 0
        return
    data = yaml.safe_load(block.code)
    assert data
    kind = "config" if "scrape_configs" in data else "rules" if "groups" in data else None
    if kind is not None:
        flags = ["--syntax-only"] if kind == "config" else []
        subprocess.run([program("promtool"), "check", kind, *flags, str(path)], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize("command", [each for each in commands() if why_not_run(each) is not None], ids=lambda each: each.line)
def test_commands_not_run_are_parsed(command: Command) -> None:
    """Options of gpuwatch exist with valid values, and no argument is missing; modules and scripts of other commands exist."""
    words = Command("", command_line(command)).words
    if words[0] != "gpuwatch":
        assert words[:2] != ["python", "-m"] or importlib.util.find_spec(words[2]) is not None
        assert not words[0].startswith("dashboards/") or os.access(ROOT / words[0], os.X_OK)
        return
    found, context, left = asked_command(words)
    with found.make_context(context.info_name, left, parent=context.parent) as made:
        assert made.params is not None


def test_inline_commands_exist() -> None:
    """Commands in backticks on pages and in help texts name existing commands and options."""
    wrong, count = [], 0
    for place, line in inline_commands():
        try:
            words = Command("", line.removeprefix("sudo ")).words
            found, context, left = asked_command(words)
            if not isinstance(found, click.Group):
                found.make_parser(context).parse_args(list(left))
        except click.BadOptionUsage:  # the text names an option without its value
            pass
        except click.UsageError as error:
            wrong.append(f"{place}: `{line}`: {error.format_message()}")
        count += 1
    assert not wrong, "\n".join(wrong)
    assert count > 150


def test_blocks_have_known_languages() -> None:
    """Every block has a listed language or is a Sphinx directive."""
    found = {block.place: block.language for block in blocks() if block.page not in shown_exceptions.PAGES_ELSEWHERE}
    assert {language for language in found.values() if not language.startswith("{")} <= LISTED  # braces: Sphinx directives


def test_exceptions_match_shown_commands() -> None:
    """Excepted commands and Python lines are still on pages, and tests that PAGES_ELSEWHERE and NOT_RUN name exist."""
    lines = [f"{command_line(each)}\n" for each in commands()]
    for name in shown_exceptions.NOT_RUN:
        assert any(line.startswith(name) for line in lines), name
    for name in (*shown_exceptions.NOT_RUN_WHOLE, *shown_exceptions.EXIT_CODES):
        assert f"{name}\n" in lines, name
    code = {line for block in blocks() if block.language == "python" for line in block.code.splitlines()}
    assert set(shown_exceptions.PYTHON_NOT_RUN) <= code
    reasons = [why for page, why in shown_exceptions.PAGES_ELSEWHERE.items() if (ROOT / page).exists()]
    for why in (*reasons, *shown_exceptions.NOT_RUN.values()):
        for path in [word.strip(";,") for word in why.split() if word.startswith("tests/")]:
            assert (ROOT / path).exists(), path


@pytest.mark.parametrize(
    ("shown", "printed", "vary", "same"),
    [
        ("a 1.5 s\n", "a 1.5 s  \n", False, True), ("a 1.5 s", "a 2.5 s", False, False), ("a 1.5 s", "a 22 s", True, True),
        ("a\n…\nb", "a\nx\ny\nb", False, True), ("a\n…\nb", "a\nb", False, True), ("a\n…\nb", "a\nx\nbc", False, False),
        ("GPU-… busy", "GPU-12 busy", False, True), ("a b\n  c", "a\n b c", False, True), ("…\nb", "x\nb", False, True), ("a\n…", "a\nb\nc", False, True), ("a\n…", "ab", False, False),
    ],
)  # fmt: skip
def test_is_same_handles_ellipses_and_numbers(shown: str, printed: str, *, vary: bool, same: bool) -> None:
    """An ellipsis matches any text, line breaks do not count, and numbers may differ if they vary."""
    assert is_same(shown, printed, numbers_vary=vary) is same
