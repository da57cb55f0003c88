"""Tests of doctor with drivers that are missing, too old, forbidden, hung or lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.fake_nvml.build import LIBRARY, older
from tests.fake_nvml.doctors import Report, doctors
from tests.fake_nvml.layout import FUNCTIONS
from tests.fake_nvml.scene import DRIVER_NOT_LOADED, FUNCTION_NOT_FOUND, NO_PERMISSION, VERSIONS_DIFFER, Scene, create

MISSING = "no NVIDIA driver found: libnvidia-ml.so.1 was not found, or is not a library: install the NVIDIA driver"
FORBIDDEN = "no permission to use the GPU: give this user read and write access to /dev/nvidiactl and /dev/nvidia*"
TOO_OLD = "libnvidia-ml.so.1 is older than this program needs; install a newer NVIDIA driver"

# The driver's return codes for an attaching process, and doctor's texts.
REFUSED = {
    NO_PERMISSION: FORBIDDEN,
    VERSIONS_DIFFER: "library and kernel module differ in version (upgraded under a running system?): reload the module",
    DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded: load the kernel module (modprobe nvidia)",
    FUNCTION_NOT_FOUND: TOO_OLD,
}

# Functions of later drivers, and the remaining signals of a GPU without these functions.
LATER: Mapping[str, tuple[Callable[[str], bool], str]] = {
    "performance-monitor": (lambda name: "Gpm" in name, "33 of 37 signals answered; not sm_activity_ratio"),
    "versioned-temperature": (lambda name: name == "nvmlDeviceGetTemperatureV", "37 of 37"),
    "event-reasons": (lambda name: "EventReasons" in name, "37 of 37"),
    "fields": (lambda name: name == "nvmlDeviceGetFieldValues", "33 of 37 signals answered; not power_w, hw_thermal_ns"),
    "power-record": (lambda name: name == "nvmlDeviceGetSamples", "37 of 37"),
    "events": (lambda name: name.startswith("nvmlEventSet"), "37 of 37"),
    "process-lists": (lambda name: "RunningProcesses_v3" in name, "37 of 37"),
    "second-memory": (lambda name: name == "nvmlDeviceGetMemoryInfo_v2", "37 of 37"),
    "mig": (lambda name: "Mig" in name or "InstanceId" in name, "36 of 37 signals answered; not mig_mode"),
}


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory, library: Path) -> dict[str, Report]:
    """Return doctor's output for every machine, by name."""
    folder = tmp_path_factory.mktemp("doctors")
    cases: dict[str, tuple[Scene, Path]] = {}

    def case(name: str, gpus: int = 1, shown: Path = library) -> Scene:
        scene = create(folder / f"{name}-scene", gpus=gpus)
        cases[name] = (scene, shown)
        return scene

    for code in REFUSED:
        case(f"refused-{code}").fail("driver", code)
    for name, content in (("missing", None), ("broken", b"no library")):
        (folder / f"{name}-library").mkdir()
        if content is not None:
            (folder / f"{name}-library" / LIBRARY).write_bytes(content)
        case(name, shown=folder / f"{name}-library")
    for name, (lacks, _) in LATER.items():
        case(name, shown=older(library, folder / f"{name}-library", filter(lacks, FUNCTIONS)))
    case("ancient", shown=older(library, folder / "ancient-library", ["nvmlDeviceGetCount_v2"]))
    case("without-gpus", gpus=0)
    half = case("half", gpus=4)
    half.gpus[1].hang()
    half.gpus[2].fail("nvmlDeviceGetHandleByIndex_v2", NO_PERMISSION)
    half.gpus[3].lose()
    case("none", gpus=2).fail("nvmlDeviceGetHandleByIndex_v2", NO_PERMISSION)
    found = doctors(folder, cases)
    assert not [name for name, report in found.items() if "Traceback" in report.text]
    return found


@pytest.mark.parametrize("code", REFUSED)
def test_refusing_driver_is_reported_with_the_remedy(reports: dict[str, Report], code: int) -> None:
    report = reports[f"refused-{code}"]
    assert (report.code, REFUSED[code] in report.text) == (1, True), report.text


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("missing", MISSING),
        ("broken", MISSING),
        ("ancient", TOO_OLD),
        ("without-gpus", "the driver is loaded but lists no GPU: run nvidia-smi"),
        ("none", f"the driver lists GPUs, but none of them answers: GPU 0: {FORBIDDEN}; GPU 1: {FORBIDDEN}"),
    ],
)
def test_missing_driver_or_gpu_is_one_failed_check(reports: dict[str, Report], name: str, says: str) -> None:
    assert reports[name].code == 1
    (line,) = [line for line in reports[name].text.splitlines() if line.startswith("FAIL")]
    assert line.startswith("FAIL  driver  ")
    assert says in line


@pytest.mark.parametrize("lacking", LATER)
def test_older_library_gives_its_remaining_signals(reports: dict[str, Report], lacking: str) -> None:
    assert reports[lacking].code == 0
    assert f"NVIDIA H200: {LATER[lacking][1]}" in reports[lacking].text


def test_missing_process_list_is_reported(reports: dict[str, Report]) -> None:
    """Only a library without the current process lists gets the remark that the driver does not list processes."""
    vague = [name for name in LATER if "the driver does not list its processes" in reports[name].text]
    assert vague == ["process-lists"]


@pytest.mark.parametrize(
    ("index", "says"), [(1, "no answer for 3 s"), (2, FORBIDDEN), (3, "the GPU fell off the bus or is otherwise lost")]
)
def test_failing_gpu_is_reported_with_its_reason(reports: dict[str, Report], index: int, says: str) -> None:
    assert reports["half"].code == 1
    assert f"FAIL  GPU {index:<20} listed, but not answering: {says}" in reports["half"].text
    assert "PASS  GPU-00000000             NVIDIA H200: 37 of 37 signals answered" in reports["half"].text
