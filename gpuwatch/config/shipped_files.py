"""The files next to the packages, such as units, dashboards and rules: in a checkout or in ``share/gpuwatch``."""

import contextlib
import importlib.metadata
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from gpuwatch.errors import UsageError

PROJECT = "gpuwatch-validity"
_CHECKOUT = Path(__file__).parents[2]


def shipped_folder(name: str, needed: Sequence[str]) -> Path:
    """Find the folder of this name with the needed files; another package may have a folder of the same name.

    Raises UsageError: for an installation without the folder.
    """
    candidates = [_CHECKOUT / name]
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        listed = importlib.metadata.files(PROJECT) or []
        candidates += [Path(str(file.locate())).parent for file in listed if file.match(f"{name}/{needed[0]}")]
    candidates.append(Path(sysconfig.get_path("data")) / "share/gpuwatch" / name)
    for candidate in candidates:
        if all((candidate / file).is_file() for file in needed):
            return candidate.resolve()
    raise UsageError(f"expected {name} in {candidates[-1]}, found none; install gpuwatch from its wheel or its sources")
