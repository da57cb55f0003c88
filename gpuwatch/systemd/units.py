"""The systemd units of gpuwatch, adapted to this installation: files to write or remove, and commands to run before and after.

The units are in ``systemd/`` of a checkout and in ``share/gpuwatch/systemd`` of an installation, for packagers to copy.
"""

import contextlib
import errno
import os
import re
import secrets
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuwatch.config.paths import user_folder
from gpuwatch.config.shipped_files import shipped_folder
from gpuwatch.errors import UsageError

MARK = "# gpuwatch: installed by `gpuwatch daemon install`"  # start of every gpuwatch file; other files are never changed
UNITS = ("gpuwatch.socket", "gpuwatch.service")
SYSTEM_UNITS = Path("/etc/systemd/system")
MANAGER_RUNS = Path("/run/systemd/system")  # the folder that sd_booted(3) checks

# ProtectHome and PrivateTmp hide these folders from the system's daemon.
_HIDDEN = tuple(map(Path, ("/home", "/root", "/run/user", "/tmp", "/var/tmp")))  # noqa: S108 - compared, never written
_SHIPPED = "/usr/bin/gpuwatch"


@dataclass(frozen=True, slots=True)
class File:
    """The wanted text of a file, and ``found``, the current text, which is None if there is no file."""

    path: Path
    text: str
    found: str | None

    @property
    def is_ours(self) -> bool:
        return self.found is not None and self.found.startswith(MARK)


@dataclass(frozen=True, slots=True)
class InstallPlan:
    """Files to write or remove, and the commands before and after."""

    files: tuple[File, ...]
    before: tuple[tuple[str, ...], ...] = ()
    after: tuple[tuple[str, ...], ...] = ()

    @property
    def changed(self) -> tuple[File, ...]:
        return tuple(file for file in self.files if file.text != file.found)


def folder() -> Path:
    """Return the folder of the units.

    Raises UsageError: for an installation without the units.
    """
    return shipped_folder("systemd", ("gpuwatch.service", "user/gpuwatch.service"))


def drop_ins() -> dict[str, str]:
    """Return the names and purposes of the drop-ins for the system's unit.  Raises UsageError: as ``folder``."""
    return {
        file.stem: " ".join(
            line.removeprefix("# ") for line in file.read_text("utf-8").splitlines()[1:] if line.startswith("#")
        )
        for file in sorted((folder() / "drop-ins").glob("*.conf"))
    }


def system(drop_in_names: Sequence[str] = (), *, root: Path = Path("/")) -> InstallPlan:
    """Plan the installation of the system's daemon.

    The service starts this installation or, under another root, /usr/bin/gpuwatch, as in a package.
    Raises UsageError: for an unknown drop-in, an installation without units or hidden from the service, a foreign file, a link.
    """
    known = drop_ins()
    if unknown := [name for name in drop_in_names if name not in known]:
        raise UsageError(f"--with: expected one of {', '.join(known)}, found {unknown[0]!r}")
    program = visible(this_program()) if root == Path("/") else (_SHIPPED,)
    source = folder()
    units = _under(root, SYSTEM_UNITS)
    wanted = {units / name: _with_program((source / name).read_text("utf-8"), program) for name in UNITS}
    for name in drop_in_names:
        wanted[units / "gpuwatch.service.d" / f"{name}.conf"] = (source / "drop-ins" / f"{name}.conf").read_text("utf-8")
    users, places = _under(root, Path("/etc/sysusers.d/gpuwatch.conf")), _under(root, Path("/etc/tmpfiles.d/gpuwatch.conf"))
    wanted[users] = (source / "sysusers.conf").read_text("utf-8")
    wanted[places] = (source / "tmpfiles.conf").read_text("utf-8")
    return InstallPlan(
        _found(wanted, root),
        after=(
            ("systemd-sysusers", str(users)),
            ("systemd-tmpfiles", "--create", str(places)),
            ("systemctl", "daemon-reload"),
            ("systemctl", "enable", *UNITS),
            # One transaction, because systemd does not restart a socket under a running service.
            ("systemctl", "restart", *UNITS),
        ),
    )


def user(units: Path, flags: Sequence[str] = (), *, listen: str = "%t/gpuwatch/daemon.sock") -> InstallPlan:
    """Plan the installation of a user's daemon, with these options and on this socket.

    Raises UsageError: for an installation without the units, a foreign file, and a link.
    """
    source = folder() / "user"
    texts = {name: (source / name).read_text("utf-8") for name in UNITS}
    texts["gpuwatch.service"] = _with_program(texts["gpuwatch.service"], this_program(), flags)
    texts["gpuwatch.socket"] = re.sub(r"(?m)^ListenStream=.*$", lambda _: f"ListenStream={listen}", texts["gpuwatch.socket"])
    manager = ("systemctl", "--user")
    return InstallPlan(
        _found({units / name: text for name, text in texts.items()}),
        after=((*manager, "daemon-reload"), (*manager, "enable", *UNITS), (*manager, "restart", *UNITS)),
    )


def removal(units: Path, *, scope: str, root: Path = Path("/")) -> InstallPlan:
    """Plan the removal of all installed gpuwatch files; each wanted text is empty.  The store and the configuration stay.

    Raises UsageError: when, under another root, a folder of a path is a link or another kind of file.
    """
    if root != Path("/"):
        _check_folder(units / "gpuwatch.service.d", root)
    paths = [units / name for name in UNITS] + sorted((units / "gpuwatch.service.d").glob("*.conf"))
    if scope == "system":
        paths += [_under(root, Path(f"/etc/{kind}.d/gpuwatch.conf")) for kind in ("sysusers", "tmpfiles")]
    files = [file for file in _found({path: "" for path in paths if not path.is_symlink()}, root) if file.is_ours]
    manager = ("systemctl",) if scope == "system" else ("systemctl", "--user")
    return InstallPlan(
        tuple(files),
        before=((*manager, "disable", "--now", *UNITS),) if files else (),
        after=((*manager, "daemon-reload"),) if files else (),
    )


