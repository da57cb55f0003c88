"""The files of a comparison, watched by their times of change."""

from collections.abc import Iterable
from pathlib import Path

from gpuwatch.clock import Signal
from gpuwatch.diff.include_files import included_files

_POLL_S = 0.5


def read_stamps(paths: Iterable[Path]) -> dict[Path, int | None]:
    """Return when each file, and each that it includes from its folder, was changed; None for one that is gone."""
    stamps: dict[Path, int | None] = {}
    for path in paths:
        try:
            for file in (path, *((included_files(path, []) or ()) if path.suffix in (".cu", ".cuh") else ())):
                stamps[file] = file.stat().st_mtime_ns
        except OSError:  # also while an editor replaces it
            stamps[path] = None
    return stamps


def wait_for_change(paths: Iterable[Path], stop: Signal, poll_s: float = _POLL_S) -> None:
    """Wait until a file changes, or ``stop`` is set."""
    watched = list(paths)
    before = read_stamps(watched)
    while read_stamps(watched) == before and not stop.wait(poll_s):
        pass
