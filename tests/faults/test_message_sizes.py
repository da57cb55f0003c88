"""Tests of messages at their limits and beyond: each gets a short answer, memory is bounded, and windows continue."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Annotated, Any, get_args

import msgspec
import pytest
from msgspec import inspect

import gpuwatch
from gpuwatch import clock
from gpuwatch.client.connection import Client, connect
from gpuwatch.config.settings import Settings
from gpuwatch.store import Reader
from gpuwatch.wire import messages
from tests.faults import stores
from tests.faults.message_sizes import Sized, UnboundedError, check_bounded, least, sized
from tests.gpuwatch.live import Live, running
from tests.waiting import PATIENCE_S

REQUESTS: dict[str, inspect.StructType] = {
    found.tag: found  # type: ignore[misc]  # every message has a tag
    for found in map(inspect.type_info, get_args(messages.Request))
    if isinstance(found, inspect.StructType)
}
MOST_GROWN_BYTES = 100 << 20
REFUSAL_BYTES = 8192  # length of a refusal: a sentence, and a truncated value


def dial(settings: Settings) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(PATIENCE_S)
    connection.connect(str(settings.socket))
    return connection


def asked(connection: socket.socket, message: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """Return the answer to a message, and its size in bytes."""
    connection.sendall(json.dumps(message, ensure_ascii=False).encode() + b"\n")
    with connection.makefile("rb") as answers:
        line = answers.readline()
    return json.loads(line), len(line)


def plain(kind: str) -> dict[str, Any]:
    """Return a message with only the required fields."""
    return {"type": kind} | {field.encode_name: least(field.type) for field in REQUESTS[kind].fields if field.required}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Run a daemon that has judged a first window."""
    with running(tmp_path_factory.mktemp("sizes")) as live:
        with gpuwatch.window("first", settings=live.settings) as w:  # the first window loads further modules
            pass
        assert w.verdict
        yield live


@pytest.fixture
def beside(daemon: Live) -> Iterator[Client]:
    """Yield a client whose window stays open, and check that the daemon's memory grew little."""
    before_bytes = stores.memory_bytes(daemon.process.pid)
    with connect(daemon.settings) as client:
        opened = client.open(label="beside")
        yield client
        client.close_window(opened.run, opened.opened_ns, clock.now_ns())
        assert client.verdicts(opened.run).verdicts
    assert stores.memory_bytes(daemon.process.pid) - before_bytes < MOST_GROWN_BYTES


def refused(answer: dict[str, Any], size: int) -> str:
    """Check a short one-line refusal, and return its message."""
    assert answer["type"] == "refused"
    assert "\n" not in answer["message"]
    assert size < REFUSAL_BYTES
    return str(answer["message"])


def check_answer(each: Sized, answer: dict[str, Any], size: int) -> None:
    """Check that a value at its limit gets an answer, and a value beyond a refusal that names the field."""
    if each.refused:
        message = refused(answer, size)
        assert each.field in message, "the refusal names the field"
        assert "expected" in message or "out of range" in message
    elif answer["type"] == "refused":
        refused(answer, size)
    else:
        assert answer["type"] in ("opened", "taken", "closed", "judged", "state", "now"), answer


def test_every_request_field_has_a_limit() -> None:
    assert len(REQUESTS) == len(get_args(messages.Request))
    for name, found in REQUESTS.items():
        check_bounded(found, name)


class _Text(msgspec.Struct):
    added: str


class _Name(msgspec.Struct):
    added: dict[str, int]


class _Items(msgspec.Struct):
    added: Annotated[list[str], msgspec.Meta(max_length=3)]


class _Number(msgspec.Struct):
    added: int | None


class _Anything(msgspec.Struct):
    added: Any


class _Raw(msgspec.Struct):
    added: msgspec.Raw


@pytest.mark.parametrize("message", [_Text, _Name, _Items, _Number, _Anything, _Raw])
def test_check_bounded_finds_a_field_without_a_limit(message: type[msgspec.Struct]) -> None:
    with pytest.raises(UnboundedError, match="added"):
        check_bounded(inspect.type_info(message), "message")


@pytest.mark.parametrize("kind", [kind for kind in REQUESTS if kind != "hello"])
def test_request_fields_at_and_beyond_their_limits(kind: str, daemon: Live, beside: Client) -> None:
    """A field at its limit is served or refused in one line; a value beyond is refused by name."""
    hello = {"type": "hello", "protocol": 1, "version": "test"}
    for field in REQUESTS[kind].fields:
        for each in sized(field.type, field.encode_name):
            with dial(daemon.settings) as connection:
                asked(connection, hello)
                message = plain(kind) | ({"run": asked(connection, plain("open"))[0]["run"]} if "run" in plain(kind) else {})
                check_answer(each, *asked(connection, message | {each.field: each.value}))
                assert asked(connection, plain("status"))[0]["type"] == "state"
    assert beside.status()["pid"]


def test_greeting_fields_at_and_beyond_their_limits(daemon: Live, beside: Client) -> None:
    for field in REQUESTS["hello"].fields:
        for each in sized(field.type, field.encode_name):
            with dial(daemon.settings) as connection:
                answer, size = asked(connection, plain("hello") | {"protocol": 1} | {each.field: each.value})
            if each.refused or answer["type"] != "welcome":
                refused(answer, size)
    assert beside.status()["pid"]


@pytest.mark.parametrize(
    "message",
    [{"type": "x\n" * 200_000}, {"type": "open", "policy": {"x\n" * 200_000: 1}}, {"x\n" * 200_000: 1}, ["x" * 900_000]],
)
def test_refusal_of_a_long_unknown_name_is_short(message: Any, daemon: Live, beside: Client) -> None:
    with dial(daemon.settings) as connection:
        asked(connection, plain("hello") | {"protocol": 1})
        refused(*asked(connection, message))
    assert beside.status()["pid"]


def test_daemon_stays_small_with_longest_gpu_names(daemon: Live, beside: Client) -> None:
    """The daemon stays small although unknown GPUs' names appear in a warning, in the window's reason and in its findings."""
    too_many, largest = ["x" * 10**6], ["x" * messages.GPU_LENGTH] * messages.GPUS_COUNT
    with dial(daemon.settings) as connection:
        asked(connection, plain("hello") | {"protocol": 1})
        for _ in range(100):
            refused(*asked(connection, plain("open") | {"gpus": too_many}))
        for _ in range(10):  # each becomes a judged window
            answer, size = asked(connection, plain("open") | {"gpus": largest, "told": {"cache": "x" * 16_000}})
            assert answer["type"] == "opened"
            assert size < REFUSAL_BYTES
    assert beside.status()["pid"]
    with connect(daemon.settings) as client:
        judged = client.verdicts(answer["run"], wait_s=PATIENCE_S)
    with Reader(daemon.settings.state) as reader:
        run = reader.run(answer["run"])
    assert len(run.why) < REFUSAL_BYTES
    assert max(len(finding["says"]) for finding in judged.verdicts[0]["findings"]) < REFUSAL_BYTES
    assert len(msgspec.json.encode(judged.verdicts[0])) < 200_000
