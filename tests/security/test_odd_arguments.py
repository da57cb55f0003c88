"""Tests of declarations that contradict observed facts, and of odd objects, bytes and files as arguments."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpuwatch
from annotate.verdict import Answered
from gpuwatch.cli import main
from gpuwatch.client.testimony import Testimony
from gpuwatch.config.settings import Settings
from gpuwatch.errors import UsageError
from gpuwatch.report.signatures import trusted_keys
from gpuwatch.signing import KEY, PUBLIC_KEY, signer_of
from gpuwatch.sources import recordings
from gpuwatch.wire.timings import recorded
from tests.gpuwatch import forked
from tests.gpuwatch.live import running
from tests.waiting import PATIENCE_S, wait_until

DEADLINE_S = PATIENCE_S / 5  # for each of four readers


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    with running(tmp_path_factory.mktemp("odd")) as live:
        yield live.settings


class Hostile(int):
    """A number whose ``repr``, ``int`` and ``dtype`` fail."""

    def __repr__(self) -> str:
        raise RuntimeError("repr")

    def __int__(self) -> int:
        raise RuntimeError("int")

    @property
    def dtype(self) -> object:
        raise RuntimeError("dtype")


def hazards(w: gpuwatch.Window) -> set[str]:
    return {finding.rule for finding in w.verdict.findings if finding.answered is Answered.FOUND}


# Declared facts never hide a fact that gpuwatch observed


def test_declaration_does_not_hide_observed_tampering(daemon: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that replaces a timing function cannot declare that it replaced none."""
    real = time.perf_counter
    with gpuwatch.window(settings=daemon) as w:
        monkeypatch.setattr(time, "perf_counter", lambda: real() / 2)
        w.declare(tampered=None)
    assert "timer-tampered" in hazards(w)


def test_declaration_does_not_hide_a_profiler_at_the_start(daemon: Settings) -> None:
    """A profiler at the window's opening stays in the verdict, even if it ends later and is declared absent."""
    before = sys.getprofile()
    sys.setprofile(lambda *_: None)
    try:
        with gpuwatch.window(settings=daemon) as w:
            sys.setprofile(before)
            w.declare(profiler_used=False)
    finally:
        sys.setprofile(before)
    assert "profiler-attached" in hazards(w)


def test_declaration_does_not_override_sampled_inputs() -> None:
    """Sampled zeros override a declared ratio of zeros."""
    testimony = Testimony()
    testimony.look_at((np.zeros(1000, np.float32),))
    testimony.declare({"input_zero_ratio": 0.01})
    assert testimony.all()["input_zero_ratio"] == 1.0


def test_declaration_of_a_hazard_is_kept() -> None:
    """A program may declare a hazard that gpuwatch did not observe."""
    testimony = Testimony()
    testimony.begin()
    testimony.declare({"profiler_used": True, "tampered": "my.timer"})
    told = testimony.all()
    assert (told["profiler_used"], told["tampered"]) == (True, "my.timer")


# Cases of the measured process


def test_window_survives_closed_descriptors(daemon: Settings) -> None:
    """A body that closes descriptors 3 to 63, as daemons do, ends without an exception of gpuwatch."""
    program = (
        "import os, sys, gpuwatch\n"
        "from gpuwatch.config import settings as config\n"
        "found = config.load(dict(state=sys.argv[1], socket=sys.argv[2], source='simulated:steady-copy'))\n"
        "with gpuwatch.window(settings=found) as w: os.closerange(3, 64)\n"
        "print(w.verdict.status)\n"
    )
    found = forked.run([sys.executable, "-c", program, str(daemon.state), str(daemon.socket)], timeout_s=PATIENCE_S)
    assert found.returncode == 0, found.stderr
    assert found.stdout == "unproven\n"


@pytest.mark.parametrize("name", ["label", "claim", "gpus", "policy", "settings", "on_reject"])
def test_window_rejects_objects_without_repr(name: str) -> None:
    """An argument whose ``repr`` fails raises UsageError like any other wrong argument."""
    arguments: dict[str, Any] = {name: Hostile(3)}
    with pytest.raises(UsageError, match=f"^{name}: expected"):
        gpuwatch.window(**arguments)


