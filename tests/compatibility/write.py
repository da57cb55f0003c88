"""Writer of one version's files, conversations and names for the tests of later versions.

``python tests/compatibility/write.py OUT WORK`` uses the gpuwatch that Python finds (set PYTHONPATH for another version).
Commit a8d437f, whose files are in the folder of that name, had other names for some of the internal modules imported here.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import click

SCENES = ("steady-copy", "steady-gemm", "neighbour", "idle")
PLOTLY = re.compile(r'(id="gpuwatch-plotly">)[^<]*(</script>)')  # a library of 1.4 MB that no test draws with
WINDOW_S = 1.2
TIMES_S = [0.004 + 0.00001 * (number % 7) for number in range(200)]
ACCEPTED = frozenset({"cpu-starvation"})  # so that the load of this machine affects no verdict
# Every setting of commit a8d437f, each with a value other than its default.
CONFIGURATION = """\
source = "simulated:drift"
state = "/var/lib/gpuwatch-lab"
socket = "/run/gpuwatch-lab/daemon.sock"
log_level = "warning"
listen = "127.0.0.1:9900"
listen_insecure = "yes"

[sampling]
idle_period = "100ms"
active_period = "20ms"
budget = "2 %"

[store]
budget = "1GiB"
max_age = "7d"
segment = "32MiB"

[daemon]
idle_exit = "2min"

[exporter]
certificate = "/etc/gpuwatch/lab.pem"
key = "/etc/gpuwatch/lab.key"
client_ca = "/etc/gpuwatch/clients.pem"
users = "/etc/gpuwatch/users"
processes = "3"
"""
SOURCE = "simulated:" + ",".join(SCENES)
HELLO = {"type": "hello", "protocol": 1, "version": "0.1.0"}
# Messages outside windows: refused connections, the daemon's state, wrong requests, and a message of a later version.
DIRECT: tuple[tuple[dict[str, Any], ...], ...] = (
    (HELLO | {"source": "simulated"},),
    (HELLO | {"protocol": 0},),
    (
        HELLO | {"source": SOURCE},
        {"type": "status"},
        {"type": "close", "run": "000000000000000000", "begin_ns": 1, "end_ns": 2},
        {"type": "open", "claim": "no-such-claim"},
    ),
    (HELLO | {"source": SOURCE}, {"type": "leave"}),
)


class Recorder:
    """A socket between clients of this process and a daemon that records every line."""

    def __init__(self, path: Path, daemon: Path) -> None:
        self.lines: list[dict[str, Any]] = []
        self._daemon = daemon
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        for number in range(1_000_000):
            client, _ = self._listener.accept()
            daemon = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            daemon.connect(str(self._daemon))
            for speaker, here, there in (("client", client, daemon), ("daemon", daemon, client)):
                threading.Thread(target=self._pass_on, args=(number, speaker, here, there), daemon=True).start()

    def _pass_on(self, number: int, speaker: str, here: socket.socket, there: socket.socket) -> None:
        with here.makefile("rb") as lines, contextlib.suppress(OSError):
            for line in lines:
                self.lines.append({"connection": number, "from": speaker, "line": json.loads(line)})
                there.sendall(line)
        with contextlib.suppress(OSError):
            there.shutdown(socket.SHUT_WR)


def command(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run gpuwatch; return its output and exit code."""
    found = subprocess.run([sys.executable, "-m", "gpuwatch", *arguments], capture_output=True, text=True, check=False)
    if check and found.returncode:
        raise SystemExit(f"gpuwatch {' '.join(arguments)}: expected code 0, found {found.returncode}: {found.stderr}")
    return found


@contextlib.contextmanager
def daemon() -> Iterator[subprocess.Popen[bytes]]:
    """Run a daemon, wait for its socket, and end it afterwards."""
    path = Path(os.environ["GPUWATCH_SOCKET"])
    process = subprocess.Popen([sys.executable, "-m", "gpuwatch", "daemon"], stderr=subprocess.DEVNULL)
    try:
        while not path.exists():
            if process.poll() is not None:
                raise SystemExit(f"expected a daemon at {path}, found that it exited; run `gpuwatch daemon` to see why")
            time.sleep(0.05)
        yield process
    finally:
        process.terminate()
        process.wait(60)


def watch(
    label: str,
    seconds: float,
    gpu: str,
    *,
    times_s: Sequence[float] = (),
    facts: dict[str, float] | None = None,
    claim: str = "sustained",
) -> str:
    """Open one window over one simulated GPU and return its id; ``label`` is also the expected status.

    Raises SystemExit: when the verdict has another status.
    """
    import gpuwatch

    policy = gpuwatch.Policy(claim=gpuwatch.Claim(claim), accept=ACCEPTED)
    with gpuwatch.window(label, gpus=[gpu], policy=policy) as w:
        time.sleep(seconds)
        if times_s:
            w.record(times_s)
        if facts:
            w.tell(**facts)
    if w.run_id is None or w.verdict.status != label:
        raise SystemExit(f"expected the status {label}, found {w.verdict}; try again on an idle machine")
    return w.run_id


