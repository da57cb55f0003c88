"""Tests of settings: precedence, origins, one-line errors, and default paths."""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

import pytest

from gpuwatch.cli import main
from gpuwatch.config import paths
from gpuwatch.config import settings as config
from gpuwatch.config.keys import KEYS, find_misspelt
from gpuwatch.errors import UsageError


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """Return an environment whose home, runtime and temporary folders belong to one test."""
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    return {"HOME": str(tmp_path / "home"), "XDG_RUNTIME_DIR": str(runtime), "TMPDIR": str(tmp_path)}


def write(home: dict[str, str], text: str) -> Path:
    path = Path(home["HOME"]) / ".config" / "gpuwatch" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_load_without_configuration_gives_defaults(home: dict[str, str]) -> None:
    settings = config.load(environment=home)
    assert settings.source == "auto"
    assert settings.state == Path(home["HOME"]) / ".local/state/gpuwatch"
    assert settings.socket == Path(home["XDG_RUNTIME_DIR"]) / "gpuwatch/daemon.sock"
    assert (settings.idle_period_ns, settings.active_period_ns) == (50_000_000, 10_000_000)
    assert {settings.origin(key.field) for key in KEYS} == {"default"}


def test_load_prefers_flags_to_environment_to_file(home: dict[str, str]) -> None:
    path = write(home, 'source = "nvml"\nlog_level = "debug"\n[sampling]\nidle_period = "100ms"\nactive_period = "20ms"\n')
    env = home | {"GPUWATCH_LOG_LEVEL": "error", "GPUWATCH_SAMPLING_IDLE_PERIOD": "200ms"}
    settings = config.load({"log_level": "warning"}, environment=env)
    assert (settings.log_level, settings.origin("log_level")) == ("warning", "--log-level")
    assert (settings.idle_period_ns, settings.origin("idle_period_ns")) == (200_000_000, "GPUWATCH_SAMPLING_IDLE_PERIOD")
    assert (settings.active_period_ns, settings.origin("active_period_ns")) == (20_000_000, f"{path}:5")
    assert (settings.source, settings.origin("source")) == ("nvml", f"{path}:1")


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('sorce = "auto"', 1, "did you mean 'source'"),
        ('\n[sampling]\nidle_perod = "50ms"', 3, "did you mean 'sampling.idle_period'"),
        ('idle_exit = "1s"', 1, "did you mean 'daemon.idle_exit'"),
        ("[sampling]\nidle_period = 50", 2, "sampling.idle_period: expected a duration with its unit"),
        ('[sampling]\nidle_period = "50"', 2, "without a unit"),
        ('[sampling]\nidle_period = "50 parsecs"', 2, "unknown unit 'parsecs'"),
        ('[sampling]\nidle_period = "10ns"', 2, "1ms to 10s"),
        ("[sampling]\nbudget = 0.01", 2, "expected a share"),
        ('[store]\nbudget = "2gib"', 2, "did you mean GiB"),
        ('[store]\nbudget = "1KiB"', 2, "at least 1MiB"),
        ('source = "simulatd"', 1, "did you mean 'simulated'"),
        ('source = "replay:"', 1, "replay:PATH"),
        ('source = "nvml:x"', 1, "found 'nvml:x'"),
        ("state = 3", 1, "expected a path, found 3"),
        ('socket = "/' + "x" * 120 + '"', 1, "at most 107 bytes"),
        ('log_level = "loud"', 1, "expected one of debug, info"),
        ("sampling = 3", 1, "expected a table [sampling]"),
        ("[samplin]", 1, "unknown key 'samplin'"),
        ("[gpus]\nall = true", 1, "unknown key 'gpus'"),
        ('[sampling]\nidle_period = "10ms"\nactive_period = "20ms"', 3, "at most sampling.idle_period (10ms"),
    ],
)
def test_load_names_the_place_of_a_mistake_in_a_file(home: dict[str, str], text: str, line: int, words: str) -> None:
    """The error for a mistake in a file is one line that begins with the path and the line number."""
    path = write(home, text)
    with pytest.raises(UsageError) as caught:
        config.load(environment=home)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content", [b"source = ", b"\xff\xfe", b"source = 'auto'\nsource = 'auto'\n", b"[[[[", b"\0", b"a = 1" + b"0" * 5000]
)
def test_load_refuses_a_file_that_is_not_toml(home: dict[str, str], content: bytes) -> None:
    path = write(home, "")
    path.write_bytes(content)
    with pytest.raises(UsageError, match="toml: expected"):
        config.load(environment=home)


def test_named_file_replaces_the_others_and_must_exist(home: dict[str, str], tmp_path: Path) -> None:
    write(home, 'log_level = "debug"')
    other = tmp_path / "other.toml"
    with pytest.raises(UsageError, match="expected a configuration file, found none"):
        config.load({"config": str(other)}, environment=home)
    other.write_text('[daemon]\nidle_exit = "5s"\n')
    settings = config.load(environment=home | {"GPUWATCH_CONFIG": str(other)})
    assert (settings.log_level, settings.idle_exit_s) == ("info", 5.0)


def test_load_names_wrong_variables_and_flags(home: dict[str, str]) -> None:
    wrong = {
        "GPUWATCH_STORE_BUDGET": ("much", "expected a size"),
        "GPUWATCH_EXPORTER_PROCESSES": ("9" * 5000, r"expected a whole number of 0 to 100, found '9{12}\.\.\.9{13}'$"),
        "GPUWATCH_LISTEN": ("9" * 5000, r"expected a port of 0 to 65535, found '9{12}\.\.\.9{13}'$"),
    }
    for name, (text, says) in wrong.items():
        with pytest.raises(UsageError, match=f"^{name}: {says}"):
            config.load(environment=home | {name: text})
    with pytest.raises(UsageError, match=r"^--source: expected auto"):
        config.load({"source": "cuda"}, environment=home)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"config": "~nosuchuser/a.toml"}, "the configuration file: expected a path, found .*: no such user"),
        ({"source": "replay:~nosuchuser/a"}, "--source: expected a path, found .*: no such user"),
        ({"source": "replay:a\0b"}, "--source: expected a path, found"),
    ],
)
def test_load_refuses_a_path_that_cannot_exist(home: dict[str, str], flags: dict[str, str], says: str) -> None:
    with pytest.raises(UsageError, match=f"^{says}"):
        config.load(flags, environment=home)


