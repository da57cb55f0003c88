"""Tests of `gpuwatch daemon install` and `gpuwatch daemon uninstall`."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuwatch.errors import UsageError
from gpuwatch.systemd import units
from tests.gpuwatch.cli.conftest import Gpuwatch


def files(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}


def test_install_without_confirmation_writes_nothing(
    gpuwatch: Gpuwatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    monkeypatch.setattr("sys.stdin", None)
    ended = gpuwatch("daemon", "install", "--root", str(root))
    assert ended.code == 1
    assert f"new {root}/etc/systemd/system/gpuwatch.service" in ended.out
    assert "+ExecStart=/usr/bin/gpuwatch daemon --system" in ended.out
    assert "nothing was changed: repeat with --yes" in ended.err
    assert not root.exists()


def test_install_writes_only_differing_files(gpuwatch: Gpuwatch, tmp_path: Path) -> None:
    """The first install writes every file, later installs write differing files, and `uninstall` keeps the administrator's file."""
    install = ("daemon", "install", "--root", str(tmp_path), "--yes")
    assert gpuwatch(*install, "--with", "kernel-log").code == 0
    found = files(tmp_path / "etc")
    assert set(found) == {
        "systemd/system/gpuwatch.service", "systemd/system/gpuwatch.socket", "systemd/system/gpuwatch.service.d/kernel-log.conf",
        "sysusers.d/gpuwatch.conf", "tmpfiles.d/gpuwatch.conf",
    }  # fmt: skip
    assert {oct((tmp_path / "etc" / name).stat().st_mode & 0o777) for name in found} == {"0o644"}
    assert "nothing to do" in gpuwatch(*install).out

    # Make the unit an older version's, and add the administrator's drop-in.
    unit = tmp_path / "etc/systemd/system/gpuwatch.service"
    unit.write_text(unit.read_text().replace("WatchdogSec=30s", "WatchdogSec=90s"))
    (unit.parent / "gpuwatch.service.d/override.conf").write_text("[Service]\nNice=1\n")
    said = gpuwatch(*install).out
    assert "-WatchdogSec=90s\n+WatchdogSec=30s" in said
    assert f"same {unit.with_suffix('.socket')}" in said
    assert files(tmp_path / "etc") == {**found, "systemd/system/gpuwatch.service.d/override.conf": "[Service]\nNice=1\n"}

    uninstall = ("daemon", "uninstall", "--root", str(tmp_path), "--yes")
    assert gpuwatch(*uninstall).code == 0
    assert list(files(tmp_path / "etc")) == ["systemd/system/gpuwatch.service.d/override.conf"]
    assert "nothing to do" in gpuwatch(*uninstall).out


def test_install_with_root_refuses_the_users_units(gpuwatch: Gpuwatch, tmp_path: Path) -> None:
    for command in ("install", "uninstall"):
        ended = gpuwatch("daemon", command, "--user", "--root", str(tmp_path), "--yes")
        assert (ended.code, ended.err) == (2, "gpuwatch: --root: expected --system with it, found --user; use --system\n")


def test_drop_in_description_names_existing_rules(gpuwatch: Gpuwatch) -> None:
    said = " ".join(gpuwatch("daemon", "install", "--list").out.split())
    named = said.partition("(rules ")[2].partition(")")[0].split(", ")
    assert named == ["profiler-attached", "contention-shared-partition"]
    assert all(gpuwatch("explain", name).code == 0 for name in named)


def test_install_keeps_foreign_files_and_masks(gpuwatch: Gpuwatch, tmp_path: Path) -> None:
    """Install refuses a unit that gpuwatch did not write, and a mask; uninstall finds nothing to do for a mask."""
    unit = tmp_path / "etc/systemd/system/gpuwatch.service"
    unit.parent.mkdir(parents=True)
    unit.write_text("[Service]\nExecStart=/mine\n")
    ended = gpuwatch("daemon", "install", "--root", str(tmp_path), "--yes")
    assert (ended.code, unit.read_text()) == (2, "[Service]\nExecStart=/mine\n")
    assert "expected a file of gpuwatch or nothing" in ended.err
    unit.unlink()
    unit.symlink_to("/dev/null")
    assert "found a link to /dev/null" in gpuwatch("daemon", "install", "--root", str(tmp_path), "--yes").err
    assert "nothing to do" in gpuwatch("daemon", "uninstall", "--root", str(tmp_path), "--yes").out


LINKED = [
    "etc",
    "etc/systemd",
    "etc/systemd/system",
    "etc/systemd/system/gpuwatch.service.d",
    "etc/sysusers.d",
    "etc/tmpfiles.d",
]