def outputs(commands: Sequence[tuple[str, ...]], folder: Path) -> list[dict[str, Any]]:
    """Run commands with ``--json``; return their outputs and exit codes."""
    found = []
    for arguments in commands:
        ended = command(*arguments, "--json", check=False)
        found.append({"arguments": list(arguments), "code": ended.returncode, "json": json.loads(ended.stdout or ended.stderr)})
    return cast("list[dict[str, Any]]", without_prose(json.loads(json.dumps(found).replace(str(folder), "FOLDER"))))


def without_prose(data: Any) -> Any:
    """Empty the sentences of findings, because no program relies on them."""
    if isinstance(data, dict):
        is_finding = "rule" in data and "says" in data
        return {key: "" if is_finding and key in ("says", "remedy") else without_prose(each) for key, each in data.items()}
    return [without_prose(each) for each in data] if isinstance(data, list) else data


def options(group: Any, name: str = "gpuwatch") -> Iterator[tuple[str, list[str]]]:
    """Yield every command with its options."""
    yield name, sorted({option for each in group.params for option in (*each.opts, *each.secondary_opts)})
    context = click.Context(group)
    for inner in group.list_commands(context) if isinstance(group, click.Group) else ():
        yield from options(group.get_command(context, inner), f"{name} {inner}")


def shape(data: Any, place: str = "") -> list[str]:
    """Return every place in plain data with its kind of value, such as ``gpus[].uuid: str``; null values are left out."""
    inner = (
        [(f"{place}.{key}", each) for key, each in data.items()]
        if isinstance(data, dict)
        else [(f"{place}[]", each) for each in data]
        if isinstance(data, list)
        else []
    )
    kind = "number" if type(data) in (int, float) else type(data).__name__
    here = [] if data is None else [f"{place}: {kind}"]
    return sorted({*here, *(found for name, each in inner for found in shape(each, name))})


def interface() -> dict[str, Any]:
    """Return every name available to users, such as commands, arguments, settings, rules with their limits, and metrics."""
    import inspect

    import gpuwatch
    from annotate.declared import FACTS
    from annotate.rules import RULES
    from gpuwatch.cli import cli
    from gpuwatch.cli.exit_codes import Exit
    from gpuwatch.config.keys import KEYS
    from gpuwatch.exporter.metrics import METRICS

    functions = {name: getattr(gpuwatch, name) for name in ("window", "bench", "compare")}
    functions |= {f"Window.{name}": each for name, each in inspect.getmembers(gpuwatch.Window, inspect.isfunction)}
    return {
        "commands": dict(options(cli)),
        "exit_codes": {each.name: each.value for each in Exit},
        "names": {
            "gpuwatch": gpuwatch.__all__,
            **{
                name: sorted(each for each in dir(getattr(gpuwatch, name)) if not each.startswith("_"))
                for name in ("Window", "Verdict", "Finding", "Policy", "Measurement", "Compared")
            },
        },
        "arguments": {
            name: list(inspect.signature(each).parameters)
            for name, each in functions.items()
            if not name.startswith("Window._")
        },
        "settings": {key.name: key.variable for key in KEYS},
        "declared": sorted(FACTS),
        "rules": {rule.name: sorted(rule.limits) for rule in RULES},
        "metrics": {each.name: {"kind": each.kind.value, "labels": list(each.labels)} for each in METRICS.values()},
    }


