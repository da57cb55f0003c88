"""Git worktrees of revisions, and clones of repositories, in temporary folders that are removed at the end."""

import atexit
import contextlib
import fcntl
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from gpuwatch.comparing.git_command import run_git
from gpuwatch.comparing.source_trees import SourceTree
from gpuwatch.errors import UsageError

_PREFIX = "gpuwatch-at-"
_CLONE_PREFIX = "gpuwatch-clone-"
_TREE, _LOCK = "tree", "lock"
_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
_open = contextlib.ExitStack()
atexit.register(_open.close)


def check_out(file: Path, revision: str) -> tuple[SourceTree, Path]:
    """Check a revision out, and return its tree with the place of ``file`` in it.

    The worktree stays until ``cleaned_up`` ends, or else until this process ends.
    Raises UsageError: when the repository, revision or file does not exist, or git fails.
    """
    folder, name = file.resolve().parent, file.resolve().name
    top, commit = _find_commit(folder, revision, "--at", file)
    if run_git(folder, "cat-file", "-e", f"{commit}:./{name}") is None:
        raise UsageError(f"--at: expected {file} in revision {revision}, found none there")
    place = _add_worktree(top, commit, "--at")
    found = place / file.resolve().relative_to(top.resolve())
    return SourceTree(top, place, found.parent), found


def check_out_tree(folder: Path, revision: str, shown: str) -> Path:
    """Check a revision of the repository around ``folder`` out, and return the place of ``folder`` in it.

    Raises UsageError: when the repository, the revision or the folder in it does not exist, or git fails.
    """
    top, commit = _find_commit(folder.resolve(), revision, shown, folder)
    found = _add_worktree(top, commit, shown) / folder.resolve().relative_to(top.resolve())
    if not found.is_dir():
        raise UsageError(f"{shown}: expected {folder} in revision {revision}, found none there")
    return found


def check_out_below(folder: Path, file: str, revision: str, shown: str) -> tuple[SourceTree, Path]:
    """Check a revision of the repository around ``folder`` out, and return its tree with the place of ``folder/file`` in it.

    The file may be missing from the working tree.  ``shown`` is the user's text.
    Raises UsageError: when the repository, revision or file does not exist, or git fails.
    """
    top, commit = _find_commit(folder.resolve(), revision, shown, folder)
    place = _add_worktree(top, commit, shown)
    found = (place / folder.resolve().relative_to(top.resolve()) / file).resolve()
    if not found.is_relative_to(place) or not found.is_file():
        raise UsageError(f"{shown}: expected {file} in revision {revision}, found none there")
    return SourceTree(top, place, found.parent), found


def clone(address: str, shown: str) -> Path:
    """Clone a repository, without its files, into a temporary folder that is removed like a worktree.

    ``shown`` is the user's text.
    Raises UsageError: when git cannot clone the repository.
    """
    holder, owner_pid = Path(tempfile.mkdtemp(prefix=_CLONE_PREFIX)).resolve(), os.getpid()
    _open.callback(lambda: shutil.rmtree(holder, ignore_errors=True) if os.getpid() == owner_pid else None)
    if run_git(holder, "clone", "--quiet", "--no-checkout", "--filter=blob:none", "--", address, _TREE) is None:
        raise UsageError(f"{shown}: expected a repository that git can clone without asking for a password, found {address!r}")
    return holder / _TREE


def _find_commit(folder: Path, revision: str, shown: str, named: Path) -> tuple[Path, str]:
    top = run_git(folder, "rev-parse", "--show-toplevel")
    if top is None:
        raise UsageError(f"{shown}: expected {named} in a git repository, found none")
    commit = run_git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if commit is None:
        raise UsageError(f"{shown}: expected a revision of the repository of {named}, found {revision!r}")
    return Path(top), commit


@contextlib.contextmanager
def cleaned_up() -> Iterator[None]:
    """Remove all checkouts at the end, also after SIGTERM or SIGHUP.

    Raises KeyboardInterrupt: on a signal with its default action, in the main thread.
    """

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    is_main = threading.current_thread() is threading.main_thread()  # only the main thread may set a signal handler
    taken = [each for each in _SIGNALS if is_main and signal.getsignal(each) is signal.SIG_DFL]  # nohup ignores SIGHUP
    for number in taken:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        try:
            _open.close()
        finally:
            for number in taken:
                signal.signal(number, signal.SIG_DFL)


def _add_worktree(top: Path, commit: str, shown: str) -> Path:
    _remove_abandoned(top)
    holder = Path(tempfile.mkdtemp(prefix=_PREFIX)).resolve()
    lock = os.open(holder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    _open.callback(_remove, top, holder, lock, os.getpid())
    if run_git(top, "worktree", "add", "--detach", str(holder / _TREE), commit) is None:
        _open.close()
        raise UsageError(f"{shown}: expected git to add a worktree of {commit[:12]} in {holder.parent}, found that it failed")
    return holder / _TREE


def _remove(top: Path, holder: Path, lock: int, owner_pid: int) -> None:
    if os.getpid() != owner_pid:
        return  # in a forked child the worktree belongs to the parent
    run_git(top, "worktree", "remove", "--force", "--force", str(holder / _TREE))
    os.close(lock)
    shutil.rmtree(holder, ignore_errors=True)


def _remove_abandoned(top: Path) -> None:
    """Remove worktrees of killed processes: no process holds their lock."""
    listed = run_git(top, "worktree", "list", "--porcelain") or ""
    for place in (Path(line.removeprefix("worktree ")) for line in listed.splitlines() if line.startswith("worktree ")):
        if place.name != _TREE or not place.parent.name.startswith(_PREFIX):
            continue
        try:
            lock = os.open(place.parent / _LOCK, os.O_RDWR)
        except OSError:  # the folder is gone
            run_git(top, "worktree", "remove", "--force", "--force", str(place))
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
        else:
            _remove(top, place.parent, lock, os.getpid())
