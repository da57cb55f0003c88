"""Tests of the wrapper's streams, signals and exit codes, with real processes."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_S

WRAP = "import sys; from gpuwatch.cli import child\nwith child.signals_held() as mask:\n"
WRAP += "    pid = child.spawn(sys.argv[1:], __import__('os').environ, mask)\n    outcome = child.wait(pid)\n"
WRAP += "sys.exit(outcome.exit_code)"

# A command that prints each signal at once, and all signals at the end; "ready" means that the handlers are set.
# Handlers use os.write, because a signal may arrive while `print` flushes.
COUNTER = """
import os, signal, sys, time
got = []
def take(number, frame):
    got.append(signal.Signals(number).name)
    os.write(1, f"got {got[-1]}\\n".encode())
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH):
    signal.signal(number, take)
os.write(1, b"ready\\n")
end = time.monotonic() + 100
while time.monotonic() < end and len(got) < int(sys.argv[1]):
    time.sleep(0.01)
time.sleep(0.2)
print(" ".join(got), flush=True)
sys.exit(7)
"""


def wrapped(*command: str, **options: object) -> subprocess.Popen[bytes]:
    arguments = [sys.executable, "-c", WRAP, *command]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)  # type: ignore[call-overload,no-any-return]


def ended(*command: str, stdin: bytes = b"") -> tuple[int, bytes, bytes]:
    """Return the exit code, output and errors of a command that ran under the wrapper."""
    process = wrapped(*command, stdin=subprocess.PIPE)
    out, err = process.communicate(stdin, timeout=PATIENCE_S)
    return process.returncode, out, err


def test_wrapper_exits_with_the_commands_code_or_signal() -> None:
    """The wrapper returns the command's exit code, or 128 plus the number of the command's fatal signal."""
    ends = {f"exit {code}": code for code in (0, 1, 2, 42, 125, 255)}
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGINT):
        ends[f"ulimit -c 0; kill -{number.value} $$"] = 128 + number
    one_by_one = "import sys; from gpuwatch.cli import child\nfor each in sys.argv[1:]:\n  with child.signals_held() as mask:\n"
    one_by_one += (
        "    pid = child.spawn(['sh', '-c', each], __import__('os').environ, mask)\n    print(child.wait(pid).exit_code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", one_by_one, *ends], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert dict(zip(ends, map(int, done.stdout.split()), strict=True)) == ends
    assert ended("sh", "-c", "exit 42")[0] == 42


def test_wrapper_passes_streams_byte_for_byte() -> None:
    sent = bytes(range(256)) * 50
    code, out, err = ended("sh", "-c", "cat; printf 'odd\\0\\377' >&2", stdin=sent)
    assert (code, out, err) == (0, sent, b"odd\0\xff")


def test_signal_to_the_wrapper_reaches_the_command_once() -> None:
    """Each signal to the wrapper reaches the command once, in order."""
    numbers = (
        signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH,
    )  # fmt: skip
    process = wrapped(sys.executable, "-c", COUNTER, str(len(numbers)))
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    for number in numbers:
        process.send_signal(number)
        assert process.stdout.readline().decode().split() == ["got", number.name]
    assert process.stdout.readline().decode().split() == [number.name for number in numbers]
    assert process.wait(PATIENCE_S) == 7


def test_terminal_interrupt_reaches_the_command_once() -> None:
    """The wrapper does not forward a terminal's interrupt, because the kernel signals the whole process group."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-c", WRAP, sys.executable, "-c", COUNTER, "1"])
    read_until(terminal, lambda text: "ready" in text)
    os.write(terminal, b"\x03")
    text = read_until(terminal, lambda text: "\nSIG" in text and text.endswith("\n"))
    assert (text.count("got SIGINT"), text.count("SIGINT")) == (1, 2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


def test_command_on_a_terminal_stays_in_the_foreground() -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        asked = "import os; print('fg' if os.tcgetpgrp(0) == os.getpgrp() else 'bg', input(), flush=True)"
        os.execv(sys.executable, [sys.executable, "-c", WRAP, sys.executable, "-c", asked])
    os.write(terminal, b"typed\n")
    assert "fg typed" in read_until(terminal, lambda text: "g typed" in text)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def read_until(descriptor: int, enough: Callable[[str], bool]) -> str:
    """Read from a descriptor until the text suffices, the other end closes, or a timeout."""
    text = ""
    while not enough(text) and select.select([descriptor], [], [], PATIENCE_S)[0]:
        try:
            text += os.read(descriptor, 1024).decode()
        except OSError:  # Linux reports EIO when the other end closed
            break
    return text


def test_child_inherits_no_blocked_or_ignored_signal() -> None:
    def masks(report: bytes) -> list[int]:
        # Without signals 32 and 33: glibc uses these for threads, and posix_spawn leaves them ignored.
        return [int(line.split()[1], 16) & ~(3 << 31) for line in report.splitlines()]

    look = ["grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"]
    code, out, _ = ended(*look)
    assert (code, masks(out)) == (0, masks(subprocess.run(look, capture_output=True, check=True).stdout))


def test_child_inherits_open_descriptors() -> None:
    """Inheritable descriptors reach the command: make's job server and process substitution pass descriptors by number."""
    readable, writable = os.pipe()
    os.set_inheritable(writable, True)
    process = wrapped(sys.executable, "-c", f"import os; os.write({writable}, b'through')", pass_fds=(writable,))
    os.close(writable)
    process.communicate(timeout=PATIENCE_S)
    assert os.read(readable, 100) == b"through"
    os.close(readable)


def test_script_without_a_shebang_runs_in_the_shell(tmp_path: Path) -> None:
    """A script without a shebang runs in the shell, as with env(1)."""
    script = tmp_path / "plain"
    script.write_text("echo shell $1; exit 5\n")
    script.chmod(0o755)
    assert ended(str(script), "one")[:2] == (5, b"shell one\n")


@pytest.mark.parametrize(("name", "code"), [("no-such-program-anywhere", 127), ("./plain", 126), (".", 126)])
def test_spawn_reports_a_start_failure_with_the_codes_of_env(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: int
) -> None:
    """A missing command gives 127, and a file that cannot be executed gives 126."""
    from gpuwatch.cli import child
    from gpuwatch.cli.exit_codes import Stop

    (tmp_path / "plain").write_text("echo")
    monkeypatch.chdir(tmp_path)
    with child.signals_held() as mask, pytest.raises(Stop) as caught:
        child.spawn([name], os.environ, mask)
    assert caught.value.code == code
    assert name in str(caught.value)


def test_signals_held_restores_the_mask_and_drops_a_signal() -> None:
    """A forwarded signal that arrives inside the block is dropped, and the mask is restored."""
    from gpuwatch.cli import child

    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    with child.signals_held():
        # To this thread: other threads of the test runner do not block signals.
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)  # blocked, and dropped at the end of the block
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


LOSES_SIGNALS = """
import os, signal, threading, time
from gpuwatch.cli import child
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()  # blocks no signal, like a library's threads
seen = os.wait4
def late(pid, options):
    found = seen(pid, options)
    time.sleep(0.3)  # the command ends after this look and before the wait
    return found
os.wait4 = late
with child.signals_held() as mask:
    print(child.wait(child.spawn(["sleep", "0.1"], os.environ, mask)).exit_code, flush=True)
os._exit(0)
"""


def test_wait_notices_an_end_without_sigchld() -> None:
    """The wrapper notices the command's end even if another thread received SIGCHLD."""
    ended = subprocess.run(
        [sys.executable, "-c", LOSES_SIGNALS], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert (ended.stdout, ended.stderr) == ("0\n", "")
