"""Git, run in the repository around a folder."""

import os
import subprocess
from pathlib import Path

from gpuwatch.errors import UsageError

# Git's hooks and some editors name a repository in the environment of every git that they start.
_GIT_VARIABLES = (
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY", "GIT_NAMESPACE",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
)  # fmt: skip


def run_git(folder: Path, *arguments: str) -> str | None:
    """Run git in the repository around a folder; return the output, or None if git fails.  Raises UsageError: without git."""
    environment = {name: value for name, value in os.environ.items() if name not in _GIT_VARIABLES}
    # Git must neither prompt for a password nor run a command that an address names (ext::).
    environment |= {"GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": "http:https:ssh:file"}
    command = ["git", "-C", str(folder), "-c", "core.hooksPath=/dev/null", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, check=False, env=environment, text=True, errors="surrogateescape")
    except FileNotFoundError:
        raise UsageError("expected the command git, found none; install git") from None
    return done.stdout.strip() if done.returncode == 0 else None
