"""Tests of all commands' exit codes, errors and streams."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click
import pytest

from annotate import __version__
from annotate.verdict import Status, Verdict
from gpuwatch.cli import COMMANDS, cli
from gpuwatch.cli.exit_codes import Exit, list_statuses, worst_code
from tests.gpuwatch.cli.conftest import Gpuwatch
from tests.waiting import PATIENCE_S


def test_gpuwatch_without_a_command_prints_first_steps(gpuwatch: Gpuwatch) -> None:
    ended = gpuwatch()
    assert ended.code == 0
    assert "gpuwatch demo" in ended.out


def test_version_option_prints_the_package_version(gpuwatch: Gpuwatch) -> None:
    assert gpuwatch("--version").out == f"gpuwatch {__version__}\n"


def test_every_command_has_a_file_a_help_line_and_options(gpuwatch: Gpuwatch) -> None:
    overview = gpuwatch("--help").out
    context = click.Context(cli)
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        assert command.name == name
        assert f"  {name} " in overview
        options = {option for parameter in command.params for option in parameter.opts}
        assert {"--source", "--state", "--socket"} <= options
        assert gpuwatch(name, "--help").code == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["audti"], "did you mean 'audit'?"),
        (["audit", "--frm", "3"], "--from"),
        (["audit", "--since", "yesterdy"], 'expected a time such as "24h" or "-5m" (ago)'),
        (["audit", "--status", "valid,fine"], "expected some of valid, unproven, flagged, rejected"),
        (["audit", "--fail-on", "valid"], "which is not a failure"),
        (["audit", "--to", "14:00"], "--to: expected --from with it"),
        (["audit", "--gpu", "GPU-1"], "--gpu: expected --from or --trace with it"),
        (["audit", "--trace", "no-such.csv"], "no-such.csv: expected a file, found nothing to read"),
        (["audit", "--trace", "x.csv", "--label", "a"], "--label: expected a list of windows"),
        (["audit", "--count", "0"], "--count: expected N, a whole number from 1 to 9223372036854775807, found '0'"),
        (["audit", "--count", "many"], "--count: expected N, a whole number from 1 to 9223372036854775807, found 'many'"),
        (["--nosuch"], "gpuwatch: unknown option '--nosuch'; did you mean '--source'?"),
        (["show", "-z"], "show: unknown option '-z'; see: gpuwatch show --help"),
        (["show", "--json=x"], "--json: expected no value, found one; see: gpuwatch show --help"),
        (["audit", "--label"], "--label: expected LABEL, found nothing; see: gpuwatch audit --help"),
        (["top", "x"], "top: expected options alone, found 'x'; see: gpuwatch top --help"),
        (["mark", "begin", "a", "--own", "x"], "--own: expected one of session, user, found 'x'"),
        (["mark", "begin", "a", "--pid", "9" * 30], "--pid: expected a whole number from 1 to 4194304, found '9999"),
        (["mark", "end", "a", "--calls", "9" * 30], "--calls: expected a whole number from 1 to 9007199254740991, found"),
        (["ci", "--since", "1h", "--clock", "-5"], "--clock: expected MHZ, a number from 100 to 5000, found '-5'"),
        (["ci", "--since", "1h", "--clock", "nan"], "--clock: expected MHZ, a number from 100 to 5000, found 'nan'"),
        (["compare", "a", "b", "--rtol", "inf"], "--rtol: expected a number from 0 to 1e+06, found 'inf'"),
        (["selftest", "--seconds", "nan"], "--seconds: expected a number from 0.1 to 600, found 'nan'"),
        (["dashboards", "--to", ""], "--to: expected DIR, found an empty text; for the current folder write ."),
        (["show", ""], "show: expected [RUN], found an empty text"),
        (["explain", "x" * 9000], "xxxx…"),
        (["dashboards", "--to", "x" * 300], "xxx: File name too long"),
        (["judge", "fifo"], "fifo: expected a CSV log of nvidia-smi"),
        (["selftest", "--qualify", "--reference", "fifo"], "fifo: expected a regular file, found a folder, pipe or device"),
        (
            ["selftest", "--qualify", "--save-reference", "fifo"],
            "fifo: expected a regular file, found a folder, pipe or device",
        ),
        (["dashboards", "--to", "/dev/null"], "--to: expected a folder, found /dev/null, which is not a folder"),
        (["dashboards", "--to", "/dev/null/x"], "--to: expected a folder, found /dev/null, which is not a folder"),
        (["export", "--parquet", __file__], "test_frame.py, which is not a folder"),
        (["daemon", "install", "--system", "--root", "/dev/null"], "--root: expected a folder, found /dev/null"),
        (["audit", "--source", "simulated:steady-gem"], "no scene 'steady-gem': did you mean 'steady-gemm'?"),
        (["audit", "--from", "1h", "--gpu", ""], "--gpu: expected an index, a UUID or an end of it, or a PCI address"),
        (["audit", "--trace", "x.csv", "--gpu", " "], "--gpu: expected an index, a UUID or an end of it, or a PCI address"),
        (["record", "-o", "x.gpuwatch", "--gpu", ""], "--gpu: expected an index, a UUID or an end of it, or a PCI address"),
        (["show", "a", "b"], "show: expected [RUN] and no more, found 'b'; see: gpuwatch show --help"),
        (["show", "--claim", "sustaned"], "did you mean 'sustained'"),
        (["show", "--accept", "dark-tmie"], "did you mean 'dark-time'"),
        (["show", "--limit", "clock-ramp.reject"], "expected RULE.NAME=NUMBER"),
        (["show", "--limit", "no-work.busy_ratoi=1"], "did you mean 'busy_ratio'"),
        (["show", "--limit", "no-work.busy_ratio=nan"], "expected RULE.NAME=NUMBER"),
        (["explain", "darktime"], "did you mean 'dark-time'"),
        (["demo", "--scenes", "stedy-copy"], "did you mean 'steady-copy'"),
        (["demo", "--source", "replay:x.csv"], "gpuwatch judge"),
        (["--source", "cuda", "doctor"], "--source: expected auto, nvml"),
        (["doctor", "--source", "simulatd"], "did you mean 'simulated'"),
        (["record"], "--output"),
        (["record", "-o", "x.gpuwatch", "--seconds", "1", "--last", "5s"], "expected one of"),
        (["record", "-o", "x.gpuwatch", "--seconds", "soon"], "expected a duration"),
        (["record", "-o", "x.gpuwatch", "--seconds", "1e99"], "expected more than 0s and at most 24h, found '1e99'"),
        (["record", "-o", "x.gpuwatch", "--seconds", "nan"], "expected more than 0s and at most 24h, found 'nan'"),
        (["record", "-o", "/no/such/folder/x"], "expected a file in a writable folder"),
        (["record", "-o", "/dev/null"], "expected a file, found /dev/null, which is a device or a pipe"),
        (["report", "-o", "/dev/stdout"], "expected a file, found /dev/stdout, which is a device or a pipe"),
        (["compare"], "compare: expected A [B...], found nothing; see: gpuwatch compare --help"),
        (["verify", "/dev/null"], "expected a gpuwatch report, found an empty file"),
        (["verify", "/dev/zero"], "expected a gpuwatch report, found more than 50 MB"),
        (["config", "shw"], "unknown command 'shw'; did you mean 'show'?"),
        (["config", "check"], "unknown command 'check'; did you mean 'validate'?"),
        (["daemon", "pause"], "unknown command 'pause'; known: install, status, stop, uninstall"),
        (["show", "--state", "--", "x"], "--state: expected DIR, found '--'"),
        (["--state", "--", "show"], "--state: expected DIR, found '--'"),
        (["audit", "--gpu", "--", "x"], "--gpu: expected an index, a UUID or an end of it, or a PCI address, found '--'"),
        (["report", "-o", "--redact", "host"], "--output: expected FILE, found '--redact'"),
        (["daemon", "--listen", "no.such.invalid"], "expected a name or an address of this machine, found 'no.such.invalid'"),
        (["config", "validate", "no-such.toml"], "no-such.toml: expected a configuration file, found none"),
        (["db", "path", "--config", "no-such.toml"], "expected a configuration file"),
        (["daemon", "--socket", "/" + "x" * 200], "at most 107 bytes"),
        (["daemon", "--state", "/dev/null/x", "--socket", "s"], "found: Not a directory; choose another with --state"),
    ],
)
def test_bad_input_is_one_clear_line_and_exit_code_2(
    gpuwatch: Gpuwatch, home: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    monkeypatch.chdir(home)
    os.mkfifo("fifo")
    ended = gpuwatch(*arguments)
    assert (ended.code, ended.out) == (Exit.USAGE, "")
    line = ended.err.splitlines()[-1]
    assert line.startswith("gpuwatch: ")
    assert words in line
    assert "Traceback" not in ended.err
    assert sum(text.startswith("gpuwatch: ") for text in ended.err.splitlines()) == 1


def every_command(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from every_command(below, (*path, name))


@pytest.mark.parametrize("path", list(every_command(cli)), ids=" ".join)
def test_every_command_refuses_empty_text(gpuwatch: Gpuwatch, path: tuple[str, ...]) -> None:
    """Every command refuses an empty name or path, the result of an unset variable."""
    command: click.Command | None = cli
    for name in path:
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), name)
    assert command is not None
    for parameter in command.params:
        if parameter.name in ("flags_a", "flags_b") or (isinstance(parameter, click.Option) and parameter.is_flag):
            continue
        words = [""] if isinstance(parameter, click.Argument) else [parameter.opts[0], " "]
        ended = gpuwatch(*path, *words)
        assert ended.code == (Exit.WRAPPER_FAILED if path == ("run",) else Exit.USAGE), (words, ended.err)
        assert "found an empty text" in ended.err, (words, ended.err)
        assert ended.err.count("\n") == 1


@pytest.mark.parametrize(("words", "code"), [(("daemon", "status"), 1), (("daemon", "stop"), 0)])
def test_daemon_commands_accept_an_unknown_scene(gpuwatch: Gpuwatch, words: tuple[str, ...], code: int) -> None:
    """`daemon status` and `daemon stop` accept an unknown scene, because a window may have started such a daemon."""
    ended = gpuwatch(*words, "--source", "simulated:nonsense")
    assert (ended.code, "no daemon runs at" in ended.out) == (code, True)


@pytest.mark.parametrize("group", ["config", "db"])
def test_group_without_a_command_prints_its_help(gpuwatch: Gpuwatch, group: str) -> None:
    ended = gpuwatch(group)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"Usage: gpuwatch {group}")
    assert len(ended.err.splitlines()) > 5


def test_json_option_writes_an_error_as_json(gpuwatch: Gpuwatch) -> None:
    ended = gpuwatch("show", "--json")
    assert ended.code == Exit.FAILED
    assert ended.data["error"]["code"] == "store"
    assert ended.data["error"]["message"] in ended.err
    assert gpuwatch("audit", "--json", "--bogus").data["error"]["code"] == "usage"


def test_worst_code_ignores_statuses_not_in_fail_on() -> None:
    everything = set(Status)
    failures = everything - {Status.VALID}
    assert worst_code(everything, frozenset()) == Exit.OK
    assert worst_code(everything, frozenset(failures)) == Exit.REJECTED
    assert worst_code({Status.REJECTED, Status.FLAGGED}, frozenset({Status.FLAGGED})) == Exit.FLAGGED
    assert worst_code({Status.UNPROVEN, Status.VALID}, frozenset({Status.UNPROVEN})) == Exit.UNPROVEN
    assert worst_code({Status.VALID}, frozenset(failures)) == Exit.OK


def test_closed_output_pipe_causes_no_message() -> None:
    shell = f"{sys.executable} -m gpuwatch explain --json | head -n 1; echo ${{PIPESTATUS[0]}}"
    ended = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert ended.stderr == ""
    assert ended.stdout.splitlines()[0] == "{"
    assert ended.stdout.splitlines()[1] in ("0", "141")


@pytest.mark.parametrize(
    ("command", "where"),
    [("explain", ">/dev/full"), ("explain --json", ">&-"), ("config show", ">/dev/full"), ("doctor --source simulated", ">&-")],
)
def test_full_disk_or_closed_stream_prints_one_line(tmp_path: Path, command: str, where: str) -> None:
    shell = f"HOME={tmp_path} {sys.executable} -m gpuwatch {command} {where}"
    ended = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert ended.returncode == 1
    assert len(ended.stderr.splitlines()) == 1
    assert ended.stderr.startswith("gpuwatch: standard output: ")


def test_list_statuses_adds_unproven_for_missing_evidence() -> None:
    about = Verdict(status=Status.FLAGGED, findings=(), claim="sustained", why="dark-time: unseen")
    assert worst_code(list_statuses([about]), frozenset({Status.UNPROVEN})) == Exit.UNPROVEN
    assert worst_code(list_statuses([about]), frozenset({Status.FLAGGED, Status.UNPROVEN})) == Exit.FLAGGED
    assert list_statuses([replace(about, why="")]) == {Status.FLAGGED}


def test_run_imports_no_heavy_library() -> None:
    """The modules of `gpuwatch run` import no library for numbers, screens, processes, databases or the driver."""
    look = "import sys, gpuwatch.cli, gpuwatch.cli.run\nprint(*sorted({name.partition('.')[0] for name in sys.modules}))"
    ended = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert not {"textual", "plotly", "scipy", "numpy", "rich", "psutil", "sqlite3", "sqlite_utils", "pynvml"} & set(
        ended.stdout.split()
    )
