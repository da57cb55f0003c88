"""Tests of gpuwatch config: values, origins, checks and paths."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from gpuwatch.config import settings as config
from gpuwatch.config.keys import KEYS
from tests.gpuwatch.cli.conftest import Gpuwatch


def test_config_show_prints_a_file_with_the_same_settings(gpuwatch: Gpuwatch, home: Path) -> None:
    (home / "all.toml").write_text(gpuwatch("config", "show", "--origin").out)
    tomllib.loads((home / "all.toml").read_text())
    assert config.load({"config": str(home / "all.toml")}) == config.load()


def test_config_show_names_the_origin_of_every_value(gpuwatch: Gpuwatch, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "c.toml").write_text('[store]\nmax_age = "7d"\n')
    monkeypatch.setenv("GPUWATCH_LOG_LEVEL", "debug")
    settings = gpuwatch("--config", str(home / "c.toml"), "config", "show", "--json", "--source", "nvml").data["settings"]
    assert set(settings) == {key.name for key in KEYS}
    assert settings["store.max_age"]["store_max_age_s"] == 7 * 86400.0
    assert {name: settings[name]["origin"] for name in ("store.max_age", "log_level", "source", "store.budget")} == {
        "store.max_age": f"{home}/c.toml:2", "log_level": "GPUWATCH_LOG_LEVEL", "source": "--source", "store.budget": "default",
    }  # fmt: skip


def test_option_after_the_command_wins_over_one_before(gpuwatch: Gpuwatch) -> None:
    assert gpuwatch("--state", "/a", "db", "path", "--state", "/b").out == "/b/gpuwatch.db\n"


def test_config_validate_confirms_a_right_file(gpuwatch: Gpuwatch, home: Path) -> None:
    (home / "c.toml").write_text('source = "nvml"\n')
    assert gpuwatch("config", "validate", str(home / "c.toml")).out == f"{home}/c.toml: right\n"
    assert gpuwatch("config", "validate", "--json").data["files"] == []


def test_config_validate_names_every_wrong_key(gpuwatch: Gpuwatch, home: Path) -> None:
    """Each wrong key and value has a line with its place; JSON has all of them in one message."""
    (home / "c.toml").write_text('tolerance = "x"\n[sampling]\nperoid = "1s"\nidle_period = "q"\n')
    ended = gpuwatch("config", "validate", str(home / "c.toml"))
    assert ended.code == 2
    assert [line.split(": ")[2] for line in ended.err.splitlines()] == [
        "tolerance",
        "unknown key 'sampling.peroid'; did you mean 'sampling.idle_period'?",
        "sampling.idle_period",
    ]
    assert [line.split(": ")[1].rpartition(":")[2] for line in ended.err.splitlines()] == ["1", "3", "4"]
    message = gpuwatch("config", "validate", str(home / "c.toml"), "--json").data["error"]["message"]
    assert message.count("c.toml:") == 3


def test_config_validate_warns_of_a_misspelt_variable(gpuwatch: Gpuwatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUWATCH_SORCE", "nvml")
    ended = gpuwatch("config", "validate")
    assert ended.code == 0
    assert "GPUWATCH_SORCE" in ended.err


def test_config_path_prints_the_files_in_order(gpuwatch: Gpuwatch, home: Path) -> None:
    assert gpuwatch("config", "path").out.splitlines() == [f"{home}/.config/gpuwatch/config.toml", "/etc/gpuwatch/config.toml"]


def test_config_path_prints_a_named_file(gpuwatch: Gpuwatch, monkeypatch: pytest.MonkeyPatch) -> None:
    """An option wins over the variable, and the file need not exist."""
    monkeypatch.setenv("GPUWATCH_CONFIG", "/of/variable.toml")
    assert gpuwatch("config", "path").out == "/of/variable.toml\n"
    given = gpuwatch("config", "path", "--config", "/of/option.toml", "--json")
    assert given.data["files"] == [{"path": "/of/option.toml", "of": "--config"}]