def system_units(root: Path = Path("/")) -> Path:
    return _under(root, SYSTEM_UNITS)


def user_units(environment: Mapping[str, str]) -> Path:
    """Return the folder of a user's units: ``$XDG_CONFIG_HOME/systemd/user``."""
    return user_folder(environment, "XDG_CONFIG_HOME", ".config") / "systemd/user"


def write(file: File, *, root: Path = Path("/")) -> None:
    """Write a file completely or not at all; with an empty text, remove the file, and its folder of drop-ins if empty.

    Under another root follow no link, because a link in an image can lead out of the image.
    Raises UsageError: when, under another root, a folder of the path is a link or another kind of file.
    Raises OSError: when the file cannot be written or removed.
    """
    folder, name = file.path.parent, file.path.name
    if not file.text:
        with contextlib.suppress(FileNotFoundError), _opened(folder, root, makes=False) as there:
            os.unlink(name, dir_fd=there)
        if folder.name == "gpuwatch.service.d":
            with contextlib.suppress(FileNotFoundError), _opened(folder.parent, root, makes=False) as there:
                _remove_if_empty(folder.name, there)
        return
    with _opened(folder, root, makes=True) as there:
        written = f".{name}.{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(written, flags, 0o600, dir_fd=there)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as out:
                os.fchmod(descriptor, 0o644)
                out.write(file.text)
            os.rename(written, name, src_dir_fd=there, dst_dir_fd=there)
        except BaseException:
            os.unlink(written, dir_fd=there)
            raise


def _remove_if_empty(name: str, parent: int) -> None:
    try:
        os.rmdir(name, dir_fd=parent)
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise


@contextlib.contextmanager
def _opened(folder: Path, root: Path, *, makes: bool) -> Iterator[int]:
    """Yield a descriptor of a folder; below another root no part of the path may be a link.  Raises UsageError, OSError."""
    if makes:
        (folder if root == Path("/") else root).mkdir(parents=True, exist_ok=True)
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    with contextlib.ExitStack() as closing:
        at, path = os.open(folder if root == Path("/") else root, flags), root
        closing.callback(os.close, at)
        for part in () if root == Path("/") else folder.relative_to(root).parts:
            path /= part
            if makes:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=at)
            try:
                at = os.open(part, flags | os.O_NOFOLLOW, dir_fd=at)
            except OSError as error:
                if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                    raise
                found = f"a link to {path.readlink()}" if path.is_symlink() else "another kind of file"
                raise UsageError(
                    f"{path}: expected a folder inside {root}, found {found}; replace it with a folder first"
                ) from error
            closing.callback(os.close, at)
        yield at


def this_program() -> tuple[str, ...]:
    """Return the command of this installation: the script next to the interpreter, else the interpreter and the module."""
    script = Path(sys.executable).with_name("gpuwatch")
    return (str(script),) if os.access(script, os.X_OK) else (sys.executable, "-m", "gpuwatch")


def quoted(word: str) -> str:
    """Return a word quoted for a command line in a unit; the word must not contain a line break."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return escaped if re.fullmatch(r"[\w@%+=:,./$-]+", escaped) else f'"{escaped}"'


def visible(program: Sequence[str]) -> Sequence[str]:
    """Return the program, if a service without home and temporary folders can run it.

    Raises UsageError: when program, interpreter or gpuwatch is in a folder that the service cannot read.
    """
    for path in (Path(program[0]), Path(program[0]).resolve(), Path(sys.prefix).resolve(), Path(__file__).resolve()):
        for hidden in _HIDDEN:
            if path.is_relative_to(hidden):
                raise UsageError(
                    f"{path}: expected a program outside {hidden}, which the system's daemon cannot read; install gpuwatch"
                    " elsewhere, from its source folder: python3 -m venv /opt/gpuwatch && /opt/gpuwatch/bin/pip install ."
                )
    return program


def _with_program(text: str, program: Sequence[str], flags: Sequence[str] = ()) -> str:
    before, after = " ".join(map(quoted, program)), "".join(f" {quoted(flag)}" for flag in flags)
    return re.sub(rf"(?m)^ExecStart={re.escape(_SHIPPED)}(.*)$", lambda line: f"ExecStart={before}{line[1]}{after}", text)


def _check_folder(folder: Path, root: Path) -> None:
    """Raise UsageError if a part of a folder's path is not a folder, such as a link; a missing folder is not an error."""
    with contextlib.suppress(FileNotFoundError), _opened(folder, root, makes=False):
        pass


def _found(wanted: dict[Path, str], root: Path = Path("/")) -> tuple[File, ...]:
    """Return the wanted files with their current texts.

    Raises UsageError: for a foreign file, and for a link, which can mask a unit.
    """
    files: list[File] = []
    for path, text in wanted.items():
        if root != Path("/"):
            _check_folder(path.parent, root)
        if path.is_symlink():
            raise UsageError(f"{path}: expected a file or nothing, found a link to {path.readlink()}; remove it first")
        file = File(path, text, path.read_text("utf-8", "replace") if path.exists() else None)
        if text and file.found is not None and not file.is_ours:
            raise UsageError(
                f"{path}: expected a file of gpuwatch or nothing, found another file; move this file to another folder first"
            )
        files.append(file)
    return tuple(files)


def _under(root: Path, path: Path) -> Path:
    return root / path.relative_to("/")
