"""Pictures of verdicts on a terminal, in two themes: ``python -m tests.verdict_pictures [--check]``.

``gpuwatch judge`` judges three recorded windows of an H200, so that the pictures show the current judge.
"""

from __future__ import annotations

import contextlib
import io
import os
import pty
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, DIMMED_MONOKAI
from rich.text import Text

from annotate.capsule.pack import pack, unpack

ROOT = Path(__file__).parents[1]
CAPSULE = ROOT / "tests" / "traces" / "h200-windows.capsule"
COLUMNS = 104
JUDGED = ("clean-copy-1g", "cpu-hogs-gemm-4096", "neighbour-gemm-4096")  # valid, flagged, rejected
THEMES = {"light": DEFAULT_TERMINAL_THEME, "dark": DIMMED_MONOKAI}


def rendered() -> dict[Path, str]:
    """Return each picture's expected text."""
    with tempfile.TemporaryDirectory() as folder:
        recording = Path(folder) / "h200.capsule"
        recording.write_bytes(pack([piece for piece in unpack(CAPSULE.read_bytes()) if piece.window.label in JUDGED]))
        printed = on_terminal([sys.executable, "-m", "gpuwatch", "judge", str(recording)])
    found = {}
    for theme, colours in THEMES.items():
        console = Console(record=True, width=COLUMNS, file=io.StringIO())
        console.print(Text(f"$ gpuwatch judge {recording.name}", style="bold"))
        console.print(Text.from_ansi(printed))
        svg = console.export_svg(title="windows of an NVIDIA H200, judged from a recording", theme=colours)
        found[ROOT / "docs" / f"verdicts-{theme}.svg"] = without_web_fonts(svg)
    return found


def on_terminal(command: Sequence[str]) -> str:
    """Run a command on a new terminal; return its output with colours.  Raises AssertionError: when the command fails."""
    pid, terminal = pty.fork()
    if pid == 0:
        environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
        os.execvpe(command[0], list(command), {**environment, "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"})
    printed = b""
    with contextlib.suppress(OSError):  # EIO: the command has closed its terminal
        while piece := os.read(terminal, 65_536):
            printed += piece
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, printed.decode()
    return printed.decode().replace("\r\n", "\n")


def without_web_fonts(svg: str) -> str:
    """Return a picture that fetches nothing from the network."""
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.S)


def main(arguments: Sequence[str]) -> int:
    """Write the pictures, or with ``--check`` compare; return 0 or 1."""
    made = rendered()
    if "--check" not in arguments:
        for path, svg in made.items():
            path.write_text(svg, encoding="utf-8")
        return 0
    stale = [path.name for path, svg in made.items() if not path.exists() or path.read_text(encoding="utf-8") != svg]
    if stale:
        sys.stdout.write(f"stale: {', '.join(stale)}; run: make pages\n")
    return int(bool(stale))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
