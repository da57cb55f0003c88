"""A real Slurm cluster of one node, with Debian's daemons, mock GPUs, and the sample prolog and epilog."""

from __future__ import annotations

import contextlib
import os
import platform
import secrets
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.gpuwatch.fleet.servers import free_port
from tests.gpuwatch.fleet.warehouse import PAGE
from tests.gpuwatch.programs import program
from tests.waiting import PATIENCE_S, wait_until

SCRIPTS = PAGE.parents[1] / "dashboards" / "slurm"
# CI containers may lack cgroups, so Slurm tracks processes by process group.
_CONFIGURATION = """\
ClusterName=testbed
SlurmctldHost={node}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SchedulerType=sched/builtin
GresTypes=gpu
ReturnToService=2
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
Prolog={folder}/prolog.sh
Epilog={folder}/epilog.sh
PrologFlags=Alloc
NodeName={node} NodeAddr=127.0.0.1 CPUs=1 Gres=gpu:{gpus_count} State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@dataclass(frozen=True, slots=True)
class SlurmCluster:
    """A running cluster of one node."""

    environment: Mapping[str, str]
    folder: Path

    def run(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [program(str(arguments[0])), *arguments[1:]]
        return subprocess.run(
            command, env=self.environment, cwd=self.folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )

    def logs(self) -> str:
        return "\n".join(f"== {path.name}\n{path.read_text()[-2000:]}" for path in sorted(self.folder.glob("*.log")))


@contextlib.contextmanager
def slurm_cluster(folder: Path, *, gpus_count: int, settings: Path) -> Iterator[SlurmCluster]:
    """Run a cluster whose prolog and epilog read ``settings``; the GPUs are links to ``/dev/null``.

    Without root, skip the test, or fail the test in CI.
    """
    programs = [program(name) for name in ("munged", "slurmctld", "slurmd")]
    if os.getuid() != 0:
        why = "expected to run as root, found another user: slurmd runs prologs and epilogs as root"
        pytest.fail(why) if os.environ.get("CI", "").lower() in ("1", "true") else pytest.skip(why)
    folder.mkdir(mode=0o755)
    node = platform.node().partition(".")[0]
    for name in ("state", "spool", "munge"):
        (folder / name).mkdir(mode=0o700)
    ports = {"controller_port": free_port(), "node_port": free_port()}
    (folder / "slurm.conf").write_text(_CONFIGURATION.format(node=node, folder=folder, gpus_count=gpus_count, **ports))
    (folder / "gres.conf").write_text(f"NodeName={node} Name=gpu File={folder}/gpu[0-{gpus_count - 1}]\n")
    for index in range(gpus_count):
        (folder / f"gpu{index}").symlink_to("/dev/null")
    for name in ("prolog.sh", "epilog.sh"):  # slurmd does not pass its environment to the scripts
        (folder / name).write_text(f'#!/bin/sh\nexport GPUWATCH_SLURM_SETTINGS={settings}\nexec {SCRIPTS / name} "$@"\n')
        (folder / name).chmod(0o755)
    key = folder / "munge" / "key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o600)
    files = {name: f"--{name}-file={folder}/munge/{name}" for name in ("key", "pid", "log", "seed")}
    commands: list[Sequence[str]] = [
        [programs[0], "--foreground", "--force", f"--socket={folder}/munge.socket", *files.values()],
        *([each, "-D", "-f", f"{folder}/slurm.conf"] for each in programs[1:]),
    ]
    environment = {**os.environ, "SLURM_CONF": f"{folder}/slurm.conf"}
    with contextlib.ExitStack() as stack:
        cluster = SlurmCluster(environment, folder)
        for command in commands:
            log = stack.enter_context((folder / f"{Path(command[0]).name}.log").open("wb"))
            process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=folder)
            stack.callback(_end, process)
            if command is commands[0]:
                wait_until((folder / "munge.socket").exists, what=cluster.logs)
        wait_until(lambda: cluster.run("sinfo", "-h", "-o", "%T").stdout.strip() == "idle", what=cluster.logs, every_s=0.1)
        yield cluster


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:  # slurmd waits for its remaining jobs
        process.kill()
        process.wait(PATIENCE_S)
