"""Tests of faults under the daemon: the user's view of each, and no loss of stored data."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import gpuwatch
from annotate.evidence import Ownership, Visibility
from gpuwatch.host.processes import visibility
from gpuwatch.store import Reader
from tests.busy_machine import BUSY_MACHINE
from tests.fake_nvml.program import work_on
from tests.fake_nvml.running import Watch, watching
from tests.fake_nvml.scene import (
    GPU_IS_LOST,
    RESET_REQUIRED,
    VERSIONS_DIFFER,
    Client,
    Gpu,
    Scene,
    create,
)
from tests.faults import stores
from tests.faults.kills import MOST_LOST_NS
from tests.systemd.manager import Manager, manager
from tests.waiting import PATIENCE_S, let_pass, sample_for, wait_until

Verdicts = dict[str, Any]


@pytest.fixture
def working(tmp_path: Path) -> Scene:
    """Make four working GPUs."""
    scene = create(tmp_path / "working", gpus=4)
    for gpu in scene.gpus:
        work_on(gpu, os.getpid())
    return scene


@contextmanager
def window(watch: Watch, *gpus: Gpu) -> Iterator[Verdicts]:
    """Open a window over these GPUs; yield its verdicts by UUID after its end."""
    verdicts: Verdicts = {}
    with watch.client() as client:
        opened = client.open(label="tried", gpus=[gpu.uuid for gpu in gpus], policy=BUSY_MACHINE.to_dict())
        begin_ns = time.monotonic_ns()
        yield verdicts
        client.close_window(opened.run, begin_ns, time.monotonic_ns())
        verdicts.update(
            {verdict["device"]["uuid"]: verdict for verdict in client.verdicts(opened.run, wait_s=PATIENCE_S).verdicts}
        )


def answered(verdict: Mapping[str, Any]) -> dict[str, str]:
    return {finding["rule"]: finding["answered"] for finding in verdict["findings"]}


def why(verdict: Mapping[str, Any]) -> str:
    """Return the judge's reason for a missing witness and unnamed GPUs."""
    return "; ".join(finding["says"] for finding in verdict["findings"] if finding["rule"] == "stale-daemon")


def shown(watch: Watch) -> list[str]:
    """Return the rows of top, one per GPU."""
    ended = watch.command("top", "--once")
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()[1 : 1 + len(watch.scene.gpus)]


def readings_count(watch: Watch, gpu: Gpu, begin_ns: int, end_ns: int) -> int:
    with Reader(watch.live.settings.state) as reader:
        return len(reader.trace(gpu.uuid, watch.status()["boot_id"], begin_ns, end_ns).column("sm_clock_mhz"))


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory, library: Path) -> Iterator[Watch]:
    """Run a daemon that started with one hung and one lost GPU."""
    folder = tmp_path_factory.mktemp("late")
    scene = create(folder / "scene", gpus=4)
    scene.gpus[1].hang()
    scene.gpus[3].lose()
    with watching(folder, scene, library) as watch:
        yield watch


def test_gpus_failing_at_the_start_are_named(late: Watch) -> None:
    """The daemon names GPUs that hang or are lost at the start, and watches the others."""
    status = late.until(lambda status: len(status["gpus"]) == 2)
    assert status["unanswered"] == ["GPU 1: no answer for 3 s", "GPU 3: the GPU fell off the bus or is otherwise lost"]
    assert [gpu["uuid"] for gpu in status["gpus"]] == [late.scene.gpus[0].uuid, late.scene.gpus[2].uuid]
    assert "listed, but not answering: GPU 1: no answer for 3 s; GPU 3: the GPU fell off" in late.live.log.read_text()
    late.scene.gpus[1].release()
    late.scene.gpus[3].come_back()
    late.scene.gpus[2].lose()


