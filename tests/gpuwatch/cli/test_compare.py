"""Tests of gpuwatch compare: stored runs, and functions of files, in the working tree and in revisions."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from annotate.evidence import Host, Timings
from gpuwatch.client.window import window
from gpuwatch.config.settings import Settings
from tests.gpuwatch.cli.conftest import Gpuwatch
from tests.gpuwatch.cli.test_schemas import check
from tests.gpuwatch.store.stored import a_run, opened
from tests.gpuwatch.store.streams import BEGIN_NS, BOOT, DEVICE
from tests.waiting import sample_for

# Calls that mostly wait take little CPU.  The difference is larger than interruptions of a block on a busy machine.
FAST, SLOW = "time.sleep(0.0002) or sum(range(200))", "time.sleep(0.004) or sum(range(300))"


@pytest.fixture
def store(tmp_path: Path) -> Callable[..., tuple[str, ...]]:
    """Return a function that stores two runs, the second with the given change, and returns the store's options."""

    def stored(change: float = 0.0, *, timed: bool = True, boot_id: str = BOOT, **of_device: object) -> tuple[str, ...]:
        with_store = opened(tmp_path / "state")
        with_store.put_device(DEVICE)
        other = replace(DEVICE, **of_device)  # type: ignore[arg-type]
        with_store.put_device(other)
        for number, (uuid, boot, took_s) in enumerate([(DEVICE.uuid, BOOT, 2e-3), (other.uuid, boot_id, 2e-3 * (1 + change))]):
            begin_ns = BEGIN_NS + (5 + 10 * number) * 1_000_000_000
            run = a_run(
                id=f"{number}ca7f00d01", label=("before", "after")[number], begin_ns=begin_ns, end_ns=begin_ns + 4_000_000_000,
                uuids=(uuid,), host=Host(boot_id=boot), declared={},
            )  # fmt: skip
            with_store.put_run(run)
            if timed:
                with_store.put_timings(run.id, steady(took_s, begin_ns, seed=number))
        with_store.close()
        return ("--state", str(tmp_path / "state"), "--socket", str(tmp_path / "s"))

    return stored


def steady(took_s: float, begin_ns: int, *, seed: int) -> Timings:
    """Return back-to-back times with 0.2 % noise over 4 s."""
    took = took_s * np.exp(0.002 * np.random.default_rng(seed).standard_normal(int(4.0 / took_s)))
    return Timings(begin_ns + np.concatenate([[0], np.cumsum(took)[:-1] * 1e9]).astype(np.int64), took)


Stored = Callable[..., tuple[str, ...]]


