"""Tests of the C library: windows of NVTX ranges and of the C API on a simulated GPU, in programs compiled by the tests."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import click
import pytest

from annotate.verdict import Status
from gpuwatch.cli import cli
from gpuwatch.cli.nvtx_ranges import NvtxRanges
from gpuwatch.client.window import window
from gpuwatch.config.settings import Settings
from gpuwatch.interfaces import Run
from gpuwatch.libgpuwatch import LIBRARY
from gpuwatch.store import Reader
from tests.gpuwatch import forked
from tests.gpuwatch.libgpuwatch import built
from tests.gpuwatch.libgpuwatch.conftest import CLEAN, needs_compiler
from tests.gpuwatch.live import judged_run, running
from tests.waiting import PATIENCE_S

pytestmark = needs_compiler


def run(*arguments: str, settings: Settings, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gpuwatch", "run", *settings.flags(), *arguments]
    return forked.run(command, environment={**CLEAN, **(environment or {})}, timeout_s=PATIENCE_S)


def injected(settings: Settings, pattern: str, **more: str) -> dict[str, str]:
    return {
        **CLEAN,
        "NVTX_INJECTION64_PATH": str(LIBRARY),
        "GPUWATCH_NVTX": pattern,
        "GPUWATCH_SOCKET": str(settings.socket),
        **more,
    }


def runs_of(settings: Settings, count: int) -> dict[str, Run]:
    """Return the latest ``count`` runs of a store by label, after their verdicts."""
    with Reader(settings.state) as reader:
        found = reader.runs(limit=count)
    return {each.label or "": judged_run(settings.state, each.id) for each in found}


def times_of(settings: Settings, found: Run) -> int:
    with Reader(settings.state) as reader:
        timings = reader.evidence(found, found.uuids[0]).timings if found.uuids else None
    return 0 if timings is None else len(timings.took_s)


def test_ranges_become_windows_and_iterations(copying: Settings, ranges: Path) -> None:
    """Long ranges become windows, even if another thread ends the range; short ranges become iterations of a window or series."""
    wanted = [f"--nvtx={each}" for each in ("timed", "step", "NCCL:all*", "grü*")]
    ended = run(*wanted, "--label=program", "--", str(ranges), "all", settings=copying)
    assert ended.returncode == 0, ended.stderr
    found = runs_of(copying, 4)
    assert set(found) == {"program", "timed", 'NCCL:all"reduce', "grüße"}
    assert (times_of(copying, found["timed"]), times_of(copying, found['NCCL:all"reduce'])) == (60, 30)
    assert found["timed"].declared["timer"] == "host"
    assert found["timed"].parent == found["program"].id
    assert times_of(copying, found["program"]) == 0
    series = found['NCCL:all"reduce']
    assert series.end_ns is not None
    assert 0.05 < (series.end_ns - series.begin_ns) / 1e9 < 10
    assert not [each for each in found.values() if each.host is not None and "NVTX" in (each.host.profilers or "")]
    for label in found:
        assert label in ended.stderr


def test_ranges_inside_a_series_are_counted_and_named(copying: Settings, ranges: Path) -> None:
    """Ranges of another label inside a series are not iterations, and the summary has their count and a remedy.

    A series waits for its open ranges, also for those that began before the first range ended.
    """
    wanted = [f"--nvtx={each}" for each in ("outer", "inner", "overlap")]
    ended = run(*wanted, "--label=program", "--", str(ranges), "nested", settings=copying)
    assert ended.returncode == 0, ended.stderr
    found = runs_of(copying, 3)
    assert set(found) == {"program", "outer", "overlap"}
    assert (times_of(copying, found["outer"]), times_of(copying, found["overlap"])) == (20, 2)
    assert "41 ranges inner inside outer are not iterations; judge only these with --nvtx inner" in ended.stderr
    assert f"`gpuwatch show {found['outer'].id} --source=" in ended.stderr
    assert "show RUN" not in ended.stderr


def test_report_names_only_windows_of_its_run(
    copying: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The report may name windows of an inner run, but not windows that another run opened."""
    monkeypatch.setenv("GPUWATCH_PARENT", "0ca7f00d")
    with window("run inside", settings=copying) as run_inside:
        monkeypatch.setenv("GPUWATCH_PARENT", run_inside.run_id or "")
        with window("inside", settings=copying) as watched:
            pass
    assert watched.verdict
    (tmp_path / "report").write_text(f'{{"run":"{watched.run_id}"}}\n')
    ranges = NvtxRanges(("timed",), folder=tmp_path)
    with click.Context(cli):
        assert ranges.print_verdicts(copying, "0ca7f00d") == {watched.verdict.status}
        assert "inside" in capfd.readouterr().err
        assert ranges.print_verdicts(copying, "another") == {Status.UNPROVEN}
    said = capfd.readouterr().err
    assert said == "gpuwatch: --nvtx: the report lists 1 window that this run did not open; ignored\n"


