"""Tests of the samples for Slurm: a real job under Debian's Slurm is judged, and the scripts accept any variables."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from gpuwatch.client.connection import connect
from tests.gpuwatch.fleet.slurm_cluster import SCRIPTS, slurm_cluster
from tests.gpuwatch.fleet.warehouse import PAGE
from tests.gpuwatch.live import running
from tests.waiting import PATIENCE_S, sample_for, wait_until

ROOT = PAGE.parents[1]
JOB = """
import threading, sys
import gpuwatch
from gpuwatch.config.settings import load
state, socket, source = sys.argv[1:]
settings = load({"source": source, "state": state, "socket": socket})
with gpuwatch.window("inside the job", tags={"team": "vision"}, sync=False, settings=settings) as w:
    threading.Event().wait(1.0)
print(w.run_id, w.verdict.status)
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yield a folder with a short name, for sockets, that every user can enter."""
    made = Path(tempfile.mkdtemp(prefix="gw-slurm-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


# Output of `nvidia-smi -L` of driver 580: a GPU, a board with two MIG instances, and another GPU.
LISTED = """\
GPU 0: NVIDIA H200 (UUID: GPU-0000)
GPU 1: NVIDIA H200 (UUID: GPU-1111)
  MIG 3g.71gb     Device  0: (UUID: MIG-1a)
  MIG 3g.71gb     Device  1: (UUID: MIG-1b)