class TestRuns:
    @pytest.mark.parametrize(("change", "decision"), [(-0.2, "faster"), (0.2, "slower"), (0.01, "inconclusive")])
    def test_compare_decides_between_runs_beyond_drift(
        self, gpuwatch: Gpuwatch, store: Stored, change: float, decision: str
    ) -> None:
        """A run is faster or slower than another only by more than the drift between successive runs."""
        where = store(change)
        ended = gpuwatch(*where, "compare", "0ca7", "1ca7", "--json")
        assert ended.code == 0
        check(ended.data, "urn:gpuwatch:cli:1#/$defs/compare")
        found = ended.data["comparisons"][0]
        assert (found["decision"], found["a"], found["b"]) == (decision, "before", "after")
        assert found["ratio"]["ratio"] == pytest.approx(1 + change, abs=0.002)
        text = gpuwatch(*where, "compare", "0ca7", "1ca7").out
        assert text.startswith(decision.upper())
        assert ("], not significant" in text) == (decision == "inconclusive")

    def test_compare_fails_on_a_named_decision(self, gpuwatch: Gpuwatch, store: Stored) -> None:
        """The exit code is 1 if --fail-on names the decision, and an unknown decision is refused."""
        where = store(0.2)
        assert gpuwatch(*where, "compare", "0ca7", "1ca7", "--fail-on", "slower, incomparable").code == 1
        assert gpuwatch(*where, "compare", "0ca7", "1ca7", "--fail-on", "inconclusive", "--json").code == 0
        refused = gpuwatch(*where, "compare", "0ca7", "1ca7", "--fail-on", "worse")
        assert (refused.code, refused.err.count("\n")) == (2, 1)
        assert "expected some of faster, slower" in refused.err

    def test_compare_escapes_control_characters_of_runs(self, gpuwatch: Gpuwatch, store: Stored) -> None:
        text = gpuwatch(*store(-0.2, uuid="GPU-f\x1b[31m\x07"), "compare", "0ca7", "1ca7").out
        assert "GPU-f\\x1b[31m\\x07" in text
        assert "\x1b" not in text

    def test_compare_refuses_another_gpu_unless_accepted(self, gpuwatch: Gpuwatch, store: Stored) -> None:
        """Another GPU makes runs incomparable, unless --accept names the rule; the output shows the GPUs before the times."""
        where = store(-0.2, uuid="GPU-ffffffff-0000-0000-0000-000000000002")
        text = gpuwatch(*where, "compare", "0ca7", "1ca7").out
        assert text.startswith("INCOMPARABLE")
        assert 0 < text.index("differs: GPU") < text.index("time as it ran")
        accepted = gpuwatch(*where, "compare", "0ca7", "1ca7", "--accept", "hardware-mismatch", "--json")
        assert accepted.data["comparisons"][0]["decision"] == "faster"

    def test_compare_of_runs_without_times_is_inconclusive(self, gpuwatch: Gpuwatch, store: Stored) -> None:
        """A comparison of runs without times is inconclusive, and the reasons name both runs."""
        ended = gpuwatch(*store(timed=False), "compare", "0ca7", "1ca7", "--json")
        found = ended.data["comparisons"][0]
        assert (ended.code, found["decision"], found["ratio"]) == (0, "inconclusive", None)
        assert any("before and after recorded no times" in reason for reason in found["reasons"])

    def test_compare_marks_windows_of_a_simulated_gpu(self, gpuwatch: Gpuwatch, daemon: Settings) -> None:
        ids = []
        for label in ("one", "two"):
            with window(label, sync=False, settings=daemon) as watched:
                sample_for(0.1)
            assert watched.verdicts
            ids.append(watched.run_id or "")
        assert "SIMULATED" in gpuwatch(*daemon.flags(), "compare", *ids).out

    @pytest.mark.parametrize(
        ("arguments", "code", "says"),
        [
            (["0ca7"], 2, "two runs"),
            (["0ca7", "1ca7", "0ca7"], 2, "found 3"),
            (["0ca7", "ffff"], 1, "ffff"),
            (["0ca7", "1ca7", "--accept", "nonsense"], 2, "nonsense"),
            (["0ca7", "a.py:f"], 2, "two runs or two functions"),
            (["0ca7", "--at", "HEAD"], 2, "FILE.py:FUNCTION"),
        ],
    )
    def test_compare_refuses_wrong_runs_in_one_line(
        self, gpuwatch: Gpuwatch, store: Stored, arguments: list[str], code: int, says: str
    ) -> None:
        ended = gpuwatch(*store(), "compare", *arguments)
        assert (ended.code, ended.out, ended.err.count("\n")) == (code, "", 1)
        assert says in ended.err


