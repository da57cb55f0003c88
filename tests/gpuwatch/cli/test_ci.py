"""Tests of gpuwatch ci, and of the action and examples that call the command."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from annotate.capsule.pack import pack, unpack
from annotate.evidence import Evidence
from annotate.judge import judge
from gpuwatch.config.settings import Settings
from tests.annotate.builders import OWN
from tests.gpuwatch.cli.conftest import Gpuwatch
from tests.gpuwatch.gate.test_gate_outcome import NEIGHBOUR, made
from tests.gpuwatch.store.stored import a_run, opened
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[3]
SHORT = [sys.executable, "-c", "import gpuwatch\nwith gpuwatch.window('for ci', sync=False): pass"]


def stored(folder: Path, *pieces: Evidence, uid: int | None = None) -> list[str]:
    """Store windows with their verdicts; return the options that select the windows."""
    store = opened(folder)
    for place, piece in enumerate(pieces):
        assert piece.device is not None
        uuid = piece.device.uuid
        run = a_run(
            id=f"0ca7f00d{place:02}", label=piece.window.label, uuids=(uuid,), uid=os.getuid() if uid is None else uid,
            verdicts=(judge(piece).to_dict(),), status=judge(piece).status.value, begin_ns=piece.window.begin_ns,
            end_ns=piece.window.end_ns,
        )  # fmt: skip
        store.put_run(run, {uuid: pack([piece])})
    store.close()
    return ["--state", str(folder), "--since", "1h"]


def test_ci_compares_stored_windows_with_a_file(gpuwatch: Gpuwatch, tmp_path: Path) -> None:
    """A job saves a baseline. A slower later job fails with 1; an equal window and a window without a baseline pass."""
    base, saved = stored(tmp_path / "base", made()), str(tmp_path / "base.capsule")
    assert gpuwatch("ci", *base, "--save", saved).code == 0
    same, slower = stored(tmp_path / "same", made(seed=1)), stored(tmp_path / "slow", made(2.1e-3))
    passed, failed = gpuwatch("ci", *same, "--baseline", saved), gpuwatch("ci", *slower, "--baseline", saved)
    assert (passed.code, passed.out.splitlines()[1].split()[:2]) == (0, ["PASS", "gemm"])
    assert (failed.code, failed.out.splitlines()[1].split()[:2]) == (1, ["FAIL", "gemm"])
    assert "slower than the baseline" in failed.out
    other = gpuwatch("ci", *stored(tmp_path / "other", made(label="new")), "--baseline", saved)
    assert (other.code, "the baseline has no window of this name" in other.out) == (0, True)


def test_ci_is_neutral_for_a_spoiled_window(gpuwatch: Gpuwatch, tmp_path: Path) -> None:
    """A spoiled window is neutral with the given exit code, and never becomes a baseline."""
    flags = stored(tmp_path / "state", made(processes=(OWN, NEIGHBOUR)), made(label="other"))
    saved = tmp_path / "base.capsule"
    ended = gpuwatch("ci", *flags, "--neutral-exit", "75", "--save", str(saved))
    assert ended.code == 75
    assert "1 pass, 1 neutral" in ended.err
    assert [each.window.label for each in unpack(saved.read_bytes())] == ["other"]
    assert gpuwatch("ci", *flags).code == 0
    assert gpuwatch("ci", *flags, "--label", "other", "--neutral-exit", "75").code == 0
    only = gpuwatch("ci", *flags, "--label", "gemm", "--save", str(tmp_path / "none"))
    assert "not written, no window; 1 spoiled or without evidence left out" in only.err
    assert not (tmp_path / "none").exists()


def test_ci_applies_a_policy_to_the_users_own_windows(gpuwatch: Gpuwatch, tmp_path: Path) -> None:
    """An accepted hazard spoils nothing, and other users' windows do not count."""
    flags = stored(tmp_path / "mine", made(processes=(OWN, NEIGHBOUR)))
    assert "PASS" in gpuwatch("ci", *flags, "--accept", "contention-process").out
    theirs = gpuwatch("ci", *stored(tmp_path / "theirs", made(), uid=os.getuid() + 1))
    assert theirs.code == 1
    assert "expected a window in the job, found none" in theirs.err


