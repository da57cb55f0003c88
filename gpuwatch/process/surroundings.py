"""Tags from this process's surroundings: its batch job, CI run, pod, container image, flags and git revision."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_COMMIT = re.compile("[0-9a-f]{40,64}")
_MOST_BYTES = 4 << 20  # read limit of a git file: packed refs of a large repository


@dataclass(frozen=True, slots=True)
class Surroundings:
    """A system that runs jobs: the variable that reveals it, and the variables of its tags."""

    name: str
    shown_by: str
    variables: Mapping[str, str]


# The first system that gives a tag wins: inside a CI job on Slurm ``user`` is Slurm's.
SYSTEMS = (
    Surroundings(
        "slurm",
        "SLURM_JOB_ID",
        {
            "job": "SLURM_JOB_ID",
            "slurm_job": "SLURM_JOB_ID",  # always Slurm's, even if the user sets the tag ``job``
            "job_name": "SLURM_JOB_NAME",
            "array_job": "SLURM_ARRAY_JOB_ID",
            "array_task": "SLURM_ARRAY_TASK_ID",
            "user": "SLURM_JOB_USER",
            "account": "SLURM_JOB_ACCOUNT",
            "partition": "SLURM_JOB_PARTITION",
            "cluster": "SLURM_CLUSTER_NAME",
        },
    ),
    Surroundings(
        "github",
        "GITHUB_ACTIONS",
        {
            "ci_run": "GITHUB_RUN_ID",
            "ci_attempt": "GITHUB_RUN_ATTEMPT",
            "ci_job": "GITHUB_JOB",
            "workflow": "GITHUB_WORKFLOW",
            "repository": "GITHUB_REPOSITORY",
            "git_ref": "GITHUB_REF_NAME",
            "git_revision": "GITHUB_SHA",
            "user": "GITHUB_ACTOR",
        },
    ),
    Surroundings(
        "gitlab",
        "GITLAB_CI",
        {
            "ci_run": "CI_PIPELINE_ID",
            "ci_job": "CI_JOB_ID",
            "workflow": "CI_JOB_NAME",
            "repository": "CI_PROJECT_PATH",
            "git_ref": "CI_COMMIT_REF_NAME",
            "git_revision": "CI_COMMIT_SHA",
            "user": "GITLAB_USER_LOGIN",
            "image": "CI_JOB_IMAGE",
        },
    ),
    # Kubernetes sets KUBERNETES_SERVICE_HOST in every container; a pod's manifest adds the other variables (downward API).
    Surroundings(
        "kubernetes",
        "KUBERNETES_SERVICE_HOST",
        {
            "job": "JOB_NAME",
            "namespace": "POD_NAMESPACE",
            "pod": "POD_NAME",
            "node": "NODE_NAME",
            "image": "CONTAINER_IMAGE",
        },
    ),
)
IMAGES = ("APPTAINER_CONTAINER", "SINGULARITY_CONTAINER")
FLAGS = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "XLA_FLAGS")


def found_tags(environment: Mapping[str, str], folder: Path | None = None) -> dict[str, str]:
    """Return the environment's tags, and the git revision of the folder, by default the current one."""
    # The folder's commit and an Apptainer image replace a CI system's: they are nearest to the code that runs.  A job may
    # check out another revision than the pipeline's, start in another repository, or start a container.  If a job measures
    # code from elsewhere, it sets these tags itself, and such tags win.
    found: dict[str, str] = {}
    for system in SYSTEMS:
        if environment.get(system.shown_by):
            named = {tag: environment.get(variable, "").strip() for tag, variable in system.variables.items()}
            found = {tag: text for tag, text in named.items() if text} | found
    image = next((environment[name] for name in IMAGES if environment.get(name)), "")
    flags = " ".join(f"{name}={environment[name]}" for name in FLAGS if environment.get(name))
    found |= {tag: text for tag, text in (("image", image), ("compile_flags", flags)) if text}
    try:
        revision = _revision_of(str(folder or Path.cwd()))
    except (OSError, ValueError):  # the current folder was removed, or its file .git contains no path
        revision = None
    return found | ({"git_revision": revision} if revision else {})


@cache  # once per process and folder: a home on a network is slow
def _revision_of(folder: str) -> str | None:
    """Return the checked-out commit of a folder's repository, from git's files; None without a repository or commit."""
    for each in (Path(folder), *Path(folder).parents):
        git = each / ".git"
        if git.is_file():  # a worktree or submodule: the file contains the path
            git = each / _read(git).removeprefix("gitdir:").strip()
        if git.is_dir():
            break
    else:
        return None
    head = _read(git / "HEAD")
    name = head.removeprefix("ref:").strip()
    if name == head:
        return head if _COMMIT.fullmatch(head) else None
    common = git / _read(git / "commondir")  # a worktree's branches are in its main repository
    for place in (git, common):
        if _COMMIT.fullmatch(found := _read(place / name)):
            return found
    packed = (line.split() for line in _read(common / "packed-refs").splitlines())
    return next((words[0] for words in packed if len(words) == 2 and words[1] == name), None)


def _read(path: Path) -> str:
    """Return a small file's text; empty without a file."""
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES).decode("utf-8", "replace").strip()
    except OSError:
        return ""
