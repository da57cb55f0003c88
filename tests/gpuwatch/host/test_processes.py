"""Tests of facts about processes and the machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from annotate.evidence import Host, Visibility
from gpuwatch import clock
from gpuwatch.host import cpu_pressure, processes
from gpuwatch.host.cpu_pressure import Pressure
from gpuwatch.host.gpu_sharing import sharing
from gpuwatch.host.processes import Identities, Identity
from tests.waiting import wait_until

PID = 4242


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def link(path: Path, target: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


def test_only_the_initial_pid_namespace_is_the_host(tmp_path: Path) -> None:
    link(tmp_path / "host/self/ns/pid", "pid:[4026531836]")
    link(tmp_path / "inside/self/ns/pid", "pid:[4026532999]")
    assert processes.visibility(proc=tmp_path / "host") == Visibility.HOST
    assert processes.visibility(proc=tmp_path / "inside") == Visibility.NAMESPACE


def test_kernel_thread_shows_an_unreadable_host_namespace(tmp_path: Path) -> None:
    """With an unreadable namespace, a kernel thread reveals the host's; without a kernel thread, visibility is unknown."""
    assert processes.visibility(proc=tmp_path) == Visibility.UNKNOWN
    write(tmp_path / "2/comm", "kthreadd\n")
    assert processes.visibility(proc=tmp_path) == Visibility.HOST