def test_declare_rejects_inconvertible_values() -> None:
    with pytest.raises(UsageError, match="declare: warmup_count: expected a value that converts, found RuntimeError"):
        Testimony().declare({"warmup_count": Hostile(3)})
    with pytest.raises(UsageError, match="declare: warmup_s: expected text, a number"):
        Testimony().declare({"warmup_s": Fraction(10**5000)})  # type: ignore[dict-item]  # deliberately wrong


def test_inputs_rejects_lists_that_contain_themselves(daemon: Settings) -> None:
    endless: list[object] = []
    endless.append(endless)
    with gpuwatch.window(settings=daemon) as w:
        for wrong in (endless, Hostile(3)):
            with pytest.raises(UsageError, match="inputs: expected tensors"):
                w.inputs(wrong)


@pytest.mark.filterwarnings("error")
def test_record_replaces_complex_and_failing_times_by_zero() -> None:
    """A complex number or an iterable's exception adds a time of 0 and gives a complaint, without a warning or an exception.

    The smallest positive time stays positive.
    """

    def failing() -> Iterator[float]:
        yield 1.0
        raise LookupError("gone")

    for times in (np.array([1 + 2j]), failing()):
        complaints: list[str] = []
        assert recorded(times, None, 0, 10, complaints.append).took_s[-1] == 0.0
        assert complaints[0].startswith("expected durations in seconds")
    assert recorded([5e-324], None, 0, 10).took_s[0] > 0


# Cases of files and the command line


def waits(work: Callable[[], object], fifo: Path) -> bool:
    """Run a function in a child, and return True if it blocks on the pipe."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)

    def ended() -> bool:
        return os.waitpid(child, os.WNOHANG)[0] == child

    try:
        wait_until(ended, what=f"the reader of {fifo} ended", deadline_s=DEADLINE_S)
    except AssertionError:
        os.kill(child, 9)
        os.waitpid(child, 0)
        return True
    return False


def test_pipes_in_place_of_files_do_not_block(tmp_path: Path) -> None:
    """A pipe without a writer does not block in place of a recording, the signing key, a trusted key or the database."""
    fifo = tmp_path / "lab.pub"
    for name in (fifo.name, KEY, PUBLIC_KEY, "gpuwatch.db"):
        os.mkfifo(tmp_path / name, 0o600)
    warned: list[str] = []
    assert not waits(lambda: trusted_keys([], [tmp_path], warned.append), fifo)
    assert not waits(lambda: signer_of(tmp_path), tmp_path / KEY)
    assert not waits(lambda: recordings.load(fifo), fifo)
    assert not waits(lambda: main(["--state", str(tmp_path), "audit"]), tmp_path / "gpuwatch.db")
    assert not trusted_keys([], [tmp_path], warned.append)
    assert len(warned) == 2
    assert signer_of(tmp_path) is None
    with pytest.raises(UsageError, match="found a pipe"):
        recordings.load(fifo)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["audit", "-n", "99999999999999999999999"], 2, "99999999999999999999999"),
        (["audit", "--from", "0001-01-01"], 2, "--from: expected a time"),
        (["audit", "--since", "0001-01-01"], 2, "--since: expected a time"),
        (["audit", "--label", "\udcff"], 0, "no window matches"),
        (["show", "\udcffabcd"], 1, "expected an id, the start of an id, or a label"),
        (["export", "--ndjson", "--host", "\udcff\x1b[1m"], 0, ""),
        (["export", "--parquet", ""], 2, "--parquet: expected DIR, found an empty text; for the current folder write ."),
    ],
)
def test_command_handles_odd_values_without_a_traceback(
    arguments: list[str],
    code: int,
    words: str,
    daemon: Settings,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Year 1, a huge count, undecodable bytes and an empty name cause neither a traceback nor an error about the database."""
    monkeypatch.chdir(tmp_path)  # an empty folder name would mean this folder
    with gpuwatch.window("one", settings=daemon) as w:
        pass
    assert w.verdict
    capfd.readouterr()
    assert main([*daemon.flags(), *arguments]) == code
    said = capfd.readouterr()
    assert words in said.out + said.err
    assert "readable gpuwatch database" not in said.err
