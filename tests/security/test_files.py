"""Tests of written files (modes, links and secrets) and of the daemon's processes."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from gpuwatch.cli import main
from gpuwatch.client.connection import connect
from tests.gpuwatch import forked
from tests.gpuwatch.forked import REAL_CHILDREN
from tests.gpuwatch.live import running, settings
from tests.waiting import PATIENCE_S

SECRETS = ("argv-hunter2", "environ-hunter2", "message-hunter2", "working-folder-hunter2", "file-hunter2")
PROGRAM = """
import os, sys, gpuwatch
from gpuwatch.config import settings as config
found = config.load(dict(state=sys.argv[1], socket=sys.argv[2], source="simulated:neighbour"))
try:
    with gpuwatch.window("plain label", settings=found) as w:
        import time; time.sleep(0.4)
        raise RuntimeError("message-hunter2")
except RuntimeError:
    pass
print(w.verdict.status, w.run_id)
"""


def modes(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): stat.S_IMODE(path.lstat().st_mode) for path in folder.rglob("*")}


def run_command(capfd: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run a command in this process, and return its output."""
    capfd.readouterr()
    code = main(list(arguments))
    told = capfd.readouterr()
    assert code in (0, 1), told.err
    return told.out


def test_secrets_of_a_process_are_in_no_output(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Command lines, environment, exception texts, and names of folder and program are in no output of gpuwatch."""
    work = tmp_path / SECRETS[3]
    work.mkdir()
    program = work / f"{SECRETS[4]}.py"
    program.write_text(PROGRAM)
    listen = {"GPUWATCH_LISTEN": "127.0.0.1:0", "GPUWATCH_EXPORTER_PROCESSES": "10"}
    with running(tmp_path, "simulated:neighbour", environment=listen) as live:
        found = live.settings
        ended = subprocess.run(
            [sys.executable, str(program), str(found.state), str(found.socket), f"--password={SECRETS[0]}"],
            env={**os.environ, "API_TOKEN": SECRETS[1], "TORCH_TOKEN": SECRETS[1], "CUDA_SECRET": SECRETS[1]},
            cwd=work, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        run = ended.stdout.split()[-1]
        with connect(found) as client:
            client.verdicts(run)
            status = client.status()
        page = urllib.request.urlopen(status["metrics"], timeout=PATIENCE_S).read()
        assert b"gpuwatch_up" in page
    flags = found.flags()
    out = tmp_path / "out"
    out.mkdir()
    run_command(capfd, *flags, "report", run, "-o", str(out / "report.html"))
    run_command(capfd, *flags, "record", "--run", run, "-o", str(out / "run.capsule"))
    run_command(capfd, *flags, "export", "--parquet", str(out / "fleet"))
    shown = (run_command(capfd, *flags, "show", run) + run_command(capfd, *flags, "show", run, "--json")).encode()
    made = [path for folder in (found.state, out) for path in folder.rglob("*") if path.is_file()]
    assert {path.suffix for path in made} >= {".db", ".html", ".capsule", ".parquet"}
    texts = {str(path): path.read_bytes() for path in made} | {"metrics": page, "show": shown, "log": live.log.read_bytes()}
    texts |= {f"{name} unpacked": blob for name, blob in _unpacked(found.state, out).items()}
    # Control: the same search finds data that should be there.
    assert any(b"plain label" in text for text in texts.values())
    for secret in SECRETS:
        for name, text in texts.items():
            assert secret.encode() not in text, (secret, name)


def _unpacked(state: Path, out: Path) -> dict[str, bytes]:
    """Return the content of compressed data by name: runs, evidence, capsule, report and Parquet rows."""
    import pyarrow.parquet as parquet

    from annotate.capsule.pack import unpack
    from gpuwatch.report import read_page
    from gpuwatch.store import Reader

    found: dict[str, bytes] = {}
    with Reader(state) as reader:
        for run in reader.runs():
            found[run.id] = repr(run).encode() + repr([reader.evidence(run, uuid) for uuid in run.uuids]).encode()
    found["capsule"] = repr(unpack((out / "run.capsule").read_bytes())).encode()
    found["report"] = repr(read_page.load(out / "report.html").record).encode()
    for path in (out / "fleet").rglob("*.parquet"):
        found[path.name] = repr(parquet.read_table(path).to_pylist()).encode()
    return found


@pytest.mark.parametrize("mask", [0o022, 0o000])
def test_daemon_files_are_closed_under_any_umask(tmp_path: Path, mask: int) -> None:
    """Every file of a user's daemon is closed to other users under any umask, except the public key."""
    folder = tmp_path / "made"
    folder.mkdir()
    found = settings(folder)
    program = (
        "import os, sys, gpuwatch; os.umask(int(sys.argv[3])); from gpuwatch.config import settings as config\n"
        "s = config.load(dict(state=sys.argv[1], socket=sys.argv[2], source='simulated:steady-copy'))\n"
        "with gpuwatch.window('a', settings=s) as w: pass\n"
        "print(w.verdict.status)"
    )
    # The window starts the daemon; the test ends the daemon.
    ended = forked.run([sys.executable, "-c", program, str(found.state), str(found.socket), str(mask)], timeout_s=PATIENCE_S)
    try:
        assert ended.returncode == 0, ended.stderr
        made = modes(folder)
        assert {"state", "state/gpuwatch.db", "state/daemon.log", "state/lock", "s", "s.lock"} <= made.keys()
        assert any(name.endswith("-wal") for name in made)
        assert any(name.startswith("state/readings-") for name in made)
        assert made["state"] == 0o700
        open_ = {name: oct(mode) for name, mode in made.items() if mode & 0o077}
        assert open_ in ({}, {"state/signing.pub": "0o644"})  # the public key, in a folder that is closed to others
    finally:
        with connect(found, start=False) as client:
            os.kill(int(client.status()["pid"]), 15)


def test_daemon_log_follows_no_link(tmp_path: Path) -> None:
    """The daemon does not write through a link in place of its log."""
    found = settings(tmp_path)
    found.state.mkdir(mode=0o700)
    precious = tmp_path / "precious"
    precious.write_text("untouched")
    found.log.symlink_to(precious)
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "gpuwatch", *found.flags(), "daemon", "--on-demand"],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert ended.returncode != 0
    assert precious.read_text() == "untouched"


