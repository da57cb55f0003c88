"""The pictures of the README: what the commands really print, drawn by rich."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

DOCS = Path(__file__).parents[1] / "docs"
COLUMNS = 110


def picture(title: str, command: list[str], path: Path) -> None:
    """Run a command and draw its output, both streams as a terminal would mix them."""
    done = subprocess.run(
        [sys.executable, "-m", "gpuwatch", *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
    )
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text(f"$ gpuwatch {' '.join(command)}", style="bold"))
    console.print(Text(done.stdout))
    # Without its web fonts: a picture in a repository fetches nothing.
    path.write_text(re.sub(r"@font-face \{.*?\}\s*", "", console.export_svg(title=title), flags=re.S))


if __name__ == "__main__":
    picture("gpuwatch demo, on a machine without a GPU", ["demo"], DOCS / "demo.svg")