def converse(path: Path, windows: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """Open windows and query a daemon through a recorder; return the messages of client and daemon."""
    recorder = Recorder(path, Path(os.environ["GPUWATCH_SOCKET"]))
    real, os.environ["GPUWATCH_SOCKET"] = os.environ["GPUWATCH_SOCKET"], str(path)
    for label, gpu in windows:
        watch(label, WINDOW_S, gpu, times_s=TIMES_S, facts={"busy_ratio": 0.97})
    command("top", "--once", "--json")
    for lines in DIRECT:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as direct, direct.makefile("rb") as answers:
            direct.connect(str(path))
            for line in lines:
                direct.sendall(json.dumps(line).encode() + b"\n")
                answers.readline()
    os.environ["GPUWATCH_SOCKET"] = real
    return recorder.lines


def write(out: Path, name: str, data: Any) -> None:
    """Write one JSON file, one line per entry of its tables."""
    tables = (
        f"{json.dumps(key)}: "
        + json.dumps(table, ensure_ascii=False).replace('{"arguments"', '\n{"arguments"').replace('], "', '],\n "')
        for key, table in data.items()
    )
    (out / name).write_text("{\n" + ",\n".join(tables) + "\n}\n")


def record_windows(files: Path) -> tuple[dict[str, str], list[str]]:
    """Fill a store with a window of each status, and write capsules; return the windows' ids and the GPUs."""
    with daemon():
        time.sleep(2)
        gpus = [gpu["uuid"] for gpu in json.loads(command("top", "--once", "--json").stdout)["gpus"]]
        copy, gemm, shared, idle = gpus
        runs = {
            "valid": watch("valid", WINDOW_S, copy, times_s=TIMES_S, facts={"busy_ratio": 0.97}),
            "flagged": watch("flagged", WINDOW_S, gemm, claim="burst"),
            "rejected": watch("rejected", WINDOW_S, shared),
            "unproven": watch("unproven", WINDOW_S, idle),
        }
        command("record", "--run", runs["valid"], "-o", str(files / "stored.capsule"))
        command("record", "--last", "2s", "--gpu", gemm, "-o", str(files / "past.capsule"))
    return runs, gpus


def record_gpu(state: Path, gpu: str) -> None:
    """Store a noise floor and canaries of a GPU, as ``selftest`` and ``bench`` do on a real one."""
    from gpuwatch.comparing import floor_record
    from gpuwatch.measuring import canary_record

    floor_record.store(state, gpu, floor_record.Floor(kind="copy", floor_ratio=0.0026, trials_count=12, measured_wall_s=1.7e9))
    for clock_mhz in (1920.0, 1935.0, 1980.0):
        canary_record.store(state, gpu, clock_mhz=clock_mhz, copy_bytes_count=4.1e12)


def pack(folder: Path, target: Path) -> None:
    """Pack a folder's content, without traces of running daemons and of the packing user."""
    with tarfile.open(target, "w:xz") as archive:
        for path in sorted(folder.rglob("*")):
            if (
                path.is_file()
                and path.name not in ("lock", "socket.lock", "daemon.log")
                and not path.name.endswith(("-wal", "-shm"))
            ):
                entry = archive.gettarinfo(path, str(path.relative_to(folder)))
                entry.uid = entry.gid = 0
                entry.uname = entry.gname = ""
                with path.open("rb") as file:
                    archive.addfile(entry, file)


def main(out: Path, work: Path) -> None:
    """Write all files below ``out``, with intermediate files in ``work``."""
    files, other = work / "files", work / "other"
    files.mkdir(parents=True)
    out.mkdir(parents=True, exist_ok=True)
    user = {"HOME": str(work), "USER": "ann", "LOGNAME": "ann"}
    os.environ.update(
        user | {"GPUWATCH_STATE": f"{files}/state", "GPUWATCH_SOCKET": f"{files}/socket", "GPUWATCH_SOURCE": SOURCE}
    )
    runs, gpus = record_windows(files)
    record_gpu(files / "state", gpus[0])
    for name, arguments in (("signed", (runs["rejected"],)), ("unsigned", ("--trace", f"{files}/past.capsule"))):
        command("report", *arguments, "-o", f"{files}/{name}.html")
    (files / "signer.pub").write_text(command("verify", "--key").stdout)
    (files / "configuration.toml").write_text(CONFIGURATION)
    commands = (
        *(("show", run) for run in runs.values()),
        ("audit",),
        ("audit", "--rejudge"),
        ("audit", "--trace", f"{files}/stored.capsule"),
        ("audit", "--trace", f"{files}/past.capsule"),
        ("compare", runs["valid"], runs["rejected"]),
        ("selftest", "--show"),
        ("db", "path"),
        ("verify", f"{files}/signed.html", "--trust", f"{files}/signer.pub"),
        ("verify", f"{files}/unsigned.html"),
        ("config", "validate", f"{files}/configuration.toml"),
        ("--config", f"{files}/configuration.toml", "config", "show"),
        ("show", "ffffffff"),
        ("explain", "sampler-gap"),
        ("explain", "0x1004"),
    )
    stored = outputs(commands, files)
    os.environ["GPUWATCH_STATE"] = str(other)
    with daemon():
        time.sleep(2)
        live = outputs((("top", "--once"), ("doctor",), ("record", "-o", f"{other}/now.capsule", "--seconds", "0.3")), other)
        conversation = converse(work / "heard", (("valid", gpus[0]), ("rejected", gpus[2])))
    for each in live:
        each["json"] = shape(each["json"])  # the values belong to this machine
    for page in files.glob("*.html"):
        page.write_text(PLOTLY.sub(r"\1\2", page.read_text()))
    pack(files, out / "files.tar.xz")
    write(out, "outputs.json", {"stored": stored, "live": live})
    write(out, "interface.json", interface())
    lines = (json.dumps(line, ensure_ascii=False).replace(str(work), "FOLDER") for line in conversation)
    (out / "conversation.jsonl").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute(), Path(sys.argv[2]).absolute())