def test_lost_gpu_is_named_and_watched_again(working: Scene, library: Path, tmp_path: Path) -> None:
    """The daemon names a lost GPU, judges the others, and watches it again when it comes back."""
    stays, off_the_bus, to_be_reset, _ = working.gpus
    with watching(tmp_path, working, library) as watch:
        begin_ns = time.monotonic_ns()
        with window(watch, stays, off_the_bus, to_be_reset) as before:
            sample_for(0.3)
        with window(watch, stays, off_the_bus, to_be_reset) as during:
            sample_for(0.3)
            off_the_bus.lose(GPU_IS_LOST)
            to_be_reset.lose(RESET_REQUIRED)
            lost_ns = time.monotonic_ns()
            watch.until(lambda _: all(watch.gpu(index)["lost"] for index in (1, 2)))
            rows = shown(watch)
            asked_s, asked_count = time.monotonic(), off_the_bus.calls_count()
            let_pass(0.4, "the interval for the count of calls")
            assert off_the_bus.calls_count() - asked_count < 75 * (time.monotonic() - asked_s), "a lost GPU is asked seldom"
        off_the_bus.come_back()
        to_be_reset.come_back()
        watch.until(lambda _: not any(watch.gpu(index)["lost"] for index in (1, 2)))
        with window(watch, off_the_bus, to_be_reset) as after:
            sample_for(0.3)
        kept = watch.command("audit").stdout
        assert readings_count(watch, off_the_bus, begin_ns, lost_ns) > 2, "what was read before the loss is kept"
        assert "Traceback" not in watch.live.log.read_text()
    for gpu, says in ((off_the_bus, "the GPU fell off the bus or is otherwise lost"), (to_be_reset, "the GPU must be reset")):
        assert f"LOST  {says}" in rows[gpu.index]
        assert f"the GPU was lost: {says}" in why(during[gpu.uuid])
        assert during[gpu.uuid]["status"] != "valid"
    assert all("1980/1980" in rows[index] for index in (0, 3))
    for verdict in (*before.values(), during[stays.uuid], *after.values()):
        assert answered(verdict)["stale-daemon"] == "clear"
    assert kept.count("tried") == 3


def test_process_storm_with_reused_pids_costs_no_memory(working: Scene, library: Path, tmp_path: Path) -> None:
    """A storm of processes under a few PIDs is named in the verdict and costs no memory.

    Processes change dozens of times a second, and each new one reuses an earlier PID.
    """
    dice = random.Random(0)
    with watching(tmp_path, working, library) as watch:
        pid, own = watch.live.process.pid, Client(pid=os.getpid(), sm_percent=50)
        with window(watch, *working.gpus) as before:
            sample_for(0.3)
        memory_bytes, descriptors_count = stores.memory_bytes(pid), stores.descriptors(pid)
        with window(watch, *working.gpus) as during:
            begin_ns = time.monotonic_ns()
            for _ in range(100):
                for gpu in working.gpus:
                    gpu.clients = [own, *(Client(pid=other) for other in dice.sample(range(5_000_000, 5_000_200), 40))]
                let_pass(0.02, "other processes come fifty times a second")
            end_ns = time.monotonic_ns()
        assert stores.memory_bytes(pid) - memory_bytes < 10 << 20
        assert stores.descriptors(pid) <= descriptors_count + 4
        status = watch.status()
        assert status["store"]["dropped_count"] == 0
        assert "Traceback" not in watch.live.log.read_text()
        with Reader(watch.live.settings.state) as reader:
            (run,) = reader.runs(limit=1)
            process_lists = reader.evidence(run, working.gpus[0].uuid).trace.process_lists
    for gpu in working.gpus:
        alone = "clear" if visibility() is Visibility.HOST else "unobserved"  # in a container others could be hidden
        assert answered(before[gpu.uuid])["contention-process"] == alone
        assert answered(during[gpu.uuid])["contention-process"] == "found"
    inside = [process_list for process_list in process_lists if begin_ns + 500_000_000 < process_list.at_ns < end_ns]
    assert len(inside) >= 3
    for process_list in inside:
        assert [p.pid for p in process_list.processes if p.ownership is Ownership.OWN] == [os.getpid()]
        assert len({p.pid for p in process_list.processes}) >= 30


