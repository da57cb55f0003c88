"""Tests of a window's tags."""

from __future__ import annotations

import re
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpuwatch as product
from gpuwatch.client.connection import connect
from gpuwatch.client.window_tags import OWN_COUNT, VARIABLE, WindowTags, check_tags, read_tags, write_variable
from gpuwatch.config.settings import Settings
from gpuwatch.errors import DaemonError, UsageError
from gpuwatch.process.surroundings import FLAGS, IMAGES, SYSTEMS, found_tags
from gpuwatch.wire import messages
from tests.examples import share_of
from tests.gpuwatch.cli.conftest import Gpuwatch, gpuwatch, home  # noqa: F401 - fixtures
from tests.gpuwatch.fleet.warehouse import PAGE
from tests.gpuwatch.live import judged_run
from tests.gpuwatch.store.stored import a_run, opened

SLURM = {"SLURM_JOB_ID": "4711", "SLURM_JOB_USER": "ann", "SLURM_JOB_ACCOUNT": "physics", "SLURM_ARRAY_TASK_ID": "3"}
TEXT = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "Zs")), min_size=1, max_size=40).filter(str.strip)
NAME = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,20}", fullmatch=True)


@pytest.mark.parametrize(
    ("tags", "says"),
    [
        (["team"], "tags: expected names and values"),
        ({"": "x"}, "tags: expected a name of at most 64"),
        ({"a b": "x"}, "tags: expected a name of at most 64"),
        ({"a" * 65: "x"}, "tags: expected a name of at most 64"),
        ({3: "x"}, "tags: expected a name of at most 64"),
        ({"team": None}, "tags: team: expected text or a number, found None"),
        ({"team": ""}, "tags: team: expected one line of printable text"),
        ({"team": "a\nb"}, "tags: team: expected one line of printable text"),
        ({"team": "x" * 1025}, "tags: team: expected at most 1024 characters, found 1025"),
        ({"team": 10**5000}, "tags: team: expected at most 1024 characters, found a number of 16610 bits"),
        ({f"t{i}": "x" for i in range(33)}, "tags: expected at most 32 tags in all, found 33"),
        ({f"t{i}": "x" * 1000 for i in range(5)}, "tags: expected at most 4096 characters in all"),
    ],
)
def test_window_refuses_wrong_tags(tags: Any, says: str) -> None:
    """Wrong tags of the user raise an error instead of being truncated."""
    with pytest.raises(UsageError, match=re.escape(says)):
        product.window(tags=tags)


def test_read_tags_reads_tags_or_names_the_option() -> None:
    assert read_tags(["team=vision", "flags=-O3 -g=2", "team=vision"]) == {"team": "vision", "flags": "-O3 -g=2"}
    with pytest.raises(UsageError, match="--tag: expected one value of team, found 'vision' and 'language'"):
        read_tags(["team=vision", "team=language"])
    for text, says in {"team": "expected KEY=VALUE", "=x": "expected a name", "team=": "one line of printable text"}.items():
        with pytest.raises(UsageError, match=f"--tag: .*{says}"):
            read_tags([text])


def test_check_tags_converts_numbers_and_booleans() -> None:
    assert check_tags({"n": 3, "rate": 0.5, "tuned": True}) == {"n": "3", "rate": "0.5", "tuned": "true"}


@settings(max_examples=share_of(100))
@given(st.dictionaries(NAME, TEXT.filter(str.isprintable), max_size=10))
def test_tags_survive_the_environment_variable(tags: dict[str, str]) -> None:
    """Inner windows read the tags that `gpuwatch run` writes into the variable."""
    kept = {name: text for name, text in tags.items() if text == text.strip()}
    assert WindowTags().at_opening(None, {VARIABLE: write_variable(kept)}).items() >= kept.items()


def test_user_tags_win_over_the_environment(tmp_path: Path) -> None:
    """Tags win in this order: the user's, the outer window's, the variable's, the job's."""
    environment = {**SLURM, VARIABLE: "account=chemistry,team=robots,room=1"}
    outer = WindowTags({"team": "vision", "room": "2"})
    tags = WindowTags({"team": "language"}).at_opening(outer, environment)
    assert {"job": "4711", "user": "ann", "account": "chemistry", "team": "language", "room": "2"}.items() <= tags.items()