def test_empty_variable_counts_as_unset(home: dict[str, str]) -> None:
    assert config.load(environment=home | {"GPUWATCH_SOURCE": ""}).source == "auto"


def test_unknown_variables_are_listed_without_an_error(home: dict[str, str]) -> None:
    env = home | {"GPUWATCH_SORCE": "nvml", "GPUWATCH_STATE": "/x", "GPUWATCH_EXTEND": "torch", "GPUWATCH_AUTO": "1"}
    assert config.load(environment=env).source == "auto"
    assert config.unknown_variables(env) == ("GPUWATCH_SORCE",)


def test_configured_value_limits_a_default(home: dict[str, str]) -> None:
    write(home, '[sampling]\nidle_period = "5ms"\n[store]\nbudget = "8MiB"\n')
    settings = config.load(environment=home)
    assert (settings.active_period_ns, settings.segment_bytes) == (5_000_000, 8 << 20)


def test_simulated_and_replayed_sources_have_own_stores(home: dict[str, str]) -> None:
    """Each simulated or replayed source has a separate store and socket."""
    sources = ("auto", "simulated", "simulated:a", "simulated:b", "replay:/a.csv", "replay:/b.csv")
    loaded = [config.load({"source": source}, environment=home) for source in sources]
    assert len({settings.state for settings in loaded}) == len({settings.socket for settings in loaded}) == len(sources)
    assert config.load({"source": "nvml"}, environment=home).socket == loaded[0].socket
    assert [settings.simulated for settings in loaded] == [False, True, True, True, True, True]