@pytest.mark.parametrize("opened_count", [0, 2], ids=["idle", "in a window"])
@pytest.mark.parametrize("most_lost_ns", [None, pytest.param(MOST_LOST_NS, marks=pytest.mark.slow)], ids=["whole", "a second"])
def test_daemon_killed_between_commits_loses_1_s_at_most(
    working: Scene, library: Path, tmp_path: Path, opened_count: int, most_lost_ns: int | None
) -> None:
    """A daemon killed between two commits loses at most 1 s.

    On the driver's own ABI this includes readings in the compiled loop's buffer, in addition to uncommitted ones.

    Without a time limit the test checks that everything committed before the kill is stored.
    """
    with watching(tmp_path, working, library) as watch:
        windows = [gpuwatch.window(f"open {i}", settings=watch.live.settings) for i in range(opened_count)]
        for w in windows:
            w.__enter__()
        for gpu in working.gpus:
            gpu.ripples("sm_clock_mhz", 60)  # no value lives longer than a refresh
        sample_for(1.5)
        committed = wait_until(lambda: stores.committed_ns(watch.live.settings.state), what="readings are committed")
        watch.live.process.kill()
        killed_ns = time.monotonic_ns()
        watch.live.process.wait()
        for w in windows:
            w.__exit__(None, None, None)
            assert w.verdict.status == "unproven"
            assert "went away" in w.verdict.why
    stored = stores.last_ns(watch.live.settings.state)
    assert set(stored) == {gpu.uuid for gpu in working.gpus}
    assert all(stored[uuid] >= at_ns for uuid, at_ns in committed.items())
    assert most_lost_ns is None or killed_ns - min(stored.values()) <= most_lost_ns
    stores.check_files(watch.live.settings.state)
    with watching(tmp_path, working, library) as watch:  # the next daemon cleans up after it
        pass
    stores.check_rows(watch.live.settings.state)
    runs = stores.check_runs(watch.live.settings.state)
    assert [(run.status, run.why) for run in runs] == [
        ("unproven", "the daemon ended while the window was open")
    ] * opened_count


def test_a_driver_reloaded_under_the_daemon_is_attached_anew(working: Scene, library: Path, tmp_path: Path) -> None:
    with watching(tmp_path, working, library) as watch:
        begin_ns = time.monotonic_ns()
        with window(watch, working.gpus[0]) as during:
            sample_for(0.3)
            working.unload()
            unloaded_ns = time.monotonic_ns()
            watch.until(lambda status: all(gpu["lost"] for gpu in status["gpus"]))
            rows = shown(watch)
            working.load()
            status = watch.until(lambda status: not any(gpu["lost"] for gpu in status["gpus"]))
        working.load(stale_code=VERSIONS_DIFFER)  # and again, too fast for anybody to notice
        watch.until(lambda status: any(gpu["lost"] for gpu in status["gpus"]))
        watch.until(lambda status: not any(gpu["lost"] for gpu in status["gpus"]))
        with window(watch, *working.gpus) as after:
            sample_for(0.3)
            working.gpus[3].xid(79)
            sample_for(0.3)
        assert readings_count(watch, working.gpus[0], begin_ns, unloaded_ns) > 2
        assert status["pid"] == watch.live.process.pid
        assert "Traceback" not in watch.live.log.read_text()
    assert all("LOST  the NVIDIA driver is not loaded: load the kernel module" in row for row in rows)
    assert "the GPU was lost: " in why(during[working.gpus[0].uuid])
    assert [answered(after[gpu.uuid])["stale-daemon"] for gpu in working.gpus] == ["clear"] * 4
    assert answered(after[working.gpus[3].uuid])["hardware-error"] == "found", "heard from the driver that is there now"


def test_a_driver_that_comes_later_is_found(library: Path, scene: Scene, tmp_path: Path) -> None:
    """Without a driver the daemon runs, reports that, and looks for one every ten seconds; a hung wait does not prevent it."""
    scene.unload()
    with watching(tmp_path, scene, library) as watch:
        assert "the NVIDIA driver is not loaded" in watch.status()["absence"]
        ended = watch.command("top", "--once")
        assert (ended.returncode, "no GPU to watch: the NVIDIA driver is not loaded" in ended.stderr) == (1, True)
        run = watch.command("run", "--", "true")
        assert run.returncode == 0
        assert "UNPROVEN" in run.stderr
        assert "the NVIDIA driver is not loaded" in " ".join(run.stderr.split())


def fed(said: dict[str, str]) -> bool:
    return "WATCHDOG" in said


