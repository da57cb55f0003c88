"""Results of the long campaigns, stored in ``results.json`` for the pages: each with its date, machine and version."""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
from pathlib import Path
from typing import Any

from annotate import __version__
from gpuwatch import clock

PATH = Path(__file__).with_name("results.json")


def kept() -> dict[str, Any]:
    """Return the stored results by campaign."""
    found: dict[str, Any] = json.loads(PATH.read_text()) if PATH.exists() else {}
    return found


def keep(name: str, figures: dict[str, Any]) -> None:
    """Replace one campaign's figures, and print them."""
    day = dt.datetime.fromtimestamp(clock.wall_s(), dt.UTC).date().isoformat()
    row = {"date": day, "machine": machine(), "gpuwatch": __version__, **figures}
    PATH.write_text(json.dumps({**kept(), name: row}, indent=2, sort_keys=True, ensure_ascii=False) + "\n")
    print(json.dumps({name: row}, indent=2, ensure_ascii=False))


def machine() -> str:
    """Return a description of the machine without its name."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return (
        f"virtual machine, {os.cpu_count()} cores, {round(memory_bytes / 2**30)} GiB, Linux {platform.release().split('-')[0]}, "
        f"Python {platform.python_version()}; shared with other work"
    )
