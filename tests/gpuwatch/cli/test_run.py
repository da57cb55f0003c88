"""Tests of gpuwatch run in front of a program, with and without a daemon."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from gpuwatch.cli.options import settings_environment
from gpuwatch.config.paths import default_socket
from gpuwatch.config.settings import Settings, load
from tests.gpuwatch import forked
from tests.gpuwatch.cli.conftest import Gpuwatch
from tests.gpuwatch.forked import ForkedPopen
from tests.gpuwatch.live import running
from tests.waiting import PATIENCE_S


def start(
    *arguments: str, settings: Settings | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """Start `gpuwatch run` in a separate process."""
    flags = settings.flags() if settings else []
    command = [sys.executable, "-m", "gpuwatch", "run", *flags, *arguments]
    env = {name: value for name, value in os.environ.items() if not name.startswith("GPUWATCH_")}
    return ForkedPopen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**env, **(environment or {})})


def run(
    *arguments: str, settings: Settings | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `gpuwatch run` in a separate process to its end."""
    process = start(*arguments, settings=settings, environment=environment)
    out, err = process.communicate(timeout=PATIENCE_S)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def test_run_judges_and_passes_output_and_code_through(daemon: Settings) -> None:
    ended = run("--name", "copy", "--", "sh", "-c", "echo out; echo err >&2; sleep 1.2; exit 3", settings=daemon)
    assert (ended.returncode, ended.stdout) == (3, "out\n")
    said = ended.stderr.splitlines()
    assert said[0] == "err"
    assert "SIMULATED  copy  SIMULATED NVIDIA H200" in said[1]
    assert "gpuwatch show" in said[-1]


def test_run_names_an_unreadable_recording(tmp_path: Path) -> None:
    """An unreadable recording is the verdict's reason, and the program still runs."""
    places = {"source": f"replay:{tmp_path}/none", "state": str(tmp_path / "state"), "socket": str(tmp_path / "s")}
    nothing = load(places, environment={"HOME": "/"})
    ended = run("--", "true", settings=nothing, environment={"GPUWATCH_DAEMON_IDLE_EXIT": "1s"})
    assert ended.returncode == 0
    assert f"why: {tmp_path}/none: expected a file, found nothing to read" in " ".join(ended.stderr.split())
    assert "Traceback" not in nothing.log.read_text()


def test_run_leaves_signals_to_the_waiting_thread(daemon: Settings) -> None:
    """No thread besides the waiting thread can receive SIGTERM."""
    process = start("--accept", "outliers", "--", "sh", "-c", "echo $PPID; exec sleep 20", settings=daemon)
    assert process.stdout is not None
    wrapper = int(process.stdout.readline())
    for task in Path(f"/proc/{wrapper}/task").iterdir():
        words = dict(line.split(":", 1) for line in (task / "status").read_text().splitlines())
        assert task.name == str(wrapper) or int(words["SigBlk"], 16) & 1 << (signal.SIGTERM - 1)
    process.terminate()
    process.communicate(timeout=PATIENCE_S)


def test_window_of_an_unknown_scene_gives_the_reason(tmp_path: Path) -> None:
    """The verdict of a window whose daemon has an unknown scene suggests the nearest scene."""
    places = {"source": "simulated:steady-gem", "state": str(tmp_path / "state"), "socket": str(tmp_path / "s")}
    variables = {f"GPUWATCH_{name.upper()}": value for name, value in places.items()} | {"GPUWATCH_DAEMON_IDLE_EXIT": "1s"}
    program = "import gpuwatch\nwith gpuwatch.window('x') as w: pass\nprint(w.verdict)"
    told = forked.run([sys.executable, "-c", program], environment={**os.environ, **variables}, timeout_s=PATIENCE_S)
    assert "  why: no scene 'steady-gem': did you mean 'steady-gemm'?" in told.stdout


def test_run_passes_arguments_after_the_program(daemon: Settings) -> None:
    ended = run(sys.executable, "-c", "import sys; print(sys.argv[1:])", "--json", "--", "-x", "a b", "", settings=daemon)
    assert ended.stdout == "['--json', '--', '-x', 'a b', '']\n"


def test_run_writes_the_verdict_as_json(daemon: Settings, tmp_path: Path) -> None:
    report = tmp_path / "verdict.json"
    report.write_text("older, and longer than nothing")
    assert run("--json", str(report), "--", "sh", "-c", "kill -TERM $$", settings=daemon).returncode == 143
    data = json.loads(report.read_text())
    assert (data["schema"], data["label"]) == (1, "sh")
    assert data["command"]["exit_code"] == 143
    assert data["command"]["signal"] == "SIGTERM"
    assert data["verdicts"][0]["simulated"] is True
    printed = run("--json", "-", "--", "echo", "first", settings=daemon).stdout
    assert printed.startswith("first\n{")
    assert json.loads(printed.removeprefix("first\n"))["run"]