def test_wrong_tag_of_the_environment_is_left_out_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A wrong or long tag from the environment is left out with a warning, and never truncated."""
    environment = {**SLURM, "SLURM_JOB_NAME": "x" * 2000, VARIABLE: "bad,b a=1,ok=1"}
    with caplog.at_level("WARNING", "gpuwatch"):
        tags = WindowTags().at_opening(None, environment)
    assert (tags["ok"], tags["job"]) == ("1", "4711")
    assert "job_name" not in tags
    assert len([each for each in caplog.messages if "of the environment or of the outer window is left out" in each]) == 3


def test_found_tags_are_limited_together_with_the_users() -> None:
    """The user's and the found tags together stay within the daemon's limits."""
    many = ",".join(f"v{i}={'y' * 300}" for i in range(60))
    tags = WindowTags({f"t{i}": "x" * 100 for i in range(OWN_COUNT)}).at_opening(None, {VARIABLE: many})
    assert len(tags) <= messages.TAGS_COUNT
    assert sum(len(name) + len(text) for name, text in tags.items()) <= messages.TAGS_LENGTH


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_found_tags_of_each_batch_or_ci_system(system: Any, tmp_path: Path) -> None:
    """A variable is a tag only under its own system, and docs/FLEET.md lists the variable."""
    values = {variable: f"{tag} of {system.name}" for tag, variable in system.variables.items()}
    named = {tag: f"{tag} of {system.name}" for tag in system.variables if system.variables[tag] != system.shown_by}
    found = found_tags({**values, system.shown_by: values.get(system.shown_by, "1")}, tmp_path)
    assert named.items() <= found.items()
    without = {name: value for name, value in values.items() if name != system.shown_by}
    assert found_tags(without, tmp_path) == {}
    page = PAGE.read_text()
    for tag, variable in system.variables.items():
        assert f"`{tag}`" in page, tag
        assert f"`{variable}`" in page, variable


def test_image_and_flags_are_tags(tmp_path: Path) -> None:
    """The image of a container inside the CI system's container is the tag."""
    inner = {IMAGES[0]: "/images/a.sif", FLAGS[1]: "-O3", FLAGS[2]: "--x=1"}
    assert found_tags({"GITLAB_CI": "true", "CI_JOB_IMAGE": "outer", **inner}, tmp_path) == {
        "image": "/images/a.sif",
        "compile_flags": f"{FLAGS[1]}=-O3 {FLAGS[2]}=--x=1",
    }


def test_git_revision_is_that_of_the_folder(tmp_path: Path) -> None:
    """The git files give the commit of a branch (packed or not), a worktree or a detached HEAD; damaged files give no tag."""

    def git(*arguments: str, folder: Path = tmp_path / "a") -> str:
        names = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
        ended = subprocess.run(["git", *names, *arguments], cwd=folder, capture_output=True, text=True, check=True)
        return ended.stdout.strip()

    (tmp_path / "a" / "below").mkdir(parents=True)
    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "one")
    commit = git("rev-parse", "HEAD")
    assert found_tags({}, tmp_path / "a" / "below") == {"git_revision": commit}
    git("worktree", "add", "-q", "-b", "other", str(tmp_path / "b"))
    assert found_tags({"GITHUB_ACTIONS": "true", "GITHUB_SHA": "other"}, tmp_path / "b") == {"git_revision": commit}
    git("pack-refs", "--all")
    (tmp_path / "a" / "packed").mkdir()
    assert found_tags({}, tmp_path / "a" / "packed") == {"git_revision": commit}
    git("checkout", "-q", "--detach")
    (tmp_path / "a" / "detached").mkdir()
    assert found_tags({}, tmp_path / "a" / "detached") == {"git_revision": commit}
    (tmp_path / "a" / ".git" / "HEAD").write_text("no commit at all")
    assert found_tags({}, tmp_path / "a") == {}
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / ".git").write_text("gitdir: \0")
    assert found_tags({}, tmp_path / "c") == {}