def test_nvtx_list_shows_ranges_with_counts(copying: Settings, ranges: Path) -> None:
    ended = run("--nvtx-list", "--", str(ranges), "all", settings=copying)
    rows = {line.split("  ")[0]: line.split() for line in ended.stderr.splitlines() if line.count(" s") or " ms" in line}
    assert rows["step"][1] == "60"
    assert rows['NCCL:all"reduce'][1] == "30"
    assert rows["grüße"][1] == "1"
    assert rows["warmup"][1] == "1"


def test_nvtx_domains_beyond_255_are_reported(copying: Settings, ranges: Path) -> None:
    """Ranges of 255 domains are listed; one message reports the first of the other domains."""
    ended = run("--nvtx-list", "--", str(ranges), "domains", settings=copying)
    listed = {line.split()[0] for line in ended.stderr.splitlines() if ":one " in line}
    assert listed == {f"d{number}:one" for number in range(255)}
    assert " ".join(ended.stderr.split()).count("expected at most 255 NVTX domains, found more: ranges of d255") == 1


def test_python_ranges_become_windows(copying: Settings) -> None:
    """Ranges of Python's nvtx package become windows and iterations, in the default domain and in another."""
    pytest.importorskip("nvtx")
    code = (
        "import nvtx, threading\n"
        "pause = threading.Event()\n"
        "with nvtx.annotate('timed', domain='mine'):\n"
        "    for _ in range(30):\n"
        "        with nvtx.annotate('step'):\n"
        "            pause.wait(0.01)\n"
    )
    ended = run("--nvtx=mine:timed", "--nvtx=step", "--", sys.executable, "-c", code, settings=copying)
    assert ended.returncode == 0, ended.stderr
    assert times_of(copying, runs_of(copying, 2)["mine:timed"]) == 30


def test_unmatched_pattern_is_reported(copying: Settings, ranges: Path) -> None:
    """A message reports a pattern without matching ranges, and the option that lists ranges."""
    ended = run("--nvtx=nothing", "--", str(ranges), "fork", settings=copying)
    assert ended.returncode == 0
    assert "no range matched nothing; --nvtx-list shows" in ended.stderr


@pytest.mark.parametrize("given", [("--nvtx", ""), ("--nvtx-sync",)])
def test_nvtx_options_without_a_pattern_are_usage_errors(copying: Settings, given: tuple[str, ...]) -> None:
    """An empty pattern, and synchronisation without a pattern, are usage errors before the program runs."""
    ended = run(*given, "--", "echo", "ran", settings=copying)
    assert (ended.returncode, ended.stdout) == (125, "")
    assert "--nvtx" in ended.stderr


def test_nvtx_report_with_invalid_lines_is_ignored(copying: Settings, tmp_path: Path) -> None:
    """Invalid lines in a report give neither a timer nor an exception."""
    (tmp_path / "report").write_text(
        '{"is_outer":true,"timer":"events"}\n[1]\n{\n{"run":"none of these"}\n{"run":7}\n\xff\n' + "[" * 200_000
    )
    (tmp_path / "list").write_text(
        '{"domain":"d"}\n{"domain":1,"message":"m","count":"x"}\n{"domain":"d","message":"m","count":Infinity}\n'
    )
    ranges = NvtxRanges(("timed",), is_listed=True, folder=tmp_path)
    assert ranges.outer_timer() is None
    assert ranges.print_verdicts(copying, "0ca7f00d") == {Status.UNPROVEN}
    (tmp_path / "report").unlink()
    assert ranges.outer_timer() is None


def test_forked_child_has_its_own_windows(copying: Settings, ranges: Path) -> None:
    """A forked child neither ends its parent's range nor uses the parent's connection."""
    ended = run("--nvtx=*timed", "--", str(ranges), "fork", settings=copying)
    assert ended.returncode == 0, ended.stderr
    found = runs_of(copying, 3)
    assert found["timed"].pid != found["of the child timed"].pid
    assert found["timed"].end_ns is not None
    assert found["of the child timed"].end_ns is not None
    assert found["timed"].end_ns > found["of the child timed"].end_ns


