"""The two sides of a comparison as the user names them: a file, a kernel in the file, and a revision."""

import re
from dataclasses import dataclass
from pathlib import Path

from gpuwatch.comparing import checkouts
from gpuwatch.comparing.source_trees import SourceTree
from gpuwatch.errors import UsageError

_LANGUAGES = {".cu": "cuda", ".cuh": "cuda", ".py": "triton", ".cubin": "cubin", ".ptx": "ptx"}
_FORM = re.compile(
    r"(?:(?P<folder>.+)@(?!\{)(?P<revision>[^:@]+(?:@\{[^}]*\})?):)?(?P<file>.+?\.(?:cuh?|py|cubin|ptx))(?::(?P<kernel>.*))?",
    re.DOTALL,
)
_ADDRESS = re.compile(r"(?:https?|ssh|file)://.|[\w.-]+@[\w.-]+:.")  # address of a remote repository
EXPECTED = "a file FILE.cu, FILE.py:KERNEL, FILE.cubin or FILE.ptx, or FOLDER-OR-URL@REV:FILE"


@dataclass(frozen=True, slots=True)
class Side:
    """One side: ``kernel`` is empty if unnamed, ``tree`` holds the files of a revision."""

    shown: str
    path: Path
    kernel: str = ""
    revision: str | None = None
    tree: SourceTree | None = None

    @property
    def language(self) -> str:
        return _LANGUAGES[self.path.suffix]


def read_sides(texts: tuple[str, ...], revision: str | None) -> tuple[Side, Side]:
    """Return both sides.  A single file is compared with the same file at ``revision``, HEAD by default.

    A revision is checked out until ``checkouts.cleaned_up`` ends.
    Raises UsageError: for invalid sides, a revision for two sides, and a missing file, repository or revision.
    """
    if not 1 <= len(texts) <= 2:
        raise UsageError(f"expected one side or two, found {len(texts)}; each is {EXPECTED}")
    if len(texts) == 1:
        return _read(texts[0], revision or "HEAD"), _read(texts[0], None)
    if revision is not None:
        raise UsageError(f"--at: expected one file, to be compared with itself at {revision}, found two")
    return _read(texts[0], None), _read(texts[1], None)


def is_side(text: str) -> bool:
    """Return True for text that has the form of a side."""
    return not text.startswith("--") and _FORM.fullmatch(text) is not None


def _read(text: str, at: str | None) -> Side:
    if Path(text).is_dir():
        raise UsageError(f"{text}: expected {EXPECTED}, found a folder; name a file in it")
    found = _FORM.fullmatch(text)
    if found is None or found["kernel"] == "":
        raise UsageError(f"{text!r}: expected {EXPECTED}")
    kernel = found["kernel"] or ""
    if found["revision"] is not None:
        if at is not None:
            raise UsageError(f"{text}: expected a second side to compare this revision with, found none")
        is_address = _ADDRESS.match(found["folder"])
        folder = checkouts.clone(found["folder"], text) if is_address else Path(found["folder"])
        if not folder.is_dir():
            raise UsageError(
                f"{text}: expected a folder of a local repository or an address such as https://HOST/REPOSITORY before the @, "
                f"found {found['folder']!r}"
            )
        tree, path = checkouts.check_out_below(folder, found["file"], found["revision"], text)
        return Side(text, path, kernel, found["revision"], tree)
    path = Path(found["file"])
    if not path.is_file():
        state = "a folder" if path.is_dir() else "something else" if path.exists() else "none"
        raise UsageError(f"{path}: expected a file, found {state}")
    if at is None:
        return Side(text, path, kernel)
    tree, path = checkouts.check_out(path, at)
    return Side(f"{text}@{at}", path, kernel, at, tree)
