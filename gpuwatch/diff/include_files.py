"""Files that a CUDA source includes from the user's folders, which count as parts of the source."""

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from gpuwatch.clock import Signal

_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>|(\S+))', re.M)
_MOST_FILES = 2000  # files of one project, without CUDA's headers
_POLL_S = 0.5


def included_files(source: Path, folders: Sequence[Path]) -> list[Path] | None:
    """Return the files that ``source`` includes from its folder or from ``folders``; None if the list is uncertain.

    A macro in an #include, or too many files, makes the list uncertain.  Toolkit headers are not listed.
    """
    seen: dict[Path, None] = {}
    waiting = [source]
    while waiting:
        path = waiting.pop()
        for quoted, angled, other in _INCLUDE.findall(path.read_bytes()):
            if other or len(seen) > _MOST_FILES:
                return None
            name = (quoted or angled).decode(errors="replace")
            places = (path.parent, *folders) if quoted else folders
            found = next((place / name for place in places if (place / name).is_file()), None)
            if found is not None and found not in seen:
                seen[found] = None
                waiting.append(found)
    return list(seen)


def map_includes(flags: Sequence[str], mapped: Callable[[str], str]) -> tuple[list[str], list[Path]]:
    """Return compiler flags with each folder of -I and --include-path mapped, and the mapped folders."""
    found, folders = list(flags), []
    for index, flag in enumerate(flags):
        option = next((each for each in ("--include-path", "-I") if flag.startswith(each)), None)
        if option is None:
            continue
        is_apart = flag == option
        folder = "".join(flags[index + 1 : index + 2]) if is_apart else flag.removeprefix(option).removeprefix("=")
        if folder:
            folders.append(Path(mapped(folder)))
            found[index + is_apart] = str(folders[-1]) if is_apart else f"{option}{'=' * (option != '-I')}{folders[-1]}"
    return found, folders


def read_stamps(paths: Iterable[Path]) -> dict[Path, int | None]:
    """Return the modification time of each file and of a CUDA file's quoted includes; None for an unreadable file."""
    stamps: dict[Path, int | None] = {}
    for path in paths:
        try:
            for file in (path, *((included_files(path, []) or ()) if path.suffix in (".cu", ".cuh") else ())):
                stamps[file] = file.stat().st_mtime_ns
        except OSError:  # also while an editor replaces the file
            stamps[path] = None
    return stamps


def wait_for_change(paths: Iterable[Path], stop: Signal, poll_s: float = _POLL_S) -> None:
    """Wait until a file changes, or ``stop`` is set."""
    watched = list(paths)
    before = read_stamps(watched)
    while read_stamps(watched) == before and not stop.wait(poll_s):
        pass