@pytest.mark.parametrize("name", ["run.capsule", "report.html"])
def test_output_replaces_a_link(tmp_path: Path, name: str) -> None:
    """``write_file``, which writes a command's output, replaces a link instead of writing through it.

    No other user may write to the file.
    """
    capsule = Path(__file__).parents[1] / "traces" / "h200-windows.capsule"
    precious, target = tmp_path / "precious", tmp_path / name
    precious.write_text("untouched")
    target.symlink_to(precious)
    from gpuwatch.cli import output

    output.write_file(target, capsule.read_bytes())
    assert precious.read_text() == "untouched"
    assert not target.is_symlink()
    assert stat.S_IMODE(target.stat().st_mode) & 0o022 == 0


@pytest.mark.parametrize("planted", ["gpuwatch/daemon/judge_worker.py", "msgspec.py", "numpy.py"])
def test_daemon_imports_nothing_from_its_start_folder(tmp_path: Path, planted: str) -> None:
    folder, trap = tmp_path / "everybodys", tmp_path / "trapped"
    (folder / planted).parent.mkdir(parents=True)
    (folder / planted).write_text(f"open({str(trap)!r}, 'w')")
    found = settings(tmp_path)
    script = shutil.which("gpuwatch", path=str(Path(sys.executable).parent)) or pytest.skip("gpuwatch is not installed")
    process = subprocess.Popen([script, *found.flags(), "daemon"], cwd=folder, stderr=subprocess.PIPE)
    try:
        from tests.gpuwatch.live import wait_for

        wait_for(found, process, tmp_path / "log")
        with connect(found, start=False) as client:
            opened = client.open()
            client.close_window(opened.run, opened.opened_ns, opened.opened_ns)
            assert client.verdicts(opened.run).verdicts  # the worker runs and has judged the window
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
    assert not trap.exists()


def test_daemon_runs_only_the_judge_worker(tmp_path: Path) -> None:
    """A daemon's only child is the judge's worker, which has no lock and no write-ahead log open."""
    with running(tmp_path, environment={REAL_CHILDREN: "1"}) as live, connect(live.settings) as client:
        pid = int(client.status()["pid"])
        opened = client.open()
        client.close_window(opened.run, opened.opened_ns, opened.opened_ns)
        assert client.verdicts(opened.run).verdicts
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        commands = [Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")[1:] for child in children]
        assert [command[:3] for command in commands] == [[b"-P", b"-m", b"gpuwatch.daemon.judge_worker"]]
        held = [str(path.readlink()) for path in Path(f"/proc/{children[0]}/fd").iterdir() if path.is_symlink()]
        assert not [name for name in held if name.endswith(("lock", "s.lock", "-wal"))]
