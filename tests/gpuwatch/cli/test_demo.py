"""Tests of gpuwatch demo and its simulated scenes."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import gpuwatch as gpuwatch_api
from gpuwatch import clock
from gpuwatch.cli import demo, scene_player
from gpuwatch.cli.benchmarks import Benchmark
from gpuwatch.client.connection import connect
from gpuwatch.sources import SCENE_AGE_NS
from gpuwatch.sources.simulated import SCENES
from tests.busy_machine import BUSY_MACHINE
from tests.gpuwatch import forked, live
from tests.gpuwatch.cli.conftest import Gpuwatch
from tests.waiting import PATIENCE_S


@pytest.fixture(autouse=True)
def forked_daemons() -> Iterator[None]:
    with forked.daemons_of_windows():
        yield


@pytest.mark.parametrize("names", ["steady-gemm,from-idle,neighbour", "neighbour,steady-copy,persistence-off"])
def test_demo_gives_the_verdict_of_each_scene(gpuwatch: Gpuwatch, names: str) -> None:
    """Each scene's rules find their hazard; on an idle machine the status is the scene's."""
    ended = gpuwatch("demo", "--scenes", names, "--json")
    assert ended.code == 0
    assert "SIMULATED" in ended.err
    assert ended.data["simulated"] is True
    played = {window["label"]: window for window in ended.data["windows"]}
    assert list(played) == names.split(",")
    for name, window in played.items():
        findings = [
            finding for verdict in window["verdicts"] for finding in verdict["findings"] if finding["answered"] == "found"
        ]
        assert all(verdict["simulated"] for verdict in window["verdicts"])
        assert SCENES[name].rules <= {finding["rule"] for finding in findings}
        # The machine that plays the scenes is real: the verdicts can also report a lack of CPU cores, or lack evidence.
        if window["status"] == "unproven" and os.getloadavg()[0] > (os.cpu_count() or 1):
            continue
        if not BUSY_MACHINE.accept & {finding["rule"] for finding in findings if finding["severity"] != "note"}:
            assert window["status"] == SCENES[name].status, findings


def test_bench_of_a_repeating_scene_waits_for_the_next_round() -> None:
    scene = SCENES["from-idle"]
    begin_s, end_s = scene.bench
    second = 1_000_000_000
    assert scene_player._bench(scene, 0, 1 * second) == (begin_s * second, end_s * second)
    late = scene_player._bench(scene, 0, round((begin_s + 0.5) * second))
    assert late == ((begin_s + scene.length_s) * second, (end_s + scene.length_s) * second)


def test_bench_of_a_steady_scene_starts_late_at_full_length() -> None:
    scene = SCENES["steady-copy"]
    begin_ns, end_ns = scene_player._bench(scene, 0, 20_000_000_000)
    assert begin_ns == 20_000_000_000
    assert end_ns - begin_ns == round((scene.bench[1] - scene.bench[0]) * 1e9)


def test_demo_refuses_an_unknown_scene_in_one_line(gpuwatch: Gpuwatch) -> None:
    """An unknown scene is refused in one line, without the banner."""
    ended = gpuwatch("demo", "--scenes", "stedy-copy")
    assert (ended.code, ended.err) == (2, "gpuwatch: no scene 'stedy-copy': did you mean 'steady-copy'?\n")


def test_demo_ends_with_the_next_commands(gpuwatch: Gpuwatch) -> None:
    """The demo ends with the next commands, in the order of a first session."""
    said = gpuwatch("demo", "--scenes", "short").err.partition("Commands to try next")[2]
    assert re.findall(r"gpuwatch (\w+)", said) == ["show", "explain", "report", "top", "run", "doctor"]


def test_demo_prints_commands_that_work(gpuwatch: Gpuwatch, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The printed show, report and explain commands work literally, because the windows are in the store of the same source."""
    monkeypatch.chdir(home)
    said = gpuwatch("demo", "--scenes", "short,steady-copy").err.partition("Commands to try next")[2]
    typed = dict(re.findall(r"gpuwatch (show|report|explain) (.*)", said))
    assert all(gpuwatch(name, *shlex.split(rest)).code == 0 for name, rest in typed.items()), typed
    assert (home / "short.html").stat().st_size > 100_000
    listed = gpuwatch("audit", "--json", "--source=simulated:short,steady-copy").data["runs"]
    assert {run["label"] for run in listed} == {"short", "steady-copy"}
    for command in (("audit",), ("show",), ("show", "short")):  # without --source
        assert "give --source=simulated:short,steady-copy" in gpuwatch(*command).err
    for source in ("auto", "simulated:idle"):  # the store of real GPUs, and the latest simulated one, lack the label
        gpuwatch("run", f"--source={source}", "--name", "other", "--", "true")
    assert "give --source=simulated:short,steady-copy" in gpuwatch("show", "short").err


def test_demo_starts_the_daemon_before_the_benchmark_prepares(gpuwatch: Gpuwatch, tmp_path: Path) -> None:
    """The daemon runs before the benchmark prepares, so that the GPU does not rest between warm-up and window."""
    found = live.settings(tmp_path)
    pids: list[int] = []

    def prepare() -> None:
        with connect(found, start=False) as client:
            pids.append(client.welcome.pid)

    try:
        (measured,) = demo._measure([Benchmark("first", "nothing", prepare, lambda _window: None)], found)
    finally:
        gpuwatch(*found.flags(), "daemon", "stop")
    assert measured.run_id is not None
    assert len(pids) == 1


def test_demo_plays_its_scenes_from_their_beginning(tmp_path: Path) -> None:
    """A daemon that already plays the scenes, as after ``top``, is replaced; its scene would be past the benchmark."""
    found = live.settings(tmp_path)
    with gpuwatch_api.window("earlier", settings=found, sync=False):
        pass
    begun_ns = clock.now_ns()
    with scene_player.own_daemon(found, tmp_path) as facts:
        assert facts["epoch_ns"] + SCENE_AGE_NS > begun_ns


def test_demo_prints_no_verdict_after_ctrl_c(tmp_path: Path) -> None:
    """Ctrl-C ends the demo with one line and no verdict."""
    played = subprocess.Popen(
        [sys.executable, "-m", "gpuwatch", "demo", "--scenes", "steady-copy,neighbour"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path), "XDG_RUNTIME_DIR": "", "XDG_STATE_HOME": str(tmp_path)},
    )
    assert played.stderr is not None
    for line in played.stderr:
        if "its window opens" in line:
            break
    played.send_signal(signal.SIGINT)
    out, err = played.communicate(timeout=PATIENCE_S)
    assert played.returncode == 130
    assert out == ""
    said = [line for line in err.splitlines() if line and "its window opens" not in line]
    assert said == ["stopped early: no verdict"]
    assert list(tmp_path.glob("gpuwatch-demo-*")) == []