GPU 2: NVIDIA H200 (UUID: GPU-2222)
"""


def site(folder: Path, gpuwatch: str, listed: str = LISTED, **variables: str) -> Path:
    """Write the site's settings, with mock programs ``gpuwatch``, ``nvidia-smi`` and ``nice`` first in PATH.

    The mock ``nice`` ignores a niceness of 19; otherwise the judge would take minutes on a busy machine.
    """
    (folder / "bin").mkdir()
    nice = '[ "$1 $2" = "-n 19" ] && shift 2 && exec "$@"'
    for name, line in {"gpuwatch": gpuwatch, "nvidia-smi": f"cat {folder}/listed", "nice": nice}.items():
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{line}\n")
        (folder / "bin" / name).chmod(0o755)
    (folder / "listed").write_text(listed)
    given = {
        "GPUWATCH_SLURM_NOTES": f"{folder}/notes",
        "GPUWATCH_SLURM_VERDICTS": f"{folder}/verdicts",
        **variables,
    }
    settings = folder / "slurm.sh"
    settings.write_text(f"PATH={folder}/bin:$PATH\n" + "".join(f"{name}='{value}'\n" for name, value in given.items()))
    return settings


def test_slurm_job_is_judged_and_exported(folder: Path) -> None:
    """The file of a job on two MIG instances names user, account, windows and verdict; old files expire."""
    with running(folder, "simulated:mig") as live:
        with connect(live.settings) as client:
            (board,) = [str(each.device["uuid"]) for each in client.readings().gpus]
        found = live.settings
        settings = site(
            folder,
            f'cd {ROOT} && exec {sys.executable} -m gpuwatch {" ".join(found.flags())} "$@"',
            f"GPU 0: NVIDIA H200 (UUID: {board})\n  MIG 3g.71gb     Device  0: (UUID: MIG-1a)\n"
            "  MIG 3g.71gb     Device  1: (UUID: MIG-1b)\n",
            GPUWATCH_SLURM_SHARED=f"{folder}/shared",
            GPUWATCH_SLURM_JITTER="1ms",
        )
        (folder / "verdicts").mkdir()
        old, recent = folder / "verdicts" / "12.json", folder / "verdicts" / "13.json"
        for path, days in ((old, 40), (recent, 20)):
            path.write_text("{}")
            at_s = path.stat().st_mtime - days * 86_400
            os.utime(path, (at_s, at_s))
        with slurm_cluster(folder / "slurm", gpus_count=2, settings=settings) as cluster:
            job = [sys.executable, "-c", JOB, str(found.state), str(found.socket), found.source]
            ended = cluster.run("srun", "--gres=gpu:2", "--account=physics", "--job-name=tuned", f"--chdir={ROOT}", *job)
            assert ended.returncode == 0, ended.stderr + cluster.logs()
            run_id, status = ended.stdout.split()
            (written,) = wait_until(
                lambda: [each for each in (folder / "verdicts").glob("*.json") if each not in (old, recent)],
                what=cluster.logs,
            )
            wait_until(lambda: not old.exists(), what="the file of 40 days ago expired")
            parts = wait_until(lambda: list((folder / "shared").rglob("part-*.parquet")), what="windows are exported")
            mark = wait_until((found.state / "last-export").exists, what="the time of the export is stored for the daemon")
            states = cluster.run("sinfo", "-h", "-o", "%T").stdout.strip()
    assert (states, mark) == ("idle", True)
    data: dict[str, Any] = json.loads(written.read_text())
    words = written.with_suffix(".log")
    assert not words.exists(), words.read_text()
    assert {name: data[name] for name in ("job", "user", "account", "gpus", "cluster", "exit_code")} == {
        "job": written.stem, "user": "root", "account": "physics", "gpus": "0,1", "cluster": "testbed", "exit_code": "0:0",
    }  # fmt: skip
    assert data["begun_wall_s"] == data["judged_from_wall_s"] < data["ended_wall_s"]
    (inside,) = data["windows"]["runs"]
    assert (inside["run"], inside["status"], inside["label"]) == (run_id, status, "inside the job")
    assert {"team": "vision", "job": written.stem, "user": "root", "account": "physics", "job_name": "tuned"}.items() <= inside[
        "tags"
    ].items()
    (judged,) = data["interval"]["verdicts"]
    assert judged["device"]["uuid"] == board
    assert written.stat().st_mode & 0o777 == 0o440
    assert recent.exists()
    (row,) = [row for part in parts for row in pq.ParquetFile(part).read().to_pylist(maps_as_pydicts="strict")]
    assert row["tags"]["account"] == "physics"


def script(name: str, settings: Path, **variables: str) -> None:
    """Run a script as slurmd does, without PATH and with a kill of the process group after its exit; expect 0 and no output."""
    environment = {"GPUWATCH_SLURM_SETTINGS": str(settings), "SLURM_JOB_ID": "4711", "SLURM_JOB_GPUS": "0", **variables}
    with (settings.parent / "said").open("w+") as said:
        process = subprocess.Popen([SCRIPTS / name], env=environment, stdout=said, stderr=said, start_new_session=True)
        code = process.wait(PATIENCE_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        said.seek(0)
        assert (code, said.read()) == (0, "")
    (settings.parent / "said").unlink()


@pytest.mark.parametrize(
    ("variables", "gpus"),
    [
        ({"SLURM_JOB_GPUS": "0"}, {"GPU-0000"}),
        ({"SLURM_JOB_GPUS": "0,2-3", "CUDA_VISIBLE_DEVICES": "0,2,3"}, {"GPU-0000", "GPU-1111", "GPU-2222"}),
        ({"SLURM_JOB_GPUS": "2"}, {"GPU-1111"}),  # the second instance of the board
        ({"SLURM_JOB_GPUS": "7", "CUDA_VISIBLE_DEVICES": "MIG-1a,GPU-2222"}, {"GPU-1111", "GPU-2222"}),
        ({"SLURM_JOB_GPUS": "$(touch x),1;2,0"}, {"GPU-0000"}),
    ],
)
def test_epilog_passes_the_gpus_of_a_job(folder: Path, variables: dict[str, str], gpus: set[str]) -> None:
    settings = site(folder, f'echo "$@" >>{folder}/asked; echo "{{}}"')
    script("prolog.sh", settings, **variables)
    script("epilog.sh", settings, **variables)
    wait_until((folder / "verdicts" / "4711.json").exists, what="the job's file")
    interval, windows = (folder / "asked").read_text().splitlines()
    words = interval.split()
    assert {words[number + 1] for number, word in enumerate(words) if word == "--gpu"} == gpus
    assert "--tag slurm_job=4711" in windows
    assert not list((folder / "notes").glob("4711"))


def test_epilog_does_not_wait_for_the_judge(folder: Path) -> None:
    settings = site(folder, f"while [ ! -e {folder}/answer ]; do sleep 0.05; done; echo '{{}}'")
    script("prolog.sh", settings)
    script("epilog.sh", settings)
    assert not (folder / "verdicts" / "4711.json").exists()
    (folder / "answer").touch()
    wait_until((folder / "verdicts" / "4711.json").exists, what="the job's file")


def test_long_job_is_judged_by_its_last_hour(folder: Path) -> None:
    settings = site(folder, f'echo "$@" >>{folder}/asked; echo "{{}}"')
    (folder / "notes").mkdir()
    (folder / "notes" / "4711").write_text("1790000000\n")
    script("epilog.sh", settings, SLURM_JOB_RESTART_COUNT="2")
    wait_until((written := folder / "verdicts" / "4711-2.json").exists, what="the job's file")
    data = json.loads(written.read_text())
    assert data["judged_from_wall_s"] == data["ended_wall_s"] - 3600
    interval, windows = (folder / "asked").read_text().splitlines()
    assert f"--from @{data['judged_from_wall_s']} " in interval
    assert "--since @1790000000 " in windows


def test_epilog_survives_a_failing_gpuwatch(folder: Path) -> None:
    """A failing gpuwatch's message is in the job's log file, and special characters in names stay valid JSON."""
    settings = site(folder, "echo broken >&2; exit 1")
    script("prolog.sh", settings)
    script("epilog.sh", settings, SLURM_JOB_ACCOUNT='a "quoted" \\ name\nof two lines')
    data = json.loads(wait_until(lambda: _text(folder / "verdicts" / "4711.json"), what="the job's file"))
    assert (data["interval"], data["windows"], data["account"]) == (None, None, 'a "quoted" \\ nameof two lines')
    assert wait_until(lambda: _text(folder / "verdicts" / "4711.log"), what="the job's log") == "broken\nbroken\n"


@pytest.mark.parametrize("wrong", [{"SLURM_JOB_ID": "../x"}, {"SLURM_JOB_ID": ""}, {"SLURM_JOB_GPUS": ""}])
def test_slurm_scripts_ignore_jobs_without_gpus(wrong: dict[str, str], folder: Path) -> None:
    """Jobs without GPUs or with an invalid id leave no files."""
    settings = site(folder, "exit 1")
    script("prolog.sh", settings, **wrong)
    script("epilog.sh", settings, **wrong)
    sample_for(0.1)
    assert {path.name for path in folder.iterdir()} == {"bin", "listed", "slurm.sh"}


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""