@pytest.mark.parametrize("command", ["install", "uninstall"])
@pytest.mark.parametrize("target", ["{outside}", "../" * 20 + "{outside}"], ids=["absolute", "relative"])
@pytest.mark.parametrize("linked", LINKED)
def test_install_follows_no_link_out_of_the_image(
    gpuwatch: Gpuwatch, tmp_path: Path, linked: str, target: str, command: str
) -> None:
    """Neither install nor uninstall in an image follows a link, because links can lead to the building machine's /etc."""
    image, outside = tmp_path / "image", tmp_path / "outside"
    install = ("daemon", "install", "--yes", "--with", "kernel-log", "--root")
    assert gpuwatch(*install, str(image)).code == 0
    outside.mkdir()
    (image / linked).rename(outside / "moved")
    real = outside / "moved"
    (image / linked).symlink_to(target.format(outside=real))
    if command == "install":
        for path in sorted(real.rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
    before = files(outside)
    arguments = (*install, str(image)) if command == "install" else ("daemon", "uninstall", "--yes", "--root", str(image))
    ended = gpuwatch(*arguments)
    assert (ended.code, ended.err.count("\n")) == (2, 1), ended.err
    assert f"{image / linked}: expected a folder inside {image}, found a link to" in ended.err
    assert files(outside) == before
    assert [path.name for path in outside.iterdir()] == ["moved"]


def test_write_follows_no_link_that_came_after_the_plan(gpuwatch: Gpuwatch, tmp_path: Path) -> None:
    """Writing opens each folder without following links, because the image may change after the plan is shown."""
    image, outside = tmp_path / "image", tmp_path / "outside"
    outside.mkdir()
    assert gpuwatch("daemon", "install", "--yes", "--root", str(image)).code == 0
    removed = units.removal(units.system_units(image), scope="system", root=image)
    units_folder = image / "etc/systemd/system"
    kept = units_folder.rename(outside / "moved")
    units_folder.symlink_to(kept)
    before = files(outside)
    for plan in (units.InstallPlan(tuple(units.File(file.path, "new", None) for file in removed.files)), removed):
        for file in plan.files:
            if file.path.is_relative_to(units_folder):
                with pytest.raises(UsageError, match=f"expected a folder inside {image}"):
                    units.write(file, root=image)
    assert files(outside) == before


@pytest.mark.skipif(units.MANAGER_RUNS.is_dir(), reason="would enable a service of the user that runs the tests")
def test_install_passes_the_users_paths_to_the_service(gpuwatch: Gpuwatch, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's units have the source, state folder and socket of the user's settings."""
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "100% mine"))
    ended = gpuwatch("daemon", "install", "--user", "--yes", "--source", "simulated")
    assert ended.code == 0
    found = files(home / ".config/systemd/user")
    state = str(home / "100%% mine/gpuwatch-simulated")
    assert f' daemon --source=simulated "--state={state}"\n' in found["gpuwatch.service"]
    assert "ListenStream=%t/gpuwatch/daemon-simulated.sock\n" in found["gpuwatch.socket"]
    assert "loginctl enable-linger" in ended.err
    assert gpuwatch("daemon", "install", "--user", "--yes", "--socket", str(home / "s")).code == 0
    assert f"ListenStream={home}/s\n" in files(home / ".config/systemd/user")["gpuwatch.socket"]
    assert gpuwatch("daemon", "uninstall", "--user", "--yes").code == 0
    assert files(home / ".config/systemd/user") == {}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--system", "--with", "profiler"), "--with: expected one of kernel-log, "),
        (("--user", "--with", "profilers"), "--with: expected --system with it"),
        (("--system", "--state", "/x"), "set it in /etc/gpuwatch/config.toml"),
        (("--user", "--root", "/x"), "--root: expected --system with it, found --user"),
    ],
)
def test_install_refuses_contradicting_options(gpuwatch: Gpuwatch, arguments: tuple[str, ...], says: str) -> None:
    ended = gpuwatch("daemon", "install", *arguments)
    assert ended.code == 2
    assert says in ended.err


def test_install_refuses_a_program_hidden_from_the_service() -> None:
    with pytest.raises(UsageError, match="expected a program outside /home, which the system's daemon cannot read"):
        units.visible(("/home/ada/venv/bin/gpuwatch",))


def test_install_lists_the_drop_ins(gpuwatch: Gpuwatch) -> None:
    assert gpuwatch("daemon", "install", "--list").out.startswith("DROP-IN")


def test_install_plan_runs_commands_in_systemds_order() -> None:
    plan = units.system(root=Path("/nowhere"))
    assert [command[:2] for command in plan.after] == [
        ("systemd-sysusers", "/nowhere/etc/sysusers.d/gpuwatch.conf"), ("systemd-tmpfiles", "--create"),
        ("systemctl", "daemon-reload"), ("systemctl", "enable"), ("systemctl", "restart"),
    ]  # fmt: skip


def test_daemon_refuses_system_with_on_demand(gpuwatch: Gpuwatch) -> None:
    assert "--on-demand: expected no --system" in gpuwatch("daemon", "--system", "--on-demand").err
