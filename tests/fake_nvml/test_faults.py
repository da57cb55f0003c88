"""Tests of driver faults under the daemon: the user's view of each fault, and no loss of stored data."""

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
    """Return a scene of four working GPUs."""
    scene = create(tmp_path / "working", gpus=4)
    for gpu in scene.gpus:
        work_on(gpu, os.getpid())
    return scene


@contextmanager
def window(watch: Watch, *gpus: Gpu) -> Iterator[Verdicts]:
    """Open a window over these GPUs; yield a dict that holds the verdicts by UUID after the window's end."""
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
    """Return the text of ``stale-daemon``, which gives the reason for missing readings."""
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
    """Yield a daemon that started with one hung and one lost GPU."""
    folder = tmp_path_factory.mktemp("late")
    scene = create(folder / "scene", gpus=4)
    scene.gpus[1].hang()
    scene.gpus[3].lose()
    with watching(folder, scene, library) as watch:
        yield watch


def test_gpus_failing_at_the_start_are_reported(late: Watch) -> None:
    """The daemon reports GPUs that hang or are lost at the start, and watches the others."""
    status = late.until(lambda status: len(status["gpus"]) == 2)
    assert status["unanswered"] == ["GPU 1: no answer for 3 s", "GPU 3: the GPU fell off the bus or is otherwise lost"]
    assert [gpu["uuid"] for gpu in status["gpus"]] == [late.scene.gpus[0].uuid, late.scene.gpus[2].uuid]
    assert "listed, but not answering: GPU 1: no answer for 3 s; GPU 3: the GPU fell off" in late.live.log.read_text()
    late.scene.gpus[1].release()
    late.scene.gpus[3].come_back()
    late.scene.gpus[2].lose()


def test_lost_gpu_is_reported_and_watched_again(working: Scene, library: Path, tmp_path: Path) -> None:
    """A lost GPU is reported and makes its window not VALID; other GPUs are judged, and the GPU is watched again."""
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
            assert off_the_bus.calls_count() - asked_count < 75 * (time.monotonic() - asked_s), "a lost GPU is rarely read"
        off_the_bus.come_back()
        to_be_reset.come_back()
        watch.until(lambda _: not any(watch.gpu(index)["lost"] for index in (1, 2)))
        with window(watch, off_the_bus, to_be_reset) as after:
            sample_for(0.3)
        kept = watch.command("audit").stdout
        assert readings_count(watch, off_the_bus, begin_ns, lost_ns) > 2, "readings from before the loss are kept"
        assert "Traceback" not in watch.live.log.read_text()
    for gpu, says in ((off_the_bus, "the GPU fell off the bus or is otherwise lost"), (to_be_reset, "the GPU must be reset")):
        assert f"LOST  {says}" in rows[gpu.index]
        assert f"the GPU was lost: {says}" in why(during[gpu.uuid])
        assert during[gpu.uuid]["status"] != "valid"
    assert all("1980/1980" in rows[index] for index in (0, 3))
    for verdict in (*before.values(), during[stays.uuid], *after.values()):
        assert answered(verdict)["stale-daemon"] == "clear"
    assert kept.count("tried") == 3


