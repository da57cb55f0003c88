"""Output on pages, written by the shown commands: ``python -m tests.shown_output``, or ``--check``.

A block after the line ``MARK`` is rewritten.  Commands there read files of the tree and use no other state of the machine.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import tempfile
from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path

from click.testing import CliRunner

from gpuwatch.cli import cli

ROOT = Path(__file__).parents[1]
COLUMNS = "110"  # width of the pages' terminal
TERMINAL = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "GITHUB_ACTIONS")  # variables of the user's terminal
MARK = "<!-- real output -->"
BLOCK = re.compile(rf"(?<={re.escape(MARK)}\n)```console\n(.*?)```", re.S)


def pages() -> list[Path]:
    """Return the pages of docs/ that contain ``MARK``."""
    return [path for path in sorted((ROOT / "docs").rglob("*.md")) if MARK in path.read_text(encoding="utf-8")]


def run_command(command: str, state: Path) -> str:
    """Return a command's output on a terminal of ``COLUMNS``, with a store in ``state`` and without this user's settings.

    Raises ValueError: for another program's command.
    """
    words = shlex.split(command)
    if words[0] != "gpuwatch":
        raise ValueError(f"expected a gpuwatch command, found {command!r}; remove the line {MARK} above the block")
    environment: dict[str, str | None] = dict.fromkeys(
        name for name in os.environ if name.startswith("GPUWATCH_") or name in TERMINAL
    )
    (settings := state / "config.toml").touch()
    environment |= {"GPUWATCH_STATE": str(state), "GPUWATCH_CONFIG": str(settings), "COLUMNS": COLUMNS}
    with chdir(ROOT):
        return CliRunner().invoke(cli, words[1:], env=environment, catch_exceptions=False).output


def write_page(text: str) -> str:
    """Return the page with the current output under each command."""

    def written(found: re.Match[str]) -> str:
        commands = [line.removeprefix("$ ") for line in found[1].splitlines() if line.startswith("$ ")]
        with tempfile.TemporaryDirectory() as state:
            shown = "".join(f"$ {command}\n{run_command(command, Path(state))}" for command in commands)
        return f"```console\n{shown}```"

    return BLOCK.sub(written, text)


def main(arguments: Sequence[str]) -> int:
    """Write the pages; with ``--check`` return 1 if one is stale."""
    stale = {
        path: fresh for path in pages() if (fresh := write_page(path.read_text(encoding="utf-8"))) != path.read_text("utf-8")
    }
    for path, fresh in stale.items():
        if "--check" in arguments:
            sys.stderr.write(f"{path.relative_to(ROOT)} is stale; write it again: python -m tests.shown_output\n")
        else:
            path.write_text(fresh, encoding="utf-8")
    return int("--check" in arguments and bool(stale))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