@pytest.fixture
def folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working folder with functions; ``b.py:g`` sleeps twenty times as long as ``a.py:f``."""
    monkeypatch.chdir(home)
    (home / "a.py").write_text(f"import time\ndef f():\n    return {FAST}\n")
    (home / "b.py").write_text(f"import time\ndef g():\n    return {SLOW}\ndef same():\n    return {FAST}\nvalue = 1\n")
    (home / "broken.py").write_text("def f(:\n")
    (home / "leaves.py").write_text("import sys\ndef f():\n    sys.exit(0)\n")
    (home / "raises.py").write_text("def f():\n    return g()\ndef g():\n    raise ValueError('too wide')\n")
    (home / "later.py").write_text("async def f(): ...\n")
    (home / "takes.py").write_text("def f(x):\n    return x\n")
    (home / "given.py").write_text(
        "import time\n\ndef inputs():\n    return (range(200),)\n\n"
        "def f(x):\n    return time.sleep(0.0002) or sum(x)\n\ndef g(x):\n    return time.sleep(0.0002) or sum([*x, *x]) // 2\n"
    )
    return home


QUICK = ("--seconds", "0.3")


class TestFunctions:
    def test_compare_finds_a_slower_function_of_another_file(self, gpuwatch: Gpuwatch, daemon: Settings, folder: Path) -> None:
        ended = gpuwatch(*daemon.flags(), "compare", "a.py:f", "b.py:g", *QUICK, "--no-check", "--json")
        assert ended.code == 0, ended.err
        check(ended.data, "urn:gpuwatch:cli:1#/$defs/compare")
        found = ended.data["comparisons"][0]
        assert (found["decision"], ended.data["timer"], ended.data["runs"]) == ("slower", "host", None)
        assert ended.data["verdict"]["label"] == "a.py:f and b.py:g"

    def test_compare_of_differing_results_is_incomparable(self, gpuwatch: Gpuwatch, daemon: Settings, folder: Path) -> None:
        ended = gpuwatch(*daemon.flags(), "compare", "a.py:f", "b.py:g", *QUICK)
        assert ended.out.startswith("INCOMPARABLE  b.py:g against a.py:f")
        assert "computes something else" in ended.out

    def test_compare_passes_inputs_to_functions_with_arguments(
        self, gpuwatch: Gpuwatch, daemon: Settings, folder: Path
    ) -> None:
        ended = gpuwatch(*daemon.flags(), "compare", "given.py:f", "given.py:g", *QUICK, "--json")
        assert ended.data["comparisons"][0]["error_ratio"] == 0.0
        assert ended.data["comparisons"][0]["decision"] != "incomparable"

    def test_compare_at_a_revision_puts_the_revision_first(self, gpuwatch: Gpuwatch, daemon: Settings, folder: Path) -> None:
        """The function of the revision is A and the working tree's is B; a wrong revision or file is refused."""
        git(folder, "init", "-q")
        (folder / "notes.txt").write_text(f"open({str(folder / 'ran')!r}, 'w')")
        git(folder, "add", "a.py", "notes.txt")
        git(folder, "-c", "user.name=x", "-c", "user.email=x@x", "commit", "-q", "-m", "first")
        (folder / "a.py").write_text(f"import time\ndef f():\n    return {SLOW}\n")
        ended = gpuwatch(*daemon.flags(), "compare", "a.py:f", "--at", "HEAD", *QUICK, "--no-check", "--json")
        found = ended.data["comparisons"][0]
        assert (found["a"], found["b"]) == ("a.py:f@HEAD", "a.py:f")
        assert found["ratio"]["ratio"] > 2.0  # next to other work the decision may be inconclusive
        no_python = "notes.txt: expected a Python file, one whose name ends in .py"
        for file, revision, says in (
            ("a.py", "nonsense", "revision"), ("a.py", "--version", "revision"), ("notes.txt", "HEAD", no_python),
        ):  # fmt: skip
            wrong = gpuwatch("compare", f"{file}:f", f"--at={revision}")
            assert (wrong.code, wrong.out) == (2, "")
            assert says in wrong.err
        assert not (folder / "ran").exists()
        absent = gpuwatch("compare", "b.py:g", "--at", "HEAD")
        assert "none there" in absent.err

    def test_compare_at_a_revision_imports_its_helpers(self, gpuwatch: Gpuwatch, daemon: Settings, folder: Path) -> None:
        """The revision's slower helper makes the working tree faster, and the worktree is removed afterwards."""
        git(folder, "init", "-q")
        (folder / "helper.py").write_text(f"import time\ndef work():\n    return {SLOW}\n")
        (folder / "uses.py").write_text("import helper\ndef f():\n    return helper.work()\n")
        git(folder, "add", "helper.py", "uses.py")
        git(folder, "-c", "user.name=x", "-c", "user.email=x@x", "commit", "-q", "-m", "first")
        (folder / "helper.py").write_text(f"import time\ndef work():\n    return {FAST}\n")
        try:
            ended = gpuwatch(*daemon.flags(), "compare", "uses.py:f", "--at", "HEAD", *QUICK, "--no-check", "--json")
        finally:
            sys.modules.pop("helper", None)
        assert ended.data["comparisons"][0]["ratio"]["ratio"] < 0.5
        listed = subprocess.run(["git", "-C", str(folder), "worktree", "list"], capture_output=True, check=True, text=True)
        assert listed.stdout.count("\n") == 1

    def test_compare_of_several_functions_uses_the_first_as_base(
        self, gpuwatch: Gpuwatch, daemon: Settings, folder: Path
    ) -> None:
        """Each other function is compared with the first function, and has a ratio to the first function's speed."""
        variants = ("a.py:f", "b.py:g", "b.py:same")
        ended = gpuwatch(*daemon.flags(), "compare", *variants, *QUICK, "--no-check", "--json")
        check(ended.data, "urn:gpuwatch:cli:1#/$defs/compare")
        assert [each["b"] for each in ended.data["comparisons"]] == list(variants[1:])
        assert ended.data["comparisons"][0]["reference_ratio"]["ratio"] < 0.5

    def test_compare_allows_results_to_differ_by_rtol(self, gpuwatch: Gpuwatch, daemon: Settings, folder: Path) -> None:
        (folder / "near.py").write_text(
            "import time\ndef f():\n    return time.sleep(0.0002) or 1.0\ndef g():\n    return time.sleep(0.0002) or 1.01\n"
        )
        decisions = [
            gpuwatch(*daemon.flags(), "compare", "near.py:f", "near.py:g", *QUICK, *options, "--json").data["comparisons"][0]
            for options in ((), ("--rtol", "0.1"))
        ]
        assert [each["decision"] == "incomparable" for each in decisions] == [True, False]

    def test_compare_checks_results_on_check_inputs(self, gpuwatch: Gpuwatch, daemon: Settings, folder: Path) -> None:
        """Results that differ only on check_inputs make the functions incomparable."""
        (folder / "sizes.py").write_text(
            "def inputs(seed):\n    return (range(seed + 1),)\ndef check_inputs():\n    return [(range(9),), (range(50),)]\n"
            "import time\ndef f(x):\n    return time.sleep(0.0002) or len(x)\n"
            "def g(x):\n    return time.sleep(0.0002) or min(len(x), 40)\n"
        )
        ended = gpuwatch(*daemon.flags(), "compare", "sizes.py:f", "sizes.py:g", *QUICK, "--json")
        assert ended.data["comparisons"][0]["decision"] == "incomparable"
        assert ended.data["checked_sets_count"] == 5

    def test_compare_reads_tolerance_as_a_percentage(self, gpuwatch: Gpuwatch, daemon: Settings, folder: Path) -> None:
        ended = gpuwatch(*daemon.flags(), "compare", "a.py:f", "b.py:same", *QUICK, "--no-check", "--tolerance", "2%", "--json")
        assert ended.data["comparisons"][0]["margin_ratio"] == 0.02
        refused = gpuwatch("compare", "a.py:f", "b.py:same", "--tolerance", "2")
        assert (refused.code, refused.err.count("\n")) == (2, 1)
        assert "--tolerance: expected a share" in refused.err

    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            (["none.py:f", "a.py:f"], "none.py: expected a Python file"),
            (["a.py", "b.py:g"], "FILE.py:FUNCTION"),
            (["a.py:f", "b.py:gg"], "did you mean 'g'"),
            (["a.py:f", "b.py:value"], "expected a function 'value'"),
            (["a.py:f", "broken.py:f"], "SyntaxError"),
            (["a.py:f", "takes.py:f"], "inputs()"),
            (["a.py:f", "given.py:f"], "found that the second takes none"),
            (["a.py:f", "leaves.py:f"], "found one that calls sys.exit(0)"),
            (["a.py:f", "leaves.py:f", "--no-check"], "found one that calls sys.exit(0)"),
            (["a.py:f", "later.py:f", "--no-check"], "later.py:f: expected a function that does its work"),
            (["a.py:f"], "two functions"),
            (["a.py:f", "--at", "HEAD"], "git repository"),
            (["a.py:f", "b.py:g", "--accept", "boot-changed"], "found functions"),
        ],
    )
    def test_compare_refuses_wrong_functions_in_one_line(
        self, gpuwatch: Gpuwatch, folder: Path, arguments: list[str], says: str
    ) -> None:
        ended = gpuwatch("compare", *arguments)
        assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
        assert says in ended.err

    def test_compare_shows_only_the_functions_traceback(self, gpuwatch: Gpuwatch, folder: Path) -> None:
        """The traceback of a function's exception has the function's lines and none of gpuwatch's."""
        ended = gpuwatch("compare", "a.py:f", "raises.py:f")
        assert (ended.code, ended.out) == (1, "")
        assert ended.err.startswith("Traceback (most recent call last):\n  File ")
        assert ended.err.count("raises.py") == ended.err.count("File ") == 2
        assert ended.err.endswith("gpuwatch: expected functions that return, found one that raises ValueError: too wide\n")


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(folder), *arguments], check=True)