def test_process_storm_with_reused_pids_is_bounded(working: Scene, library: Path, tmp_path: Path) -> None:
    """The verdict reports a storm of processes under 200 PIDs, and the daemon's memory grows by less than 10 MiB.

    Processes change at most fifty times a second, and new ones reuse earlier PIDs.
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
                let_pass(0.02, "other processes start fifty times a second")
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
        alone = "clear" if visibility() is Visibility.HOST else "unobserved"  # a container hides other processes
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
            gpu.ripples("sm_clock_mhz", 60)  # the value changes at each refresh
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
    with watching(tmp_path, working, library) as watch:  # the next daemon ends the open windows
        pass
    stores.check_rows(watch.live.settings.state)
    runs = stores.check_runs(watch.live.settings.state)
    assert [(run.status, run.why) for run in runs] == [
        ("unproven", "the daemon ended while the window was open")
    ] * opened_count


def test_daemon_attaches_again_to_a_reloaded_driver(working: Scene, library: Path, tmp_path: Path) -> None:
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
        working.load(stale_code=VERSIONS_DIFFER)  # a second reload, too fast to be read as an unload
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
    assert answered(after[working.gpus[3].uuid])["hardware-error"] == "found", "the event came from the reloaded driver"


def test_daemon_without_a_driver_reports_its_absence(library: Path, scene: Scene, tmp_path: Path) -> None:
    """Without a driver, the daemon runs, and status, top and run report the reason."""
    scene.unload()
    with watching(tmp_path, scene, library) as watch:
        assert "the NVIDIA driver is not loaded" in watch.status()["absence"]
        ended = watch.command("top", "--once")
        assert (ended.returncode, "no GPU to watch: the NVIDIA driver is not loaded" in ended.stderr) == (1, True)
        run = watch.command("run", "--", "true")
        assert run.returncode == 0
        assert "UNPROVEN" in run.stderr
        assert "the NVIDIA driver is not loaded" in " ".join(run.stderr.split())


def fed(sent: dict[str, str]) -> bool:
    return "WATCHDOG" in sent


def test_hung_call_affects_only_its_gpu(working: Scene, library: Path, tmp_path: Path) -> None:
    """A call that never returns affects only its GPU.

    That GPU counts as lost, other GPUs are still read, windows open and close, and the watchdog is still fed.
    """
    hung, lives = working.gpus[1], working.gpus[2]
    with manager(tmp_path / "notify") as notified:
        environment = {"NOTIFY_SOCKET": notified.address, "WATCHDOG_USEC": "1000000"}
        with watching(tmp_path, working, library, environment) as watch:
            assert "4 × NVIDIA H200" in notified.until(lambda sent: "READY" in sent)["STATUS"]
            hung.hang()
            with window(watch, hung, lives) as during:
                watch.until(lambda _: watch.gpu(1)["lost"] is not None)
                _check_lost_status(notified, hung)
                rows = shown(watch)
            hung_count = hung.calls_count()
            with window(watch, hung, lives) as later:
                assert hung.calls_count() == hung_count, "a lost GPU is not read"
                sample_for(0.3)
            hung.release()
            watch.until(lambda _: watch.gpu(1)["lost"] is None)
            hung.hang("nvmlDeviceGetSamples")  # a daemon with a stuck thread can still be stopped
            let_pass(1.1, "the power record is read each second")
            watch.live.process.terminate()
            assert watch.live.process.wait(PATIENCE_S) == 0
            assert "Traceback" not in watch.live.log.read_text()
    assert "LOST  no answer for 5 s" in rows[1]
    assert all("1980/1980" in rows[index] for index in (0, 2, 3))
    for verdicts in (during, later):
        assert answered(verdicts[lives.uuid])["stale-daemon"] == "clear"
        assert "the GPU was lost: no answer for 5 s" in why(verdicts[hung.uuid])


def test_window_delayed_by_a_hung_driver_is_unproven(working: Scene, library: Path, tmp_path: Path) -> None:
    """The verdict of a window that a hung call delays names this GPU; windows on other GPUs do not wait.

    A later window does not report a loss that ended before its start.
    """
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
        let_pass(0.5, "the report of the loss lies before the window")
        with window(watch, hung) as after:
            sample_for(1.0)
    assert held_up.status == "unproven"
    assert f"a driver call that has not returned holds up the readings of {hung.uuid}" in held_up.why
    assert any(is_waited_for[1:]), "windows on other GPUs opened before the hung GPU counted as lost"
    assert "lost" not in why(after[hung.uuid]), "a loss before the window is not reported"


def _check_lost_status(notified: Manager, hung: Gpu) -> None:
    sent = notified.until(lambda sent: fed(sent) and "lost" in sent["STATUS"])
    assert sent["STATUS"].startswith("3 × NVIDIA H200")
    assert f"{hung.uuid} lost: no answer for 5 s" in sent["STATUS"]
    for _ in range(2):
        notified.until(fed)


def test_late_gpus_join_in_the_drivers_order(late: Watch) -> None:
    """GPUs that answer late join in the driver's order; the daemon checks every ten seconds, so this test runs late."""
    late.scene.gpus[1].release()
    late.scene.gpus[3].come_back()
    status = late.until(lambda status: len(status["gpus"]) == 4)
    assert [gpu["uuid"] for gpu in status["gpus"]] == [gpu.uuid for gpu in late.scene.gpus]
    assert status["unanswered"] == []


def test_window_reports_an_earlier_loss(late: Watch) -> None:
    gone, lives = late.scene.gpus[2], late.scene.gpus[0]
    gone.lose()
    late.until(lambda _: late.gpu(2)["lost"] is not None)
    work_on(lives, os.getpid())
    with window(late, gone) as verdicts:  # a process works only on another GPU
        sample_for(1.2)
    assert verdicts[gone.uuid]["status"] == "unproven"
    assert "the GPU was lost: the GPU fell off the bus" in why(verdicts[gone.uuid])