def test_tags_of_a_window_are_stored(copying: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SLURM.items():
        monkeypatch.setenv(name, value)
    with product.window("outer", tags={"team": "vision"}, sync=False, settings=copying) as outer:
        with product.window("inner", sync=False, settings=copying) as inner:
            inner.declare(variant="b")

        @product.window(tags={"kind": "decorated"}, sync=False, settings=copying)
        def work() -> None: ...

        work()
    decorated = work.window  # type: ignore[attr-defined]  # functions take attributes
    for window, own in ((outer, {}), (inner, {"variant": "b"}), (decorated, {"kind": "decorated"})):
        assert window.verdict
        stored = dict(judged_run(copying.state, str(window.run_id)).tags)
        assert {"job": "4711", "slurm_job": "4711", "account": "physics", "team": "vision", **own}.items() <= stored.items()
        assert window.to_dict()["tags"] == stored


def test_too_many_unknown_facts_change_no_tags() -> None:
    """Refused facts do not become tags, because the daemon would refuse a close with too many tags."""
    tags = WindowTags({f"t{i}": "x" for i in range(30)})
    assert tags.take_unknown({"a": 1, "cache": "cold", "none": None}, ["cache"]) == {"cache": "cold"}
    with pytest.raises(UsageError, match="declare: expected at most 32 tags in all, found 33"):
        tags.take_unknown({"b": 1, "c": 2}, ["cache"])
    assert tags.declared == {"a": "1"}


def test_daemon_limits_the_tags_of_a_hostile_client(copying: Settings) -> None:
    """The daemon refuses many tags, long tags, and more tags at the end; the window stays open."""
    with connect(copying) as client:
        for tags, says in (
            ({f"t{i}": "x" for i in range(65)}, "tags: expected at most 64 entries"),
            ({"t": "x" * 1025}, "tags.*: expected at most 1024 characters"),
            ({"t" * 65: "x"}, "expected at most 64 characters"),
            ({f"t{i}": "x" * 1000 for i in range(9)}, "expected at most 64 with 8192 characters together, found 9 with 9018"),
        ):
            with pytest.raises(DaemonError, match=says):
                client.exchange(messages.Open(tags=tags), messages.Opened)
        opened_window = client.exchange(messages.Open(tags={f"t{i}": "x" for i in range(40)}), messages.Opened)
        end = {"run": opened_window.run, "begin_ns": opened_window.opened_ns, "end_ns": opened_window.opened_ns}
        with pytest.raises(DaemonError, match="expected at most 64 with 8192 characters together, found 80 with"):
            client.exchange(messages.Close(**end, tags={f"u{i}": "x" for i in range(40)}), messages.Closed)  # type: ignore[arg-type]
        client.exchange(messages.Close(**end), messages.Closed)  # type: ignore[arg-type]


def test_old_greeting_means_that_tags_are_not_stored() -> None:
    old = msgspec.json.decode(
        b'{"type":"welcome","protocol":2,"version":"0.1","source":"nvml","simulated":false,"state":"","pid":1,"boot_id":""}',
        type=messages.Welcome,
    )
    assert not old.takes_tags


def stored_runs(folder: Path) -> tuple[str, str]:
    """Store four runs with different tags; return the options that select the store."""
    store = opened(folder)
    for i, tags in enumerate(({"team": "vision", "job": "1"}, {"team": "vision", "job": "2"}, {"team": "language"}, {})):
        store.put_run(a_run(id=f"{i:010d}", label=f"w{i}", tags=tags, status="unproven"), {})
    assert store.flush()
    store.close()
    return "--state", str(folder)


def test_audit_filters_by_tags_and_show_prints_tags(gpuwatch: Gpuwatch, tmp_path: Path) -> None:  # noqa: F811
    state = stored_runs(tmp_path / "state")

    def listed(*tags: str) -> list[str]:
        found = gpuwatch(*state, "audit", "--json", *(word for tag in tags for word in ("--tag", tag)))
        return sorted(run["label"] for run in found.data["runs"])

    assert listed("team=vision") == ["w0", "w1"]
    assert listed("team") == ["w0", "w1", "w2"]
    assert listed("team=vision", "job=2") == ["w1"]
    assert listed("team=visio") == []
    assert listed() == ["w0", "w1", "w2", "w3"]
    found = gpuwatch(*state, "audit", "--json", "--tag", "job=1").data["runs"]
    assert [run["tags"] for run in found] == [{"team": "vision", "job": "1"}]
    assert gpuwatch(*state, "show", "w1", "--json").data["tags"] == {"team": "vision", "job": "2"}
    assert "tags: job=2 team=vision" in gpuwatch(*state, "show", "w1").err
    for wrong in (("--tag", "=x"), ("--tag", "team="), ("--tag", "team=a", "--tag", "team=b"), ("--tag", "a", "--from", "-1s")):
        refused = gpuwatch(*state, "audit", *wrong)
        assert (refused.code, len(refused.err.strip().splitlines())) == (2, 1)


def test_damaged_tags_hide_no_other_window(gpuwatch: Gpuwatch, tmp_path: Path) -> None:  # noqa: F811
    """A row with unreadable tags has no tags, and a store of an older version lists windows without tags."""
    state = stored_runs(tmp_path / "state")
    with sqlite3.connect(tmp_path / "state" / "gpuwatch.db") as connection:
        connection.execute("UPDATE runs SET tags = '{torn' WHERE label = 'w1'")
    found = gpuwatch(*state, "audit", "--json", "--tag", "team=vision")
    assert [run["label"] for run in found.data["runs"]] == ["w0"]
    with sqlite3.connect(tmp_path / "state" / "gpuwatch.db") as connection:
        for (view,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'view'").fetchall():
            connection.execute(f'DROP VIEW "{view}"')
        connection.execute("ALTER TABLE runs DROP COLUMN tags")
    assert gpuwatch(*state, "audit", "--json", "--tag", "team=vision").data["runs"] == []
    assert [run["tags"] for run in gpuwatch(*state, "audit", "--json").data["runs"]] == [{}] * 4
