"""Tests of the page with a mock driver: scrapes wait for no driver call, and the page survives a reload of the driver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch import clock
from tests.fake_nvml.conftest import library
from tests.fake_nvml.running import Watch, watching
from tests.fake_nvml.scene import create
from tests.gpuwatch.exporter.fleet import Series, names, of, series
from tests.gpuwatch.exporter.test_served import LISTEN, read, until, url
from tests.waiting import let_pass, wait_until

__all__ = ["library"]

SCRAPES_COUNT = 20


@pytest.fixture(scope="module")
def watch(tmp_path_factory: pytest.TempPathFactory, library: Path) -> Iterator[Watch]:
    folder: Path = tmp_path_factory.mktemp("page")
    scene = create(folder / "scene")
    for gpu in scene.gpus:
        gpu.moves("energy_mj", 1e5)
        gpu.partition(*["1g.18gb"] * 7)
    with watching(folder, scene, library, LISTEN) as found:
        yield found


def held(watch: Watch) -> int:
    """Return the number of driver calls if it is constant, else 0."""
    count = watch.scene.calls_count()
    let_pass(1.2, "the slower thread of a sampler makes a call each second")
    return count if watch.scene.calls_count() == count else 0


def test_page_shows_each_of_56_mig_instances(watch: Watch) -> None:
    """The first scrape starts the reading of the MIG instances; a later page shows all 56."""
    page = until(url(watch.live), lambda page: len(mig_uuids(page)) == 56)
    board = watch.scene.gpus[2].uuid
    instance = "MIG-00000002-0000-0000-0000-000000000003"
    assert of(page, "gpuwatch_mig_info", uuid=board, mig=instance, profile="1g.18gb", gpu_instance="10") == 1
    assert of(page, "gpuwatch_mig_memory_size_bytes", mig=instance) == 18 << 30
    assert of(page, "gpuwatch_mig_processes", mig=instance) == 0
    assert of(page, "gpuwatch_gpu_nvlink_links", uuid=board, state="active") == 18
    assert of(page, "gpuwatch_gpu_nvlink_errors_total", uuid=board, kind="replay") == 0
    assert of(page, "gpuwatch_gpu_row_remaps_total", uuid=board, kind="uncorrectable") == 0
    assert of(page, "gpuwatch_gpu_performance_state", uuid=board) == 0


def mig_uuids(page: Series) -> set[str]:
    return {dict(labels)["mig"] for name, labels in page if name == "gpuwatch_mig_info"}


def test_scrapes_do_not_wait_for_hanging_driver_calls(watch: Watch) -> None:
    address = url(watch.live)
    with watch.scene.hanging():
        before_count = wait_until(lambda: held(watch), what="the samplers' threads hang in driver calls")
        for _ in range(SCRAPES_COUNT):
            page = read(address)
        assert watch.scene.calls_count() - before_count < SCRAPES_COUNT  # the periodic search for GPUs may make some calls
    # On a very busy machine the GPUs can be lost after five seconds.
    found = series(page)
    assert sum(of(found, "gpuwatch_gpus", state=state) or 0 for state in ("answering", "lost")) == 8
    assert of(found, "gpuwatch_simulated") == 0
    assert of(found, "gpuwatch_source_info", source="nvml") == 1


def test_page_survives_unloading_of_the_driver(watch: Watch) -> None:
    """Without the driver the page has no readings; after a reload the counters are the driver's."""
    address, energy, uuid = url(watch.live), "gpuwatch_gpu_energy_joules_total", watch.scene.gpus[0].uuid
    watch.scene.gpus[0].set(energy_mj=10**12)
    line = rf'{energy}{{[^}}]*uuid="{uuid}"[^}}]*}}'
    until(address, lambda page: (of(page, energy, uuid=uuid) or 0) >= 1e9, having=rf"{line} \S+e\+")
    watch.scene.unload()
    gone = until(address, lambda page: of(page, "gpuwatch_up") == 0, having=r"\ngpuwatch_up 0")
    assert names(gone, uuid=uuid) >= {"gpuwatch_device_info", "gpuwatch_gpu_up", "gpuwatch_reading_age_seconds"}
    assert not names(gone, uuid=uuid) & {"gpuwatch_gpu_clock_hertz", "gpuwatch_gpu_power_watts", energy}
    assert read(address.replace("/metrics", "/-/healthy")) == "healthy\n"
    assert read(address.replace("/metrics", "/-/ready")) == "ready\n"
    watch.scene.gpus[0].set(energy_mj=5000)  # a reloaded driver's counts
    watch.scene.load()
    back = until(address, lambda page: (of(page, energy, uuid=uuid) or 1e9) < 1e9, having=rf"{line} \d\.")
    assert of(back, energy, uuid=uuid) == 5


def test_page_has_an_xid_of_an_earlier_daemon(tmp_path: Path, watch: Watch) -> None:
    """The next daemon's page has the time of an earlier daemon's Xid with a count of 0, and the wall time."""
    scene = create(tmp_path / "scene", gpus=1)
    uuid, last = scene.gpus[0].uuid, "gpuwatch_gpu_xid_last_timestamp_seconds"
    with watching(tmp_path, scene, watch.library, LISTEN) as first:
        scene.gpus[0].xid(79)
        begun = until(url(first.live), lambda page: of(page, last, uuid=uuid, xid="79") is not None)
    with watching(tmp_path, scene, watch.library, LISTEN) as second:
        page = until(url(second.live), lambda page: of(page, last, uuid=uuid, xid="79") is not None)
    assert of(page, last, uuid=uuid, xid="79") == pytest.approx(of(begun, last, uuid=uuid, xid="79"), abs=1.0)
    assert of(page, "gpuwatch_gpu_xid_errors_total", uuid=uuid, xid="79") == 0
    assert of(page, last, uuid=uuid, xid="31") is None
    assert of(page, "gpuwatch_certificate_expiry_timestamp_seconds") is None
    assert of(page, "gpuwatch_wall_timestamp_seconds") == pytest.approx(clock.wall_s(), abs=60)