def test_run_fails_a_success_only_for_a_named_status(daemon: Settings, tmp_path: Path) -> None:
    """The exit code changes only for a status named in --fail-on; the test reads the status, which depends on the load."""

    def judged(*arguments: str) -> tuple[int, str]:
        report = tmp_path / "verdict.json"
        code = run("--json", str(report), *arguments, settings=daemon).returncode
        data = json.loads(report.read_text())
        return code, data["status"]

    code, status = judged("--fail-on", "flagged,rejected", "--", "sleep", "0.2")
    assert code == {"flagged": 10, "rejected": 11, "unproven": 0}[status]
    code, status = judged("--fail-on", "unproven", "--", "sleep", "0.2")
    assert code == (12 if status == "unproven" else 0)
    assert judged("--", "sleep", "0.2")[0] == 0
    assert judged("--fail-on", "flagged,rejected", "--", "sh", "-c", "sleep 0.2; exit 4")[0] == 4


def test_run_does_not_fail_for_an_accepted_hazard(tmp_path: Path) -> None:
    """An accepted hazard, here a shared GPU, stays in the verdict and does not fail the run."""
    with running(tmp_path, "simulated:mig") as live:
        plain = run("--fail-on", "flagged,rejected", "--", "sleep", "0.2", settings=live.settings)
        accepted = ["--accept", "contention-shared-partition,idle-stretch", "--accept", "dark-time,background-thread"]
        ended = run("--fail-on", "flagged,rejected", *accepted, "--", "sleep", "0.2", settings=live.settings)
    assert plain.returncode in (10, 11), plain.stderr
    assert ended.returncode == 0, ended.stderr
    assert "accepted: " in ended.stderr


def test_run_passes_daemon_and_parent_to_windows_inside(daemon: Settings) -> None:
    ended = run("--", "sh", "-c", "echo $GPUWATCH_SOCKET $GPUWATCH_SOURCE $GPUWATCH_PARENT", settings=daemon)
    socket, source, parent = ended.stdout.split()
    assert (socket, source) == (str(daemon.socket), daemon.source)
    assert f"gpuwatch show {parent}" in ended.stderr


def test_run_passes_a_socket_that_c_programs_cannot_derive(home: Path) -> None:
    """GPUWATCH_NVTX_SOCKET is set for a configured socket and for a simulated source, and unset for default settings."""
    config = home / "config.toml"
    config.write_text('socket = "/run/user/s"\n')
    assert settings_environment(load({})) == {}
    assert settings_environment(load({"config": str(config)}))["GPUWATCH_NVTX_SOCKET"] == "/run/user/s"
    simulated = load({"source": "simulated:idle"})
    named = settings_environment(simulated)
    assert named == {"GPUWATCH_SOURCE": "simulated:idle", "GPUWATCH_NVTX_SOCKET": str(simulated.socket)}


