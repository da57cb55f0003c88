"""The simulated benchmarks of the demo: a separate daemon on simulated GPUs, and a real window around each scene's benchmark."""

import contextlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from annotate.output.report import length_words
from gpuwatch import clock
from gpuwatch.cli import output
from gpuwatch.client.connection import connect
from gpuwatch.client.window import Window, window
from gpuwatch.config import settings as config
from gpuwatch.errors import DaemonError
from gpuwatch.sources.simulated import Scene
from gpuwatch.sources.simulated.simulated_source import scenes_named

START_S = 20.0
_FOREVER_S = 1e6  # a scene of this length or longer does not repeat


def play(names: str, settings: config.Settings, folder: Path) -> list[tuple[Scene, Window]]:
    """Play the scenes in parallel in real time, one GPU each, and keep the windows in the store of the settings.

    The daemon's log is written to ``folder``.  Raises UsageError, DaemonError: for an unknown scene, and without a daemon.
    """
    scenes = scenes_named(names)
    with own_daemon(settings, folder) as facts:
        epoch_ns, uuids = int(facts["epoch_ns"]), sorted(gpu["uuid"] for gpu in facts["gpus"])
        if len(uuids) != len(scenes):
            raise DaemonError(f"expected {len(scenes)} simulated GPUs, found {len(uuids)}", "bad-answer")
        stop = threading.Event()
        with ThreadPoolExecutor(max_workers=len(scenes)) as threads:
            try:
                running = [
                    threads.submit(_measure, scene, uuid, epoch_ns, settings, stop)
                    for scene, uuid in zip(scenes, uuids, strict=True)
                ]
                windows = [each.result() for each in running]
            except BaseException:  # Ctrl-C: the threads must not play their scenes to the end
                stop.set()
                raise
        for each in windows:
            _ = each.verdicts  # while the daemon runs, and here: Ctrl-C cannot interrupt a thread
    return list(zip(scenes, windows, strict=True))


def _measure(scene: Scene, uuid: str, epoch_ns: int, settings: config.Settings, stop: threading.Event) -> Window:
    time = clock.MonotonicClock()
    begin_ns, end_ns = _bench(scene, epoch_ns, time.now_ns())
    output.say(f"  {scene.name}: {scene.says}; its window opens in {length_words(max(0, begin_ns - time.now_ns()) / 1e9)}")
    measured = window(scene.name, gpus=[uuid], sync=False, settings=settings)
    if time.wait_until(begin_ns, stop):
        return measured  # not entered: the daemon may have exited, and the window would start another
    with measured:
        stopped = time.wait_until(end_ns, stop)
    if not stopped:
        output.say(f"  {scene.name}: measured {length_words((end_ns - begin_ns) / 1e9)}, waiting for the judge")
    return measured


def _bench(scene: Scene, epoch_ns: int, now_ns: int) -> tuple[int, int]:
    """Return start and end of the scene's next benchmark in ns.  If late, a scene that does not repeat starts now."""
    begin_ns, end_ns = (epoch_ns + round(second * 1e9) for second in scene.bench)
    if now_ns <= begin_ns:
        return begin_ns, end_ns
    late_ns = now_ns - begin_ns
    if scene.length_s < _FOREVER_S:
        round_ns = round(scene.length_s * 1e9)
        late_ns = -(-late_ns // round_ns) * round_ns
    return begin_ns + late_ns, end_ns + late_ns


@contextlib.contextmanager
def own_daemon(settings: config.Settings, folder: Path) -> Iterator[dict[str, Any]]:
    """Run a separate daemon during the block, and yield the daemon's status.  Raises DaemonError: when it does not start."""
    log = folder / "daemon.log"
    with log.open("w") as errors:
        command = [sys.executable, "-P", "-m", "gpuwatch", *settings.flags(), "daemon"]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True
        )
    try:
        yield _status(process, settings, log)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _status(process: subprocess.Popen[bytes], settings: config.Settings, log: Path) -> dict[str, Any]:
    deadline_ns = clock.now_ns() + round(START_S * 1e9)
    while clock.now_ns() < deadline_ns and process.poll() is None:
        try:
            with connect(settings, start=False) as client:
                if client.welcome.pid == process.pid:  # an earlier daemon, which this one replaces, began its scene earlier
                    return client.status()
        except DaemonError as error:
            if error.code not in ("unreachable", "silent"):  # a busy machine may keep a new daemon from answering in time
                raise
        threading.Event().wait(0.05)
    words = log.read_text(errors="replace").strip().splitlines()
    why = words[-1].removeprefix("gpuwatch: ") if words else f"{log} is empty"
    raise DaemonError(f"the simulating daemon did not start: {why}", "unreachable")