def test_settings_flags_select_the_same_paths(home: dict[str, str], tmp_path: Path) -> None:
    settings = config.load({"source": "simulated:a", "log_level": "debug"}, environment=home)
    options = (flag.removeprefix("--").split("=", 1) for flag in settings.flags())
    flags = {name.replace("-", "_"): value for name, value in options}
    again = config.load(flags, environment={"HOME": "/nowhere"})
    assert (again.source, again.state, again.socket, again.log_level) == (
        settings.source, settings.state, settings.socket, "debug",
    )  # fmt: skip


def test_load_makes_a_recordings_path_absolute(home: dict[str, str]) -> None:
    assert config.load({"source": "replay:log.csv"}, environment=home).source == f"replay:{Path('log.csv').absolute()}"


def test_reread_applies_a_changed_file_and_keeps_flags(home: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in home.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    settings = config.load({"log_level": "error"})
    write(home, 'log_level = "debug"\n[daemon]\nidle_exit = "7s"')
    again = settings.reread()
    assert (again.log_level, again.idle_exit_s) == ("error", 7.0)


@pytest.mark.parametrize("runtime", ["", "relative", "/nowhere/at/all"])
def test_socket_without_a_runtime_folder_is_in_a_private_one(home: dict[str, str], runtime: str) -> None:
    """Without a usable runtime folder, the socket is in a private folder of mode 0700 below TMPDIR."""
    settings = config.load(environment=home | {"XDG_RUNTIME_DIR": runtime})
    assert settings.socket == Path(home["TMPDIR"]) / f"gpuwatch-{os.getuid()}" / "daemon.sock"
    config.ensure_socket_folder(settings.socket)
    assert stat.S_IMODE(settings.socket.parent.stat().st_mode) == 0o700
    config.ensure_socket_folder(settings.socket)


def test_user_without_home_gets_a_default_store(home: dict[str, str]) -> None:
    assert paths.default_state("auto", {"HOME": ""}) == Path(pwd.getpwuid(os.getuid()).pw_dir) / ".local/state/gpuwatch"
    assert paths.default_state("auto", {"HOME": "relative", "XDG_STATE_HOME": "also"}).is_absolute()


def test_socket_folder_writable_by_others_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(UsageError, match="chmod 700"):
        config.ensure_socket_folder(folder / "daemon.sock")


def test_socket_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(UsageError, match="symbolic link"):
        config.ensure_socket_folder(tmp_path / "link" / "daemon.sock")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make another user's folder")
def test_socket_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir(mode=0o700)
    os.chown(folder, 12345, -1)
    with pytest.raises(UsageError, match="found one of uid 12345"):
        config.ensure_socket_folder(folder / "daemon.sock")


def test_file_in_place_of_the_socket_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="expected a folder"):
        config.ensure_socket_folder(tmp_path / "file" / "daemon.sock")


def test_misspelt_variable_names_the_nearest_setting(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A command names a variable like a setting's, and no variable of another program."""
    names = (
        "GPUWATCH_SORCE",
        "GPUWATCH_SOURCE",
        "GPUWATCH_CONFIG",
        "GPUWATCH_TAGS",
        "GPUWATCH_NVTX",
        "GPUWATCH_EXAMPLES",
        "SORCE",
    )
    assert find_misspelt(names) == {"GPUWATCH_SORCE": "GPUWATCH_SOURCE"}
    monkeypatch.setenv("GPUWATCH_STAT", "/tmp/x")
    main(["scenes"])
    told = "gpuwatch: GPUWATCH_STAT: expected the name of a setting, and ignored it; did you mean GPUWATCH_STATE?\n"
    assert capfd.readouterr().err.startswith(told)