def test_ci_writes_the_runners_files(gpuwatch: Gpuwatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On GitHub the command appends Markdown and outputs, prints an annotation, and writes both exports."""
    flags = stored(tmp_path / "state", made(processes=(OWN, NEIGHBOUR)), made(label="other"))
    files = {name: tmp_path / name for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT")}
    for name, path in files.items():
        path.write_text("before\n")
        monkeypatch.setenv(name, str(path))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    exports = ["--benchmark-action", str(tmp_path / "a.json"), "--bencher", str(tmp_path / "b.json")]
    ended = gpuwatch("ci", *flags, *exports)
    assert files["GITHUB_STEP_SUMMARY"].read_text().startswith("before\n### gpuwatch: ⚪ neutral (1 pass, 1 neutral)")
    assert files["GITHUB_OUTPUT"].read_text().splitlines()[:2] == ["before", "outcome=neutral"]
    assert next(line for line in ended.out.splitlines() if line.startswith("::")).startswith(
        "::warning title=gpuwatch%3A gemm::"
    )
    assert '"other"' in (tmp_path / "a.json").read_text()
    assert "gemm" not in (tmp_path / "b.json").read_text()


def test_ci_retries_a_neutral_job_and_returns_the_commands_code(gpuwatch: Gpuwatch, daemon: Settings) -> None:
    """An empty window is neutral after two tries; a failing command ends the job with its exit code, a missing one with 127."""
    ended = gpuwatch("ci", *daemon.flags(), "--retry", "1", "--neutral-exit", "75", "--", *SHORT)
    assert ended.code == 75, ended.err
    assert ended.err.count("running again (1 of 1)") == 1
    failed = gpuwatch("ci", *daemon.flags(), "--retry", "3", "--", "sh", "-c", "exit 4")
    assert (failed.code, "ended with exit code 4" in failed.err) == (4, True)
    assert gpuwatch("ci", *daemon.flags(), "--", "no-such-program").code == 127


def test_ci_runs_the_command_at_the_baselines_revision(
    gpuwatch: Gpuwatch, daemon: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command runs first at the baseline's revision, then in the working tree; an unknown revision is named."""
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / "value").write_text("old\n")
    for line in ("init -q", "add .", "-c user.name=a -c user.email=a@b commit -qm one"):
        subprocess.run(["git", *line.split()], cwd=repository, check=True)
    (repository / "value").write_text("new\n")
    monkeypatch.chdir(repository)
    log = tmp_path / "log"
    ended = gpuwatch("ci", *daemon.flags(), "--baseline", "HEAD", "--", "sh", "-c", f"cat value >> {log}")
    assert log.read_text() == "old\nnew\n"
    assert "found none" in ended.err
    assert "bad-revision" in gpuwatch("ci", *daemon.flags(), "--baseline", "bad-revision", "--", "true").err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "expected COMMAND or --since TIME, found neither"),
        (("--since", "1h", "--", "true"), "found both"),
        (("--since", "1h", "--retry", "1"), "--retry: expected COMMAND"),
        (("--since", "1h", "--baseline", "no-file"), "--baseline: expected a file, or a revision with COMMAND"),
        (("--since", "1h", "--save", "/no/folder/x"), "--save: expected a file in a writable folder"),
        (("--bencher", "/no/folder/x", "--", "touch", "ran"), "--bencher: expected a file in a writable folder"),
        (("--summary", ".", "--", "touch", "ran"), "--summary: expected a file that can be appended to, found ."),
        (("--outputs", "/no/x", "--", "touch", "ran"), "--outputs: expected a file that can be appended to, found /no/x"),
        (("--clock", "1500", "--", "touch", "ran"), "--clock: expected --baseline with it"),
        (
            ("--baseline", "nothere", "--", "touch", "ran"),
            "--baseline: no file 'nothere' exists, and as a git revision: expected",
        ),
    ],
)
def test_ci_refuses_wrong_options_before_the_command_runs(
    gpuwatch: Gpuwatch, home: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], words: str
) -> None:
    monkeypatch.chdir(home)
    ended = gpuwatch("ci", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert words in ended.err
    assert ended.err.count("\n") == 1
    assert not (home / "ran").exists()


def test_ci_refuses_a_pipe_for_the_summary(gpuwatch: Gpuwatch, home: Path) -> None:
    """A pipe is refused before the run, because opening a pipe would block after the run."""
    os.mkfifo(home / "pipe")
    ended = gpuwatch("ci", "--summary", str(home / "pipe"), "--", "true")
    assert ended.code == 2
    assert "--summary: expected a file that can be appended to" in ended.err


def test_ci_names_the_variable_of_a_bad_runners_file(gpuwatch: Gpuwatch, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal of a folder in GITHUB_OUTPUT names the variable."""
    monkeypatch.setenv("GITHUB_OUTPUT", str(home))
    assert "$GITHUB_OUTPUT: expected a file that can be appended to" in gpuwatch("ci", "--", "true").err


@pytest.mark.parametrize(("command", "code"), [("no-such-program", 127), ("/etc/passwd", 126)])
def test_ci_exits_like_a_shell_if_the_command_cannot_start(gpuwatch: Gpuwatch, command: str, code: int) -> None:
    """A command that cannot start gives a shell's exit code and only the system's message."""
    ended = gpuwatch("ci", "--", command)
    assert (ended.code, ended.out) == (code, "")
    assert ended.err in (f"gpuwatch: {command}: {os.strerror(number)}\n" for number in (errno.ENOENT, errno.EACCES))


def test_ci_escapes_runner_commands_in_labels(gpuwatch: Gpuwatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No label reaches GitHub's runner as ##[command] or as ::command:: at the start of a line."""
    flags = stored(tmp_path / "state", made(processes=(OWN, NEIGHBOUR), label="##[add-mask]x\n::error::y"))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    ended = gpuwatch("ci", *flags)
    assert "##[" not in ended.out + ended.err
    assert [line[:9] for line in ended.out.splitlines() if line.lstrip().startswith("::")] == ["::warning"]
    shown = gpuwatch("show", *flags[:2])
    assert "##\\[add-mask]x" in shown.out
    assert "##[add-mask]x" in json.loads(gpuwatch("show", *flags[:2], "--json").out)["label"]


def run_example(daemon: Settings, folder: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command like a CI runner: in a runner's environment, with this tree's gpuwatch on PATH."""
    environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(folder), **variables}
    for word in daemon.flags():
        name, _, value = word.removeprefix("--").partition("=")
        environment[f"GPUWATCH_{name.upper()}"] = value
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def test_composite_action_runs_as_in_a_runner(daemon: Settings, tmp_path: Path) -> None:
    """The action reads inputs from the environment, so quotes are kept, and writes outcome and summary files."""
    script = re.search(r"      run: \|\n((?: {8}.*\n)+)", (ROOT / "action.yml").read_text())
    assert script is not None
    inputs = {"COMMAND": 'echo "it\'s" && python3 bench.py', "BASELINE": "", "SAVE": "", "RETRY": "1", "FAIL_ON": "rejected"}
    (tmp_path / "bench.py").write_text((ROOT / "examples" / "ci" / "bench.py").read_text())
    files = {
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
        "GITHUB_OUTPUT": str(tmp_path / "outputs"),
        "GITHUB_ACTIONS": "true",
    }
    ended = run_example(daemon, tmp_path, "bash", "-c", textwrap.dedent(script[1]), **inputs, **files, SECONDS_COUNT="0.1")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("it's\n") == 2
    assert (tmp_path / "outputs").read_text().startswith("outcome=neutral\n")
    assert "step" in (tmp_path / "summary").read_text()


def test_shell_example_exits_75_if_neutral(daemon: Settings, tmp_path: Path) -> None:
    """The example ends with 75 and saves no baseline, because a window of a tenth of a second proves nothing."""
    gate, bench = (str(ROOT / "examples" / "ci" / name) for name in ("gate.sh", "bench.py"))
    ended = run_example(daemon, tmp_path, gate, "base.capsule", "python3", bench, SECONDS_COUNT="0.1")
    assert ended.returncode == 75, ended.stderr
    assert not (tmp_path / "base.capsule").exists()


def test_gitlab_example_uses_existing_options(gpuwatch: Gpuwatch) -> None:
    """The GitLab jobs use existing options, and the benchmark job allows the neutral exit code of gpuwatch ci."""
    text = (ROOT / "examples" / "ci" / "gitlab.yml").read_text()
    known = gpuwatch("ci", "--help").out
    assert all(option in known for option in re.findall(r" (--[a-z-]+)", text))
    assert "--neutral-exit 75" in text
    assert "exit_codes: 75" in text