def test_inner_run_of_another_source_uses_its_own_daemon(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An inner run of another source uses its own daemon's socket instead of the outer run's, also for C programs."""
    for name, value in settings_environment(load({"source": "simulated:idle"})).items():
        monkeypatch.setenv(name, value)
    inner = load({"source": "simulated:thermal"})
    assert inner.socket == default_socket("simulated:thermal", os.environ)
    assert settings_environment(inner)["GPUWATCH_NVTX_SOCKET"] == str(inner.socket)
    assert settings_environment(load({"source": "auto"}))["GPUWATCH_NVTX_SOCKET"] == str(default_socket("auto", os.environ))


def test_run_forwards_signals_and_still_judges(daemon: Settings) -> None:
    process = start(
        "--", "sh", "-c", "trap 'echo ended; exit 9' TERM; echo ready; while :; do sleep 0.05; done", settings=daemon
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (9, "ended\n")
    assert "SIMULATED" in err


@pytest.mark.parametrize(("end", "told"), [("exit 7", "exit code 7"), ("kill -INT $$", "SIGINT")])
def test_failed_program_is_not_valid(daemon: Settings, tmp_path: Path, end: str, told: str) -> None:
    report = tmp_path / "verdict.json"
    run("--json", str(report), "--", "sh", "-c", f"sleep 0.1; {end}", settings=daemon)
    (verdict,) = json.loads(report.read_text())["verdicts"]
    assert f"the measured work ended with {told}" in verdict["why"]
    assert verdict["status"] != "valid"


@pytest.mark.parametrize(
    "where", [">&-", "2>&-", ">&- 2>&-", ">/dev/full", "2>/dev/full", "<&- >&- 2>&-", "--json - >/dev/full"]
)
def test_run_survives_a_full_or_closed_stream(daemon: Settings, where: str) -> None:
    """A full or closed stream leaves the exit code unchanged and causes no traceback."""
    option, _, redirected = where.rpartition(" - ") if "--json" in where else ("", "", where)
    ours = " ".join([sys.executable, "-m", "gpuwatch", "run", *daemon.flags(), f"{option} -" if option else ""])
    command = f"{ours} -- sh -c 'exit 3' {redirected}"
    ended = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (ended.returncode, ended.stdout) == (3, "")
    assert "Traceback" not in ended.stderr
    assert "Exception" not in ended.stderr


def test_run_leaves_a_closed_stream_closed_for_the_program(daemon: Settings) -> None:
    ours = " ".join([sys.executable, "-m", "gpuwatch", "run", *daemon.flags()])
    command = f"{ours} -- sh -c 'ls -l /proc/self/fd/1 >/dev/null; [ ! -e /proc/self/fd/2 ]' 2>&-"
    assert subprocess.run(["sh", "-c", command], timeout=PATIENCE_S, check=False).returncode == 0


def test_run_prints_a_show_command_for_the_same_store(daemon: Settings) -> None:
    ended = run("--", "true", settings=daemon)
    pasted = ended.stderr.splitlines()[-1].strip().removeprefix("details: ").split()
    assert f"--state={daemon.state}" in pasted
    shown = subprocess.run([sys.executable, "-m", *pasted], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (shown.returncode, shown.stdout.splitlines()[0]) == (0, ended.stderr.splitlines()[0])


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 125, "run: expected COMMAND..., found nothing; see: gpuwatch run --help"),
        (["--bogus", "--", "true"], 125, "--bogus"),
        (
            ["--source", "simulated", "--gpu", "7", "--", "true"],
            125,
            "found '7'; GPUs here: 0 (GPU-",
        ),
        (["--json", "--", "true"], 125, "--json: expected FILE, found '--'"),
        (["--json", "--name", "x", "--", "true"], 125, "--json: expected FILE, found '--name'"),
        (["--claim", "bursty", "--", "true"], 125, "did you mean 'burst'"),
        (["--accept", "clok", "--", "true"], 125, "unknown rule 'clok'"),
        (["--fail-on", "bad", "--", "true"], 125, "--fail-on"),
        (["--json", "/no/such/folder/x", "--", "true"], 125, "/no/such/folder/x"),
        (["--source", "cuda", "--", "true"], 125, "--source"),
        (["--", "no-such-program-anywhere"], 127, "no-such-program-anywhere"),
        (["--", "/etc"], 126, "/etc: Permission denied"),
        (["--", "/etc/passwd"], 126, "/etc/passwd: Permission denied"),
    ],
)
def test_run_reports_start_failures_with_the_codes_of_env(
    gpuwatch: Gpuwatch, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, words: str
) -> None:
    """Wrong options and programs that cannot run give env(1)'s codes and a one-line message, and start no daemon."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", "")
    monkeypatch.setenv("GPUWATCH_DAEMON_IDLE_EXIT", "1s")
    ended = gpuwatch("run", *arguments)
    assert (ended.code, ended.out) == (code, "")
    lines = [line for line in ended.err.splitlines() if line.startswith("gpuwatch: ") and "starting" not in line]
    assert len(lines) == 1
    assert words in lines[0]
    assert code == 125 or "starting" not in ended.err


def test_wrong_option_ends_the_process_with_125() -> None:
    ended = run("--bogus", "--", "true")
    assert (ended.returncode, ended.stdout) == (125, "")
    assert "--bogus" in ended.stderr


def test_run_without_a_daemon_runs_the_program_unproven(tmp_path: Path) -> None:
    """The program runs although a file in place of the store's folder prevents a daemon; the verdict is unproven."""
    (tmp_path / "file").write_text("")
    flags = ["--state", str(tmp_path / "file"), "--socket", str(tmp_path / "s"), "--source", "simulated"]
    ended = run(*flags, "--fail-on", "unproven", "--", "sh", "-c", "echo out")
    assert (ended.returncode, ended.stdout) == (12, "out\n")
    assert "UNPROVEN  sh" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert run(*flags, "--", "sh", "-c", "exit 6").returncode == 6


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["/usr/bin/env", "x"], "env"),
        (["python3", "/home/me/bench.py", "--token", "secret"], "bench.py"),
        (["python", "-m", "suite.gemm", "secret"], "suite.gemm"),
        (["python", "-c", "secret"], "python"),
        (["python"], "python"),
    ],
)
def test_run_labels_a_window_by_program_script_or_module(command: list[str], name: str) -> None:
    """A window's label is the name of the program, script or module, because other arguments may hold secrets."""
    from gpuwatch.cli.run import _name

    assert _name(tuple(command)) == name
