"""Tests of process names and driver texts that are not UTF-8, which must not lose any reading."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from gpuwatch.store import Reader
from gpuwatch.view import live as looking
from tests.fake_nvml.program import work_on
from tests.fake_nvml.running import Watch, watching
from tests.fake_nvml.scene import create
from tests.gpuwatch.exporter.fleet import of
from tests.gpuwatch.exporter.test_served import LISTEN, until, url
from tests.waiting import PATIENCE_S

CUT = "entrainements_�"


def test_names_that_are_not_utf8_lose_no_reading(tmp_path: Path, library: Path) -> None:
    """Names that the kernel cut inside a letter, and driver texts in another encoding, lose no reading."""
    scene = create(tmp_path / "scene", gpus=2, name="NVIDIA H200 \udce9t\udce9", driver_version="580.\udcff")
    script = tmp_path / "entrainements_été.py"
    script.write_text("#!/bin/sh\nread line\n")
    script.chmod(0o700)
    with (
        watching(tmp_path, scene, library, {**LISTEN, "GPUWATCH_EXPORTER_PROCESSES": "4"}) as watch,
        subprocess.Popen([script], stdin=subprocess.PIPE) as stranger,
    ):
        work_on(scene.gpus[0], stranger.pid)
        work_on(scene.gpus[0], os.getpid())
        seen = until(url(watch.live), lambda page: bool(of(page, "gpuwatch_process_gpu_memory_bytes", process=CUT)))
        assert of(seen, "gpuwatch_gpus", state="answering") == 2
        assert {CUT} <= names_shown(watch)
        assert watch.command("top", "--once").returncode == 0
        run = judged(watch)
        assert "UnicodeEncodeError" not in watch.live.log.read_text()
        stranger.terminate()
    with Reader(watch.live.settings.state) as reader:
        stored = reader.run(run)
        evidence = reader.evidence(stored, scene.gpus[0].uuid)
        assert CUT in {process.name for process_list in evidence.trace.process_lists for process in process_list.processes}
        assert len(evidence.trace.column("power_w"))
        assert {(device.name, device.driver_version) for device in reader.devices()} == {("NVIDIA H200 �t�", "580.�")}


def names_shown(watch: Watch) -> set[str | None]:
    with watch.client() as client:
        shown = looking.of(client.readings()).gpus[0].process_list
    assert shown is not None
    return {process.name for process in shown.processes}


def judged(watch: Watch) -> str:
    """Return the id of a judged window over the first GPU."""
    with watch.client() as client:
        opened = client.open(label="beside", gpus=[watch.scene.gpus[0].uuid])
        client.close_window(opened.run, opened.opened_ns, opened.opened_ns)
        verdicts = client.verdicts(opened.run, wait_s=PATIENCE_S).verdicts
    assert verdicts
    return opened.run