def test_call_that_never_returns_costs_only_its_gpu(working: Scene, library: Path, tmp_path: Path) -> None:
    """A call that never returns costs its GPU and nothing else.

    The GPU counts as lost, its neighbours are still read, windows open and close, and the watchdog stays fed.
    """
    hung, lives = working.gpus[1], working.gpus[2]
    with manager(tmp_path / "notify") as told:
        environment = {"NOTIFY_SOCKET": told.address, "WATCHDOG_USEC": "1000000"}
        with watching(tmp_path, working, library, environment) as watch:
            assert "4 × NVIDIA H200" in told.until(lambda said: "READY" in said)["STATUS"]
            hung.hang()
            with window(watch, hung, lives) as during:
                watch.until(lambda _: watch.gpu(1)["lost"] is not None)
                _lost_is_told(told, hung)
                rows = shown(watch)
            hung_count = hung.calls_count()
            with window(watch, hung, lives) as later:
                assert hung.calls_count() == hung_count, "a lost GPU is not asked, and so not waited for"
                sample_for(0.3)
            hung.release()
            watch.until(lambda _: watch.gpu(1)["lost"] is None)
            hung.hang("nvmlDeviceGetSamples")  # a daemon with a stuck thread can still be stopped
            let_pass(1.1, "the power record is asked each second")
            watch.live.process.terminate()
            assert watch.live.process.wait(PATIENCE_S) == 0
            assert "Traceback" not in watch.live.log.read_text()
    assert "LOST  no answer for 5 s" in rows[1]
    assert all("1980/1980" in rows[index] for index in (0, 2, 3))
    for verdicts in (during, later):
        assert answered(verdicts[lives.uuid])["stale-daemon"] == "clear"
        assert "the GPU was lost: no answer for 5 s" in why(verdicts[hung.uuid])


def test_window_held_up_by_the_driver_is_judged_as_such(working: Scene, library: Path, tmp_path: Path) -> None:
    """The verdict names the driver's hang as the reason for a delayed window."""
    hung, lives = working.gpus[1], working.gpus[2]
    with watching(tmp_path, working, library) as watch, watch.client() as client:
        opened = client.open(label="held up", gpus=[hung.uuid, lives.uuid])
        begin_ns = time.monotonic_ns()
        sample_for(1.0)
        client.close_window(opened.run, begin_ns, time.monotonic_ns())
        hung.hang("nvmlDeviceGetClockInfo")
        is_waited_for = []
        for gpus in ([hung.uuid, lives.uuid], *([lives.uuid],) * 7):  # windows on other GPUs do not wait
            other = client.open(label="beside", gpus=gpus)
            is_waited_for.append(watch.gpu(1)["lost"] is None)
            client.close_window(other.run, time.monotonic_ns() - 1000, time.monotonic_ns())
        held_up = client.verdicts(opened.run, wait_s=PATIENCE_S)
        watch.until(lambda _: watch.gpu(1)["lost"] is not None)
        hung.release()
        watch.until(lambda _: watch.gpu(1)["lost"] is None)
        let_pass(0.5, "what was told of the loss lies before the window")
        with window(watch, hung) as after:
            sample_for(1.0)
    assert held_up.status == "unproven"
    assert f"a driver call that has not returned holds up the readings of {hung.uuid}" in held_up.why
    assert any(is_waited_for[1:]), "windows on other GPUs were entered before it was given up"
    assert "lost" not in why(after[hung.uuid]), "it came back after it was lost, not before"


def _lost_is_told(told: Manager, hung: Gpu) -> None:
    said = told.until(lambda said: fed(said) and "lost" in said["STATUS"])
    assert said["STATUS"].startswith("3 × NVIDIA H200")
    assert f"{hung.uuid} lost: no answer for 5 s" in said["STATUS"]
    for _ in range(2):
        told.until(fed)


def test_gpus_that_answer_at_last_join_in_the_drivers_order(late: Watch) -> None:
    """A GPU that answers at last joins in the driver's order; this test runs last, because the daemon looks every ten seconds."""
    late.scene.gpus[1].release()
    late.scene.gpus[3].come_back()
    status = late.until(lambda status: len(status["gpus"]) == 4)
    assert [gpu["uuid"] for gpu in status["gpus"]] == [gpu.uuid for gpu in late.scene.gpus]
    assert status["unanswered"] == []


def test_a_window_hears_of_a_loss_long_before_it(late: Watch) -> None:
    gone, lives = late.scene.gpus[2], late.scene.gpus[0]
    gone.lose()
    late.until(lambda _: late.gpu(2)["lost"] is not None)
    work_on(lives, os.getpid())
    with window(late, gone) as verdicts:  # a process on another GPU too is not the reason
        sample_for(1.2)
    assert verdicts[gone.uuid]["status"] == "unproven"
    assert "the GPU was lost: the GPU fell off the bus" in why(verdicts[gone.uuid])