def test_another_nvtx_injection_gets_every_call(copying: Settings, ranges: Path, folder: Path) -> None:
    """A previously set injection still gets every call, and a message names GPUWATCH_NVTX_NEXT."""
    other = built.shared(folder, "libother.so", "other_injection.c")
    ended = run("--nvtx=step", "--", str(ranges), "all", settings=copying, environment={"NVTX_INJECTION64_PATH": str(other)})
    assert "other injection: 62 pushes" in ended.stdout
    assert "GPUWATCH_NVTX_NEXT" in " ".join(ended.stderr.split())


def test_api_window_has_stamped_times(copying: Settings, api: Path, fake_driver: Path) -> None:
    """Iterations of the API have stamped times and clocks; facts arrive, and a label with invalid UTF-8 is cleaned."""
    environment = {**CLEAN, "GPUWATCH_SOCKET": str(copying.socket), "LD_LIBRARY_PATH": str(fake_driver)}
    ended = subprocess.run([api], env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    run_id, kept, refused, problem = ended.stdout.strip().split("|")
    assert (kept, refused, problem) == ("1", "1", "")
    found = judged_run(copying.state, run_id)
    assert found.label == 'wärme "1"\ufffd'
    declared = found.declared
    assert (declared["timer"], declared["dtype"], declared["call_bytes"]) == ("stamps", 'bf"16', 1e6)
    assert declared["true_clock_mhz"] == pytest.approx(1500.0)
    assert declared["cuda_uuids"] == "GPU-abababab-abab-abab-abab-abababababab"
    with Reader(copying.state) as reader:
        timings = reader.evidence(found, found.uuids[0]).timings
    assert timings is not None
    assert timings.sm_clock_mhz is not None
    assert len(timings.took_s) == 60
    assert timings.sm_clock_mhz.tolist() == pytest.approx([1500.0] * 60, rel=1e-4)
    assert timings.took_s.min() > 0.0049
    assert found.begin_ns <= timings.at_ns[0] + 1_000_000


def test_late_gpu_ends_the_window_later(copying: Settings, api: Path, fake_driver: Path) -> None:
    """A window lasts at least as long as its stamped work, even if the GPU runs 0.3 s late."""
    late = {"LD_LIBRARY_PATH": str(fake_driver), "FAKE_CUDA_LATE_NS": "300000000", "GPUWATCH_SOCKET": str(copying.socket)}
    ended = subprocess.run([api], env={**CLEAN, **late}, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    found = judged_run(copying.state, ended.stdout.partition("|")[0])
    assert found.end_ns is not None
    assert found.declared["timer"] == "stamps"
    assert isinstance(stamped_s := found.declared["stamped_s"], float)
    assert (found.end_ns - found.begin_ns) / 1e9 >= stamped_s - 0.001


def test_captured_graph_is_not_stamped(copying: Settings, api: Path, fake_driver: Path) -> None:
    """During a graph capture the timer is the host's, and no true clock is declared."""
    capturing = {"LD_LIBRARY_PATH": str(fake_driver), "FAKE_CUDA_CAPTURING": "1", "GPUWATCH_SOCKET": str(copying.socket)}
    ended = subprocess.run([api], env={**CLEAN, **capturing}, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    found = judged_run(copying.state, ended.stdout.partition("|")[0])
    assert found.declared["timer"] == "host"
    assert "true_clock_mhz" not in found.declared


def test_program_runs_on_without_a_daemon(api: Path, tmp_path: Path) -> None:
    """Without a daemon the program runs normally, and one message gives the reason and a remedy."""
    environment = {"GPUWATCH_SOCKET": str(tmp_path / "none"), "PATH": "/nowhere", "HOME": "/"}
    ended = subprocess.run([api], env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert ended.returncode == 0
    assert ended.stdout.startswith("|0|1|no daemon answers; start one with: gpuwatch daemon")
    assert ended.stderr.count("gpuwatch:") == 1


def test_earlier_refusal_is_not_reported_again(tmp_path: Path) -> None:
    """After the system's daemon refused and the user's daemon answered, the end of both is reported as no daemon."""
    code = (
        "import ctypes, os, socket, sys, threading\n"
        "def serve(path, *answers):\n"
        "    def talk():\n"
        "        connection, _ = listener.accept()\n"
        "        os.unlink(path)\n"
        "        for answer in answers:\n"
        "            connection.recv(65536)\n"
        "            connection.sendall(answer)\n"
        "        connection.close()\n"
        "    listener = socket.socket(socket.AF_UNIX)\n"
        "    listener.bind(path)\n"
        "    listener.listen()\n"
        "    threading.Thread(target=talk, daemon=True).start()\n"
        "os.mkdir('gpuwatch')\n"
        "serve('system')\n"
        'serve(\'gpuwatch/daemon.sock\', b\'{"type":"welcome"}\\n\', b\'{"type":"opened","run":"r1"}\\n\')\n'
        "begin = ctypes.CDLL(sys.argv[1]).gw_begin\n"
        "sys.exit(not begin(b'first') or begin(b'second'))\n"
    )
    library = built.compile_c(tmp_path / "own.so", "-shared", "-fPIC", '-DSYSTEM_SOCKET="system"', *built.SOURCES)
    command = [sys.executable, "-c", code, str(library)]
    environment = {**CLEAN, "XDG_RUNTIME_DIR": str(tmp_path)}
    ended = subprocess.run(command, env=environment, cwd=tmp_path, stderr=subprocess.PIPE, timeout=PATIENCE_S, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"gpuwatch: no window: no daemon answers; start one with: gpuwatch daemon\n")


def drip(listener: socket.socket, gap_s: float) -> None:
    """Answer each line of one connection in two pieces, each after a pause of ``gap_s``."""
    connection, _ = listener.accept()
    for line in connection.makefile("rb"):
        opened = b'{"type":"opened","run":"r1"}\n'
        answer = {"hello": b'{"type":"welcome"}\n', "open": opened}.get(json.loads(line)["type"], b'{"type":"taken"}\n')
        try:
            for piece in (answer[:5], answer[5:]):
                time.sleep(gap_s)
                connection.sendall(piece)
        except OSError:
            return


@pytest.mark.parametrize("gap_s", [1.9, None])
def test_slow_daemon_blocks_a_call_for_at_most_3_s(tmp_path: Path, gap_s: float | None) -> None:
    """A daemon with slow answers, or without a free connection, delays each thread's call by less than 3 s."""
    code = (
        "import ctypes, sys, threading, time\n"
        "begin = ctypes.CDLL(sys.argv[1]).gw_begin\n"
        "def hold():\n"
        "    before = time.monotonic()\n"
        "    begin(b'slow')\n"
        "    sys.stdout.write(f'{time.monotonic() - before}\\n')\n"
        "for each in [threading.Thread(target=hold) for _ in range(3)]: each.start()\n"
    )
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as first:
        listener.bind(str(tmp_path / "slow.sock"))
        listener.listen(0)
        if gap_s is None:
            first.connect(str(tmp_path / "slow.sock"))  # takes the only free connection
        else:
            threading.Thread(target=drip, args=(listener, gap_s), daemon=True).start()
        environment = {**CLEAN, "GPUWATCH_SOCKET": str(tmp_path / "slow.sock")}
        command = [sys.executable, "-c", code, str(LIBRARY)]
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    held_s = [float(each) for each in ended.stdout.split()]
    assert len(held_s) == 3, ended.stderr
    assert max(held_s) < 3
    assert ended.stderr.count("gpuwatch: no window") == 1


@pytest.fixture
def waiting(tmp_path: Path, ranges: Path) -> Iterator[tuple[Settings, int, subprocess.Popen[str]]]:
    """Yield settings, PID of the daemon, and a program inside a range; tests may kill the daemon."""
    with running(tmp_path) as live:
        program = subprocess.Popen(
            [ranges, "wait"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=injected(live.settings, "timed")
        )
        assert program.stdout is not None
        assert program.stdout.readline() == "inside\n"
        yield live.settings, live.process.pid, program
        program.communicate(timeout=PATIENCE_S)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_failing_daemon_does_not_harm_the_program(
    waiting: tuple[Settings, int, subprocess.Popen[str]], number: signal.Signals
) -> None:
    """The program ends normally although the daemon is killed or stopped during a range."""
    _, pid, program = waiting
    os.kill(pid, number)
    out, _ = program.communicate("", timeout=PATIENCE_S)
    assert (program.returncode, out) == (0, "out\n")
    if number is signal.SIGSTOP:
        os.kill(pid, signal.SIGCONT)
