"""Tests that no output controls a terminal: labels and paths may contain anything."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
import threading
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.cli import main, output
from gpuwatch.client.window import window
from gpuwatch.config.settings import Settings
from tests.gpuwatch.cli.conftest import Gpuwatch
from tests.waiting import sample_for

HOSTILE = "a\x9b31mb\u202ec\u2066d\x7fe\x1b]0;owned\x07f\u2028g\U000e0041h\x85i\u061cj ünï 日本"
HARMLESS = "ünï 日本"
OURS = ("\x1b[1m", "\x1b[3m", "\x1b[36m", "\x1b[1;36m", "\x1b[32m", "\x1b[33m", "\x1b[31m", "\x1b[35m", "\x1b[31;1m", "\x1b[0m")


def steering(text: str) -> list[str]:
    """Return the characters of a text that can control a terminal, except line ends and gpuwatch's colours."""
    for colour in OURS:
        text = text.replace(colour, "")
    found = [c for c in text if unicodedata.category(c)[0] == "C" or unicodedata.category(c) in ("Zl", "Zp")]
    return [c for c in found if c not in "\r\n"]


def on_terminal(*arguments: str, home: Path, stream: str = "stdout") -> str:
    """Run a command with one stream on a terminal; return that stream's output.

    ``run`` has a separate process, because its program inherits the streams; other commands run in this process.
    """
    ours, theirs = pty.openpty()
    got: list[bytes] = []

    def read() -> None:
        while True:
            try:
                piece = os.read(ours, 65_536)
            except OSError:  # EIO: the other end is closed
                return
            if not piece:
                return
            got.append(piece)

    reader = threading.Thread(target=read)
    reader.start()
    environment = {**os.environ, "HOME": str(home), "PYTHONUTF8": "1", "COLUMNS": "200"}
    environment.pop("NO_COLOR", None)
    streams: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: theirs}
    try:
        if "run" in arguments:
            subprocess.run([sys.executable, "-m", "gpuwatch", *arguments], env=environment, check=False, timeout=120, **streams)
        else:
            with (
                pytest.MonkeyPatch.context() as patch,
                open(theirs, "w", encoding="utf-8", closefd=False) as terminal,
                Path(os.devnull).open("w", encoding="utf-8") as nowhere,
            ):
                for name in ("stdout", "stderr"):
                    patch.setattr(sys, name, terminal if name == stream else nowhere)
                patch.setenv("HOME", str(home))
                patch.setenv("COLUMNS", "200")
                patch.delenv("NO_COLOR", raising=False)
                main(arguments)
    finally:
        os.close(theirs)
        reader.join()
        os.close(ours)
    return b"".join(got).decode()


@pytest.fixture(scope="module")
def hostile(daemon: Settings) -> str:
    """Return the run ID of a window whose label contains control characters."""
    with window(HOSTILE, sync=False, settings=daemon) as watched:
        sample_for(0.1)
    assert watched.verdicts
    assert watched.run_id is not None
    return watched.run_id


JSON_COMMANDS = [["show", "RUN"], ["audit"], ["top", "--once"], ["run", "--label", HOSTILE, "--json", "-", "--", "true"]]


@pytest.mark.parametrize("arguments", JSON_COMMANDS, ids=lambda arguments: arguments[0])
def test_json_on_a_terminal_has_no_control_characters(daemon: Settings, hostile: str, home: Path, arguments: list[str]) -> None:
    """JSON on a terminal escapes U+009B, which starts a control sequence, and U+202E, which reverses text."""
    words = [hostile if word == "RUN" else word for word in arguments]
    words += [] if "run" in words else ["--json"]
    shown = on_terminal(*daemon.flags(), *words, home=home)
    assert steering(shown) == []
    # The daemon cuts texts for `top` to 80 characters.
    assert any(text == HOSTILE or text[:10] == HOSTILE[:10] for text in found_texts(json.loads(shown)))


def found_texts(data: Any) -> set[str]:
    """Return the text values, without keys, in a tree of JSON values."""
    if isinstance(data, dict):
        return set().union(*map(found_texts, data.values()))
    if isinstance(data, list):
        return set().union(*map(found_texts, data))
    return {data} if isinstance(data, str) else set()


def test_ndjson_on_a_terminal_has_no_control_characters(daemon: Settings, hostile: str, home: Path) -> None:
    shown = on_terminal(*daemon.flags(), "export", "--ndjson", home=home)
    assert steering(shown) == []
    assert HOSTILE in {json.loads(line)["label"] for line in shown.splitlines()}
    assert hostile


def test_piped_json_keeps_a_hostile_label(gpuwatch: Gpuwatch, daemon: Settings, hostile: str) -> None:
    said = gpuwatch(*daemon.flags(), "show", hostile, "--json")
    assert said.data["label"] == HOSTILE
    assert HARMLESS in said.out  # readable text stays unescaped
    assert steering(said.out) == []


TEXT_COMMANDS = [["show", "RUN"], ["audit"], ["top", "--once"], ["show", "RUN", "--markdown"], ["report", "RUN", "--markdown"]]


@pytest.mark.parametrize("arguments", TEXT_COMMANDS, ids=" ".join)
def test_text_on_a_terminal_has_no_control_characters(daemon: Settings, hostile: str, home: Path, arguments: list[str]) -> None:
    words = [hostile if word == "RUN" else word for word in arguments]
    shown = on_terminal(*daemon.flags(), *words, home=home)
    assert [character for character in steering(shown) if character != "\u200b"] == []
    assert "31mb" in shown


@pytest.mark.parametrize(
    "arguments",
    [["config", "show", "--origin"], ["config", "show", "--json"], ["db", "path"], ["db", "path", "--json"], ["doctor"],
     ["doctor", "--json"], ["daemon", "status"], ["daemon", "status", "--json"], ["audit", "--json"]],
    ids=" ".join,
)  # fmt: skip
def test_hostile_paths_are_escaped_on_a_terminal(home: Path, arguments: list[str]) -> None:
    places = [
        "--source",
        "simulated:steady-copy",
        "--state",
        str(home / HOSTILE.replace("/", "")),
        "--socket",
        str(home / "\x9bs"),
    ]
    shown = on_terminal(*places, *arguments, home=home)
    assert shown
    assert steering(shown) == []


@pytest.mark.parametrize("arguments", [["show", "\x9b31m"], ["run", "--label", HOSTILE, "--", "true"]], ids=["show", "run"])
def test_standard_error_on_a_terminal_has_no_control_codes(daemon: Settings, home: Path, arguments: list[str]) -> None:
    shown = on_terminal(*daemon.flags(), *arguments, home=home, stream="stderr")
    assert shown
    assert steering(shown) == []


# Without lone surrogates, which are not text and which JSON could join to a pair.
TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.dictionaries(TEXT, TEXT))
def test_json_of_any_text_is_escaped_and_round_trips(data: dict[str, str]) -> None:
    stream = io.StringIO()
    output.emit_json({"data": data}, stream)
    assert json.loads(stream.getvalue())["data"] == data
    assert steering(stream.getvalue()) == []


def test_output_without_unicode_is_escaped() -> None:
    """A stream whose encoding lacks a character gets an escape in its place, in JSON too."""
    stream = io.TextIOWrapper(io.BytesIO(), "ascii", write_through=True)
    output.emit_json({"says": "4096³ products"}, stream)
    written = stream.buffer.getvalue().decode("ascii")
    assert json.loads(written)["says"] == "4096³ products"
