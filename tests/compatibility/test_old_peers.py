"""Tests of clients of an earlier version with this daemon, and of this client with an earlier daemon."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gpuwatch as product
from annotate.rules import RETIRED
from gpuwatch.config.settings import Settings, load
from tests.compatibility import old_version
from tests.compatibility.conversation import Message, OldDaemon, Replayer, exchanges
from tests.compatibility.write import ACCEPTED, SOURCE, TIMES_S, shape
from tests.gpuwatch import live
from tests.gpuwatch.cli.conftest import Gpuwatch, gpuwatch, home

__all__ = ["gpuwatch", "home"]

COPY = "GPU-51301a7e-0000-0000-0000-000000000000"
# Parts of verdicts that depend on the load: in a window of one second a busy machine may lose samples.
MEASURED = ("facts", "effect_ratio", "span_ns", "severity", "answered", "why")


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Message, Message, Message]]:
    """Return the earlier clients' requests, each with the recorded and the current reply."""
    with live.running(tmp_path_factory.mktemp("replay"), SOURCE) as running:
        return list(Replayer(running.settings.socket, running.settings.state).replay())


def test_old_client_gets_the_same_answers(replayed: list[tuple[Message, Message, Message]]) -> None:
    """Every reply keeps its type, refusals keep their codes, and no field is missing, apart from those in MEASURED."""
    for request, before, after in replayed:
        assert (after["type"], after.get("code")) == (before["type"], before.get("code")), (request, after)
        assert sorted(set(shape(_stated(before))) - set(shape(_stated(after)))) == []


def test_old_client_gets_verdicts_with_the_same_rules(replayed: list[tuple[Message, Message, Message]]) -> None:
    """All rules of the earlier version, except retired ones, judge its clients' windows under the same claims and policies.

    The window on a shared GPU is rejected again.
    """
    judged = [(before, after) for _, before, after in replayed if before["type"] == "judged"]
    assert [before["status"] for before, _ in judged] == ["valid", "rejected"]
    for before, after in judged:
        for old, new in zip(before["verdicts"], after["verdicts"], strict=True):
            for name in ("schema", "label", "claim", "device", "policy", "simulated"):
                assert new[name] == old[name]
            assert {each["rule"] for each in old["findings"]} - set(RETIRED) <= {each["rule"] for each in new["findings"]}
    (_, neighbour) = judged[1]
    assert neighbour["status"] == "rejected"


def _stated(data: Any) -> Any:
    """Return the data without parts that depend on the load of the machine."""
    if isinstance(data, dict):
        return {key: _stated(each) for key, each in data.items() if key not in MEASURED}
    return [_stated(each) for each in data] if isinstance(data, list) else data


@pytest.fixture
def old_daemon(tmp_path: Path) -> Iterator[tuple[OldDaemon, Settings]]:
    """Yield a mock of the earlier version's daemon, and settings with its socket."""
    settings = load(
        {"source": SOURCE, "state": str(tmp_path / "state"), "socket": str(tmp_path / "s")}, environment={"HOME": "/"}
    )
    daemon = OldDaemon(settings.socket, settings.state)
    yield daemon, settings
    daemon.close()


def test_window_gets_an_old_daemons_verdict(old_daemon: tuple[OldDaemon, Settings]) -> None:
    """A window of the current client gets the earlier daemon's verdict."""
    daemon, settings = old_daemon
    with product.window("valid", settings=settings) as w:
        w.record(TIMES_S)
        w.declare(busy_ratio=0.97)
    (judged,) = [reply for _, request, reply in exchanges() if request["type"] == "verdicts"][:1]
    assert w.verdict.status == "valid"
    assert list(old_version.lost(judged["verdicts"][0], w.verdict.as_schema_1())) == []
    assert [each["type"] for each in daemon.asked] == ["hello", "open", "end", "times", "close", "hello", "verdicts"]


def test_requests_keep_an_old_daemons_fields(old_daemon: tuple[OldDaemon, Settings]) -> None:
    """Current requests contain the earlier fields with the same kind of value; the earlier daemon ignores new fields."""
    daemon, settings = old_daemon
    with product.window("valid", settings=settings, gpus=[COPY], policy=product.Policy(accept=ACCEPTED)) as w:
        w.record(TIMES_S)
    assert w.verdict.findings
    old = {request["type"]: request for _, request, _ in reversed(exchanges())}
    for request in daemon.asked:
        before, after = dict(old[request["type"]]), dict(request)
        for message in (before, after):
            message["told"] = {}  # the earlier facts had other names, and each fact is optional
        assert sorted(set(shape(before)) - set(shape(after))) == []


def test_block_runs_if_an_old_daemon_watches_no_gpu(old_daemon: tuple[OldDaemon, Settings]) -> None:
    """The earlier daemon's message has the form of a wrong argument, and names no GPU of the machine."""
    daemon, settings = old_daemon
    daemon.warning = f"gpus: expected the UUID of one GPU, found '{COPY}'; watched GPUs: none"
    with product.window("valid", settings=settings, gpus=[COPY]) as w:
        pass
    assert w.end_ns is not None


@pytest.mark.parametrize("arguments", [("top", "--once"), ("daemon", "status"), ("doctor",)], ids=" ".join)
def test_commands_show_an_old_daemon(
    gpuwatch: Gpuwatch, old_daemon: tuple[OldDaemon, Settings], arguments: tuple[str, ...]
) -> None:
    """Commands that query a daemon read the earlier daemon's answers."""
    ended = gpuwatch(*old_daemon[1].flags(), *arguments, "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["schema"] == 1


def test_marks_and_untrusted_windows_need_a_new_daemon(gpuwatch: Gpuwatch, old_daemon: tuple[OldDaemon, Settings]) -> None:
    """Marks fail and untrusted windows are unproven, because an earlier daemon would judge both as ordinary windows."""
    daemon, settings = old_daemon
    for command in (("mark", "begin", "a"), ("mark", "end", "a")):
        ended = gpuwatch(*settings.flags(), *command)
        assert ended.code == 1
        assert "expected a daemon of this version, found version 0.1.0" in ended.err
        assert "daemon stop" in ended.err
    with product.window("untrusted", settings=settings, untrusted=True) as w:
        pass
    assert w.verdict.status == "unproven"
    assert "untrusted code: expected a daemon of this version" in w.verdict.why
    assert {each["type"] for each in daemon.asked} == {"hello", "open"}


def test_stopping_an_old_daemon_names_the_kill_command(gpuwatch: Gpuwatch, old_daemon: tuple[OldDaemon, Settings]) -> None:
    """The error names the process to end, because the earlier daemon has no request to exit."""
    ended = gpuwatch(*old_daemon[1].flags(), "daemon", "stop")
    assert ended.code == 1
    assert f"found version 0.1.0; run: kill {os.getpid()}" in ended.err