@pytest.mark.parametrize(
    ("files", "environ", "kind"),
    [
        ({".dockerenv": ""}, {}, "docker"),
        ({"run/.containerenv": ""}, {}, "podman"),
        ({"run/systemd/container": "systemd-nspawn\n"}, {}, "systemd-nspawn"),
        ({"proc/self/cgroup": "0::/kubepods.slice/kubepods-pod1/x\n"}, {}, "kubernetes"),
        ({"proc/self/cgroup": "12:cpu:/docker/0123\n"}, {}, "docker"),
        ({"proc/sys/kernel/osrelease": "5.15.0-microsoft-standard-WSL2"}, {}, "wsl"),
        ({}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        ({}, {"APPTAINER_NAME": "x.sif"}, "apptainer"),
        ({"proc/self/cgroup": "0::/user.slice/session-1.scope\n"}, {}, None),
    ],
)
def test_container_is_recognised_by_its_files_and_variables(
    tmp_path: Path, files: dict[str, str], environ: dict[str, str], kind: str | None
) -> None:
    for name, text in files.items():
        write(tmp_path / name, text)
    assert processes.container(root=tmp_path, environ=environ) == kind


def test_machine_facts_include_boot_and_kernel(tmp_path: Path) -> None:
    write(tmp_path / "sys/kernel/random/boot_id", "abc-def\n")
    facts = processes.facts(proc=tmp_path, root=tmp_path)
    assert facts.boot_id == "abc-def"
    assert facts.kernel
    assert processes.facts(proc=tmp_path / "nothing", root=tmp_path).boot_id is None


def test_tree_holds_the_children_of_all_threads(tmp_path: Path) -> None:
    write(tmp_path / "1/task/1/children", "2 3 ")
    write(tmp_path / "1/task/9/children", "4")
    write(tmp_path / "3/task/3/children", "5\n")
    for leaf in ("2", "4", "5"):
        write(tmp_path / leaf / "task" / leaf / "children", "")
    assert processes.descendants(1, proc=tmp_path) == {1, 2, 3, 4, 5}
    assert processes.descendants(3, proc=tmp_path) == {3, 5}
    assert processes.descendants(77, proc=tmp_path) == frozenset()


def test_real_tree_holds_a_child_and_a_grandchild() -> None:
    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'], stdin=sys.stdin)"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        try:
            wait_until(lambda: len(processes.descendants(child.pid)) == 2, what="the child has a child")
            tree = processes.descendants(child.pid)
            assert child.pid in tree
            assert len(tree) == 2
            assert tree < processes.descendants(os.getpid())
            assert all(processes.descends(pid, os.getpid()) for pid in tree)
            assert not processes.descends(os.getpid(), child.pid)
        finally:
            child.communicate(b"\n")
    assert processes.descendants(child.pid) == frozenset()


def test_parent_is_read_behind_an_odd_process_name(tmp_path: Path) -> None:
    write(tmp_path / "10/stat", "10 (a) b) (c) S 1 10 10")
    write(tmp_path / "11/stat", "11 (child) S 10 11 11")
    write(tmp_path / "1/stat", "1 (init) S 0 1 1")
    assert processes.descends(11, 10, proc=tmp_path)
    assert processes.descends(11, 1, proc=tmp_path)
    assert not processes.descends(10, 11, proc=tmp_path)
    assert not processes.descends(999, 1, proc=tmp_path)


def test_identity_of_this_process_is_complete() -> None:
    identity = Identities().of(os.getpid())
    assert identity.name
    assert identity.user
    assert identity.started_s is not None
    assert abs(identity.started_s - clock.wall_s()) < 3600 * 24


def test_identity_cuts_short_a_long_name(tmp_path: Path) -> None:
    """A long name is truncated: psutil prefers a first argument that begins with the kernel's 15 characters."""
    program = shutil.copy("/bin/sleep", tmp_path / ("x" * 40))
    with subprocess.Popen(["x" * 100_000, "60"], executable=program) as process:
        try:
            # The kernel shows the name a moment before the arguments.
            name = wait_until(lambda: found if len(found := Identities().of(process.pid).name or "") > 15 else "")
        finally:
            process.kill()
    assert len(name) <= 256


@pytest.mark.parametrize("script", ["entrainements_été.py", "été.py"])
def test_identity_of_a_name_cut_within_a_letter_is_utf8(tmp_path: Path, script: str) -> None:
    """A name cut inside a letter, after the kernel's 15 bytes, becomes valid UTF-8; a shorter name stays unchanged."""
    program = tmp_path / script
    program.write_text("#!/bin/sh\necho there\nread line\n")
    program.chmod(0o700)
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"there\n"
        name = Identities().of(process.pid).name
        process.kill()
    assert name is not None
    assert name == ("entrainements_�" if len(script) > 15 else script)


def test_identity_survives_running_out_of_descriptors() -> None:
    """Without a free descriptor an identity is empty, and no error is raised."""
    program = """
import os, resource
from gpuwatch.host.processes import Identities, Identity
identities = Identities()
identities.of(os.getppid())
resource.setrlimit(resource.RLIMIT_NOFILE, (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
assert identities.of(os.getpid()) == Identity()
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_unused_pid_has_an_empty_identity() -> None:
    assert Identities().of(2**22 + 12345) == Identity()


def test_identity_is_read_again_when_old() -> None:
    """An identity is read once, read again when old, and remembered after the process's end."""
    asked: list[int] = []
    answers = [Identity(name="python", user="me", started_s=1.0), Identity()]
    now = [0]

    def identify(pid: int) -> Identity:
        asked.append(pid)
        return answers[len(asked) - 1]

    identities = Identities(identify, now_ns=lambda: now[0])
    assert identities.of(PID).name == identities.of(PID).name == "python"
    assert asked == [PID]
    now[0] = 60_000_000_000
    assert identities.of(PID).name == "python"
    assert asked == [PID, PID]


def machine(tmp_path: Path, *, v2: bool = True) -> tuple[Path, Path]:
    proc, cgroups = tmp_path / "proc", tmp_path / "cgroup"
    write(proc / f"{PID}/task/{PID}/schedstat", "1000000000 200000000 55\n")
    write(proc / f"{PID}/task/4243/schedstat", "500000000 100000000 5\n")
    write(proc / f"{PID}/status", "Name:\tpython\nCpus_allowed_list:\t0-3,8,10-11\n")
    write(proc / "stat", "cpu  100 0 50 800 40 0 5 5 0 0\ncpu0 1 1 1 1\n")
    write(proc / "pressure/cpu", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1000000\nfull avg10=0.00 total=0\n")
    if v2:
        write(proc / f"{PID}/cgroup", "0::/user.slice/job\n")
        write(cgroups / "user.slice/job/cpu.stat", "usage_usec 5\nnr_throttled 1\nthrottled_usec 250000\n")
    else:
        write(proc / f"{PID}/cgroup", "12:memory:/m\n5:cpu,cpuacct:/job\n")
        write(cgroups / "cpu,cpuacct/job/cpu.stat", "nr_periods 5\nnr_throttled 1\nthrottled_time 250000000\n")
    return proc, cgroups


@pytest.mark.parametrize("v2", [True, False])
def test_pressure_is_read_from_cgroup_v1_and_v2(tmp_path: Path, v2: bool) -> None:
    proc, cgroups = machine(tmp_path, v2=v2)
    found = cpu_pressure.pressure([PID], proc=proc, sys=tmp_path / "none", cgroups=cgroups)
    assert replace(found, at_ns=7, wall_offset_ns=3, watcher_cpu_s=2.0) == Pressure(
        at_ns=7, threads={PID: (10**9, 2 * 10**8), 4243: (5 * 10**8, 10**8)}, owners={PID: PID, 4243: PID},
        cgroup_throttled_ns=250_000_000,
        ticks={"user": 100, "nice": 0, "system": 50, "idle": 800, "iowait": 40, "irq": 0, "softirq": 5, "steal": 5},
        psi_some_ns=10**9, cpu_allowed_count=7, wall_offset_ns=3, watcher_cpu_s=2.0,
    )  # fmt: skip


def test_pressure_difference_covers_every_counter() -> None:
    before = Pressure(
        at_ns=0, threads={1: (10, 5), 2: (100, 100)}, cgroup_throttled_ns=0,
        ticks={"user": 0, "idle": 0, "iowait": 0, "steal": 0}, psi_some_ns=0,
    )  # fmt: skip
    after = Pressure(
        at_ns=2_000_000_000, threads={1: (1_000_000_010, 500_000_005), 3: (500_000_000, 0)}, cgroup_throttled_ns=300_000_000,
        ticks={"user": 60, "idle": 30, "iowait": 0, "steal": 10}, psi_some_ns=500_000_000, cpu_allowed_count=4,
    )  # fmt: skip
    found = cpu_pressure.difference(before, after, Host(boot_id="boot", kernel="6"))
    assert found == Host(
        boot_id="boot", kernel="6", cpu_allowed_count=4, span_s=2.0, cpu_s=1.5, run_wait_s=0.5, threads_count=2,
        cgroup_throttled_s=0.3, steal_ratio=0.1, cpu_busy_ratio=0.7, cpu_pressure_ratio=0.25,
    )  # fmt: skip


def test_pressure_without_proc_files_is_unobserved(tmp_path: Path) -> None:
    read = cpu_pressure.pressure([PID], proc=tmp_path, sys=tmp_path, cgroups=tmp_path)
    empty, later = (replace(read, at_ns=at_ns) for at_ns in (0, 10**9))
    assert cpu_pressure.difference(empty, later) == Host(span_s=1.0, wall_step_s=0.0, watcher_cpu_s=0.0)


def test_real_pressure_shows_a_busy_process() -> None:
    before = cpu_pressure.pressure([os.getpid()])
    begin_ns = clock.thread_cpu_ns()
    while clock.thread_cpu_ns() - begin_ns < 50_000_000:
        pass
    found = cpu_pressure.difference(before, cpu_pressure.pressure([os.getpid()]))
    assert found.span_s is not None
    assert found.span_s > 0
    assert found.cpu_allowed_count is not None
    assert found.cpu_allowed_count >= 1
    assert found.watcher_cpu_s is not None
    assert found.watcher_cpu_s >= 0.02
    if found.cpu_s:  # schedstat holds zeros in some sandboxes
        assert found.cpu_s >= 0.02
    assert found.cpu_busy_ratio is None or 0 <= found.cpu_busy_ratio <= 1


def test_numa_node_is_read_in_the_kernels_spelling(tmp_path: Path) -> None:
    write(tmp_path / "bus/pci/devices/0000:0a:00.0/numa_node", "1\n")
    write(tmp_path / "bus/pci/devices/0000:0b:00.0/numa_node", "-1\n")
    assert processes.numa_node("00000000:0A:00.0", sys=tmp_path) == 1
    assert processes.numa_node("00000000:0B:00.0", sys=tmp_path) is None
    assert processes.numa_node("00000000:0C:00.0", sys=tmp_path) is None
    assert processes.numa_node(None, sys=tmp_path) is None


def test_numa_nodes_of_allowed_cpus_are_listed(tmp_path: Path) -> None:
    """The memory nodes of a process's allowed CPUs are listed; without nodes in /sys the value is None."""
    proc, sys = tmp_path / "proc", tmp_path / "sys"
    for node, processors in ((0, "0-15,32-47"), (1, "16-31,48-63"), (2, "")):
        write(sys / f"devices/system/node/node{node}/cpulist", processors + "\n")

    def nodes(allowed: str) -> str | None:
        write(proc / f"{PID}/status", f"Name:\tpython\nCpus_allowed_list:\t{allowed}\n")
        return cpu_pressure.pressure([PID], proc=proc, sys=sys, cgroups=tmp_path).numa_nodes

    assert (nodes("0-3"), nodes("20,50"), nodes("3,16-18")) == ("0", "1", "0,1")
    assert cpu_pressure.pressure([PID], proc=proc, sys=tmp_path / "none", cgroups=tmp_path).numa_nodes is None


def test_wall_clock_step_has_its_sign() -> None:
    """A change of the wall clock is reported with its sign, and is None without an offset."""
    before, after = Pressure(at_ns=0, wall_offset_ns=10**18), Pressure(at_ns=10**9, wall_offset_ns=10**18 - 40_000_000)
    assert cpu_pressure.difference(before, after).wall_step_s == -0.04
    assert cpu_pressure.difference(before, Pressure(at_ns=10**9)).wall_step_s is None


def test_real_wall_clock_keeps_pace_with_the_monotonic_one() -> None:
    """Two readings in a row give a wall clock step below 5 ms."""
    step_s = cpu_pressure.difference(cpu_pressure.pressure([]), cpu_pressure.pressure([])).wall_step_s
    assert step_s is not None
    assert abs(step_s) < 0.005


class TestSharing:
    @staticmethod
    def process(tmp_path: Path, *environ: str, pipe: str | None = None, root: bool = True) -> Path:
        write(tmp_path / f"{PID}/environ", "\0".join(environ) + "\0")
        if root:
            (tmp_path / f"{PID}/root").mkdir()
        if pipe:
            write(tmp_path / f"{PID}/root{pipe}/control", "")
        return tmp_path

    def test_process_without_sharing_has_an_empty_result(self, tmp_path: Path) -> None:
        assert sharing(PID, proc=self.process(tmp_path, "HOME=/root", "EMPTY=")) == ""

    def test_sharing_of_a_hidden_process_is_unknown(self, tmp_path: Path) -> None:
        assert sharing(PID, proc=tmp_path) is None

    @pytest.mark.parametrize(
        ("environ", "pipe"), [((), "/tmp/nvidia-mps"), (("CUDA_MPS_PIPE_DIRECTORY=/mps/pipe",), "/mps/pipe")]
    )
    def test_control_pipe_in_cudas_directory_is_mps(self, tmp_path: Path, environ: tuple[str, ...], pipe: str) -> None:
        assert sharing(PID, proc=self.process(tmp_path, *environ, pipe=pipe)) == "MPS"

    def test_pipe_directory_without_a_control_pipe_is_not_mps(self, tmp_path: Path) -> None:
        proc = self.process(tmp_path, "CUDA_MPS_PIPE_DIRECTORY=/elsewhere", pipe="/tmp/nvidia-mps")
        assert sharing(PID, proc=proc) == ""

    def test_running_server_counts_where_files_are_hidden(self, tmp_path: Path) -> None:
        """A running MPS server counts as the process's own if the process's files are hidden."""
        write(tmp_path / "77/comm", "nvidia-cuda-mps\n")
        assert sharing(PID, proc=tmp_path) == "MPS"

    def test_schedulers_that_divide_gpus_are_listed(self, tmp_path: Path) -> None:
        environ = ("CUDA_DEVICE_MEMORY_LIMIT_0=1024m", "CUDA_DEVICE_SM_LIMIT=50", "ALIYUN_COM_GPU_MEM_CONTAINER=4")
        assert sharing(PID, proc=self.process(tmp_path, *environ)) == "HAMi,gpushare"

    def test_sharing_of_this_process_is_readable(self) -> None:
        assert isinstance(sharing(os.getpid()), str)


class TestProgram:
    @staticmethod
    def a_process(proc: Path, pid: int, executable: str, *arguments: str) -> None:
        (proc / str(pid)).mkdir(parents=True)
        (proc / str(pid) / "exe").symlink_to(executable)
        (proc / str(pid) / "cmdline").write_bytes(b"".join(each.encode() + b"\0" for each in arguments))

    def test_program_digest_covers_executable_and_arguments(self, tmp_path: Path) -> None:
        self.a_process(tmp_path, 1, "/bin/a", "a", "--size", "4096")
        self.a_process(tmp_path, 2, "/bin/a", "a", "--size", "4096")
        self.a_process(tmp_path, 3, "/bin/a", "a", "--size", "8192")
        self.a_process(tmp_path, 4, "/bin/b", "a", "--size", "4096")
        found = [processes.program(pid, proc=tmp_path) for pid in (1, 2, 3, 4)]
        assert found[0] == found[1]
        assert len({found[0], *found[2:]}) == 3
        assert found[0] is not None
        assert "4096" not in found[0]

    def test_program_that_cannot_be_read_is_unknown(self, tmp_path: Path) -> None:
        self.a_process(tmp_path, 1, "/bin/a")
        assert processes.program(1, proc=tmp_path) is None
        assert processes.program(2, proc=tmp_path) is None
