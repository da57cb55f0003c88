"""Tests of the messages to a service manager, and of the variables from it."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from gpuwatch.errors import UsageError
from gpuwatch.systemd import notify
from tests.systemd.manager import manager


@pytest.mark.parametrize("abstract", [False, True])
def test_notify_messages_arrive_at_a_path_or_abstract_name(tmp_path: Path, abstract: bool) -> None:
    with manager(f"@gpuwatch-test-{os.getpid()}" if abstract else tmp_path / "notify") as told:
        service, _ = notify.taken({"NOTIFY_SOCKET": told.address})
        service.ready("two GPUs")
        assert told.until(lambda _: True) == {"READY": "1", "STATUS": "two GPUs"}
        service.status("fine")
        assert told.until(lambda _: True) == {"WATCHDOG": "1", "STATUS": "fine"}
        service.status("not so fine", alive=False)
        assert told.until(lambda _: True) == {"STATUS": "not so fine"}
        service.reloading()
        assert told.until(lambda _: True)["MONOTONIC_USEC"].isdigit()
        service.stopping()
        assert told.until(lambda _: True)["STOPPING"] == "1"


def test_notify_status_is_one_line(tmp_path: Path) -> None:
    with manager(tmp_path / "notify") as told:
        notify.Manager(told.address).status("bad driver\nREADY=1\nMAINPID=1 " + "x" * 9000, alive=False)
        said = told.until(lambda _: True)
    assert set(said) == {"STATUS"}
    assert len(said["STATUS"]) <= notify.STATUS_LENGTH


def test_notify_variables_leave_the_environment() -> None:
    """``taken`` removes the manager's variables, which child processes must not use."""
    environment = {
        "NOTIFY_SOCKET": "/nowhere", "WATCHDOG_USEC": "30000000", "LISTEN_PID": "1", "LISTEN_FDS": "7", "LISTEN_FDNAMES": "a",
        "PATH": "/bin",
    }  # fmt: skip
    service, sockets = notify.taken(environment)
    assert environment == {"PATH": "/bin"}
    assert service.watchdog_s == 30.0
    assert sockets == []  # LISTEN_PID is another process's PID


def test_notify_without_a_manager_is_not_an_error(tmp_path: Path) -> None:
    """Messages without a manager, or to a manager that is gone, raise no error."""
    nobody, _ = notify.taken({})
    nobody.ready("unheard")
    assert not nobody.listens
    assert nobody.watchdog_s is None
    gone = notify.Manager(str(tmp_path / "gone"))
    gone.status("unheard too")


def test_notify_ignores_another_processes_watchdog() -> None:
    service, _ = notify.taken({"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "1000", "WATCHDOG_PID": str(os.getpid() + 1)})
    assert service.watchdog_s is None


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"NOTIFY_SOCKET": "relative"}, "NOTIFY_SOCKET: expected a path, .* found 'relative'; .* unset it$"),
        ({"WATCHDOG_USEC": "-1"}, "WATCHDOG_USEC: expected a number, found '-1'; .* unset it$"),
        ({"LISTEN_PID": "own", "LISTEN_FDS": "many"}, "LISTEN_FDS: expected a number, found 'many'; .* unset it$"),
    ],
)
def test_notify_rejects_invalid_variables(environment: dict[str, str], says: str) -> None:
    own = str(os.getpid())  # not at import: xdist's workers are forked afterwards
    with pytest.raises(UsageError, match=says):
        notify.taken({name: own if value == "own" else value for name, value in environment.items()})


def test_notify_full_queue_does_not_block(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf:
        deaf.bind(str(tmp_path / "deaf"))
        service = notify.Manager(str(tmp_path / "deaf"))
        for _ in range(2000):
            service.status("nobody reads this")
