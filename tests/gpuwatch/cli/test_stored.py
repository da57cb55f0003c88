"""Tests of show, audit, record and db on a real store of a simulated GPU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from gpuwatch import clock
from gpuwatch.cli import rejudge
from gpuwatch.client.connection import connect
from gpuwatch.client.window import Window, window
from gpuwatch.config.settings import Settings, load
from gpuwatch.errors import UsageError
from tests.gpuwatch.cli.conftest import Gpuwatch
from tests.gpuwatch.forked import daemons_of_windows
from tests.waiting import sample_for

if TYPE_CHECKING:
    from gpuwatch.store import Reader


@pytest.fixture(scope="module")
def short(daemon: Settings) -> Window:
    return measured(daemon, "short", 0.2)


@pytest.fixture(scope="module")
def longer(daemon: Settings, short: Window) -> Window:
    """Measure a window of 3.2 s, after the short one."""
    return measured(daemon, "longer", 3.2)


def measured(settings: Settings, label: str, seconds: float) -> Window:
    with window(label, sync=False, settings=settings) as watched:
        sample_for(seconds)
    assert watched.verdicts
    return watched


def test_show_finds_the_last_window_or_an_id_prefix(
    gpuwatch: Gpuwatch, daemon: Settings, short: Window, longer: Window
) -> None:
    """The last window is the default, and a prefix of an id selects any other window."""
    assert "  longer  " in gpuwatch(*daemon.flags(), "show", "--verbose").out
    assert short.run_id is not None
    ended = gpuwatch(*daemon.flags(), "show", short.run_id[:-3], "--json")
    assert ended.data["run"] == short.run_id
    assert ended.data["verdicts"] == [verdict.to_dict() for verdict in short.verdicts]
    assert gpuwatch(*daemon.flags(), "show", short.run_id, "--markdown").out.startswith(
        f"**{short.verdict.status.upper()}** **SIMULATED** short on"
    )


def test_show_finds_the_windows_of_a_daemon_of_another_home(
    gpuwatch: Gpuwatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's daemon that began with another HOME keeps its store; commands that read find it through the daemon."""
    flags = ("--source", "simulated:steady-copy")
    with daemons_of_windows():
        measured(load({"source": "simulated:steady-copy"}), "kept", 0.1)
    monkeypatch.setenv("HOME", str(tmp_path / "other"))
    assert "  kept  " in gpuwatch("show", "kept", *flags).out
    assert gpuwatch("daemon", "stop", *flags).code == 0
    assert "expected a store, found none" in gpuwatch("show", "kept", *flags).err


def test_show_suggests_a_label_like_the_given_one(gpuwatch: Gpuwatch, daemon: Settings, longer: Window) -> None:
    ended = gpuwatch(*daemon.flags(), "show", "longre")
    assert ended.code == 1
    assert "found 'longre'; did you mean 'longer'?" in ended.err


def test_compare_refuses_a_run_with_itself(gpuwatch: Gpuwatch, daemon: Settings, longer: Window) -> None:
    ended = gpuwatch(*daemon.flags(), "compare", "longer", str(longer.run_id))
    assert (ended.code, ended.err) == (2, f"gpuwatch: expected two runs, found run {longer.run_id} twice\n")


def test_another_policy_rejudges_and_writes_nothing(gpuwatch: Gpuwatch, daemon: Settings, short: Window) -> None:
    """With another policy, `show` judges the stored evidence again and writes nothing."""
    assert short.run_id is not None
    show = (*daemon.flags(), "show", short.run_id, "--json", "--fail-on", "unproven,flagged,rejected")
    assert gpuwatch(*show).code in (10, 11, 12)
    again = gpuwatch(*show, "--accept", "idle-stretch,dark-time,window-too-short", "--claim", "burst")
    assert (again.data["rejudged"], again.data["verdicts"][0]["claim"]) == (True, "burst")
    assert again.data["verdicts"][0]["status"] not in ("flagged", "rejected")
    stricter = gpuwatch(*show, "--limit", "no-work.busy_ratio=0.02")
    assert stricter.data["verdicts"][0]["policy"]["limits"] == {"no-work": {"busy_ratio": 0.02}}
    assert gpuwatch(*show).data["rejudged"] is False


def test_overridden_limits_are_marked_in_words(gpuwatch: Gpuwatch, daemon: Settings, short: Window) -> None:
    """Text and Markdown of a verdict name the limits that differ from the defaults."""
    show = (*daemon.flags(), "show", str(short.run_id))
    changed = (*show, "--limit", "no-work.busy_ratio=0.02")
    assert "other limits: no-work.busy_ratio 0.02 (default 0.01)" in gpuwatch(*changed).out
    assert "other limits: no" in gpuwatch(*changed, "--markdown").out
    assert "other limits" not in gpuwatch(*show).out


def test_limits_of_earlier_versions_have_no_effect_and_say_so(gpuwatch: Gpuwatch, daemon: Settings, short: Window) -> None:
    assert short.run_id is not None
    retired = ("outliers.cost_ratio=0.5", "window-too-short.least_s=5")
    done = gpuwatch(*daemon.flags(), "show", short.run_id, *(part for each in retired for part in ("--limit", each)))
    assert [line for line in done.err.splitlines() if "has no effect" in line] == [
        f"gpuwatch: --limit {name} has no effect since version 0.2: `gpuwatch explain {name.partition('.')[0]}`"
        for name in ("outliers.cost_ratio", "window-too-short.least_s")
    ]


def test_show_of_an_unknown_run_fails_and_names_the_run(gpuwatch: Gpuwatch, daemon: Settings, short: Window) -> None:
    """A name of no window fails, and ``report`` without a name is a wrong argument; the lines name the remedy."""
    ended = gpuwatch(*daemon.flags(), "show", "ffffffff")
    assert (ended.code, ended.out) == (1, "")
    assert "expected an id, the start of an id, or a label of a window in " in ended.err
    assert "found 'ffffffff'; list the windows with: gpuwatch audit --source=simulated" in ended.err
    report = gpuwatch(*daemon.flags(), "report")
    assert report.code == 2
    assert "write: gpuwatch report RUN -o report.html" in report.err


def test_show_finds_a_window_by_label_or_from_the_last(
    gpuwatch: Gpuwatch, daemon: Settings, short: Window, longer: Window
) -> None:
    """A label selects its latest window; -1 is the last window, and -2 is the window before."""

    def shown(*arguments: str) -> str:
        return str(gpuwatch(*daemon.flags(), "show", *arguments, "--json").data["run"])

    assert shown("short") == short.run_id
    assert shown("-1") == shown("--last") == shown()
    listed = sorted(gpuwatch(*daemon.flags(), "audit", "--json").data["runs"], key=lambda run: -run["begun_wall_s"])
    assert [shown("-1"), shown("-2")] == [run["run"] for run in listed[:2]]
    assert gpuwatch(*daemon.flags(), "report", "short", "--markdown").out.count("short on") == 1
    both = gpuwatch(*daemon.flags(), "show", "short", "-2")
    assert (both.code, "expected a run or -2, found both: short -2" in both.err) == (2, True)
    if len(listed) < 9:  # other tests use the daemon as well
        beyond = gpuwatch(*daemon.flags(), "show", "-9")
        assert (beyond.code, f"-9: expected -1 to -{len(listed)}, as the store holds" in beyond.err) == (1, True)


def test_audit_lists_the_worst_window_first(gpuwatch: Gpuwatch, daemon: Settings, short: Window, longer: Window) -> None:
    data = gpuwatch(*daemon.flags(), "audit", "--json").data
    order = ["rejected", "flagged", "unproven", "valid"]
    assert [order.index(run["status"]) for run in data["runs"]] == sorted(order.index(run["status"]) for run in data["runs"])
    listed = {run["run"]: run for run in data["runs"]}
    assert "books: a window of a second or more" in listed[short.run_id]["why"]
    assert listed[short.run_id]["simulated"] is True
    assert listed[longer.run_id]["length_s"] == pytest.approx(3.2, abs=0.5)
    text = gpuwatch(*daemon.flags(), "audit")
    assert text.out.splitlines()[0].split() == ["STATUS", "BEGUN", "LENGTH", "LABEL", "RUN", "FOUND"]
    assert "books: a window of a second or more" in text.out or listed[short.run_id]["hazards"]


def test_audit_lists_the_number_of_a_timed_window(gpuwatch: Gpuwatch, daemon: Settings) -> None:
    """The table and the JSON have the number of the verdict's first line."""
    with window("timed", settings=daemon) as w:
        for _ in range(60):
            with w.iteration():
                sample_for(0.02)
    assert w.verdict
    flags = (*daemon.flags(), "audit", "--label", "timed")
    (listed,) = gpuwatch(*flags, "--json").data["runs"]
    has_number = w.verdict.budget is not None and w.verdict.budget.leading is not None
    assert bool(listed["number"]) is has_number
    assert listed["number"] in str(w.verdict).splitlines()[0]
    text = gpuwatch(*flags).out
    assert ("NUMBER" in text.splitlines()[0]) is has_number
    assert listed["number"] in text


def test_audit_fits_the_terminal_and_prints_usable_hints(
    gpuwatch: Gpuwatch, daemon: Settings, short: Window, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ended = gpuwatch(*daemon.flags(), "audit")
    assert all(len(line) <= 80 for line in ended.out.splitlines())
    assert any(line.split()[0] in ("UNPROVEN", "FLAGGED") and "short" in line for line in ended.out.splitlines())
    assert f"gpuwatch show RUN --source={daemon.source} --state={daemon.state} --socket={daemon.socket}" in ended.err
    shortened = next(word for word in ended.out.split() if str(short.run_id).startswith(word))
    assert gpuwatch(*daemon.flags(), "show", shortened, "--json").data["run"] == short.run_id


def test_show_omits_the_show_hint_and_audit_v_lists_the_claim(gpuwatch: Gpuwatch, daemon: Settings, short: Window) -> None:
    shown = gpuwatch(*daemon.flags(), "show", str(short.run_id)).out
    assert "`gpuwatch show` lists" not in shown
    listed = gpuwatch(*daemon.flags(), "audit", "--from", "4s", "--to", "2s", "-v").out
    assert "  claim: sustained" in listed


class _Unwatched:
    """A fake reader of a store that has times but no GPU."""

    def to_monotonic(self, wall_s: float) -> tuple[str, int]:
        return "boot", round(wall_s * 1e9)

    def devices(self) -> tuple[()]:
        return ()


def test_interval_of_a_store_without_gpus_is_refused() -> None:
    with pytest.raises(UsageError, match=r"expected readings in the store, found none; .*`gpuwatch doctor`"):
        rejudge.interval(cast("Reader", _Unwatched()), "2s", "1s", (), ())


def test_audit_filters_by_label_status_time_and_count(gpuwatch: Gpuwatch, daemon: Settings, short: Window) -> None:
    def runs(*arguments: str) -> list[str]:
        return [run["label"] for run in gpuwatch(*daemon.flags(), "audit", "--json", *arguments).data["runs"]]

    assert set(runs("--label", "short")) == {"short"}
    assert "short" not in runs("--status", "valid")
    assert runs("--since", "0s") == []
    assert "short" in runs("--since", "1h")
    assert len(runs("--count", "1")) == 1


def test_audit_rejudge_gives_the_stored_statuses(gpuwatch: Gpuwatch, daemon: Settings, short: Window, longer: Window) -> None:
    audit = (*daemon.flags(), "audit", "--json", "--label")
    for each in (short, longer):
        again = gpuwatch(*audit, str(each.label), "--rejudge").data
        assert again["rejudged"] is True
        assert [run["status"] for run in again["runs"]] == [
            run["status"] for run in gpuwatch(*audit, str(each.label)).data["runs"]
        ]
    assert gpuwatch(*audit, "short", "--accept", "idle-stretch,dark-time", "--status", "flagged").data["runs"] == []


def test_audit_judges_an_unwrapped_interval(gpuwatch: Gpuwatch, daemon: Settings, longer: Window) -> None:
    """An interval without a window is judged from the daemon's readings."""
    ended = gpuwatch(*daemon.flags(), "audit", "--from", "4s", "--to", "2s", "--json")
    (verdict,) = ended.data["verdicts"]
    assert verdict["end_ns"] - verdict["begin_ns"] == pytest.approx(2e9, rel=0.01)
    answered = {finding["rule"]: finding["answered"] for finding in verdict["findings"]}
    assert answered["stale-daemon"] == "clear"
    assert gpuwatch(*daemon.flags(), "audit", "--from", "4s", "--gpu", "GPU-nope").code == 2
    assert gpuwatch(*daemon.flags(), "audit", "--from", "2s", "--to", "4s").code == 2


def test_audit_of_an_interval_before_the_daemon_is_unproven(gpuwatch: Gpuwatch, daemon: Settings, longer: Window) -> None:
    with connect(daemon) as client:
        age_s = (clock.now_ns() - client.status()["epoch_ns"]) / 1e9
    span = ("--from", f"{age_s + 90:.0f}s", "--to", f"{age_s + 30:.0f}s")
    ended = gpuwatch(*daemon.flags(), "audit", *span, "--fail-on", "unproven")
    assert ended.code == 12
    assert "no reading" in ended.out


def test_recording_of_a_window_gets_the_same_verdict(
    gpuwatch: Gpuwatch, daemon: Settings, longer: Window, tmp_path: Path
) -> None:
    """A recording has the window's findings; --from and --to select parts by seconds, also from the end."""
    file = tmp_path / "window.gpuwatch"
    assert longer.run_id is not None
    ended = gpuwatch(*daemon.flags(), "record", "-o", str(file), "--run", longer.run_id, "--json")
    assert (ended.code, ended.data["size_bytes"]) == (0, file.stat().st_size)
    (judged,) = gpuwatch("audit", "--trace", str(file), "--json").data["verdicts"]
    assert judged["findings"] == longer.verdict.to_dict()["findings"]
    (part,) = gpuwatch("audit", "--trace", str(file), "--json", "--from", "0.5", "--to", "2.5s").data["verdicts"]
    assert part["begin_ns"] == judged["begin_ns"] + 500_000_000
    assert part["end_ns"] == judged["begin_ns"] + 2_500_000_000
    (last,) = gpuwatch("audit", "--trace", str(file), "--json", "--from", "-2s").data["verdicts"]
    assert (last["begin_ns"], last["end_ns"]) == (judged["end_ns"] - 2_000_000_000, judged["end_ns"])
    outside = gpuwatch("audit", "--trace", str(file), "--from", "0.5", "--to", "60")
    assert outside.code == 2
    assert "expected --from and --to within 0 to 3." in outside.err
    assert "has no wall times" in gpuwatch("audit", "--trace", str(file), "--from", "14:00").err


def test_record_writes_future_past_or_stored_readings(
    gpuwatch: Gpuwatch, daemon: Settings, longer: Window, tmp_path: Path
) -> None:
    for arguments in (("--seconds", "0.5"), ("--last", "4s")):
        file = tmp_path / "some.gpuwatch"
        ended = gpuwatch(*daemon.flags(), "record", "-o", str(file), *arguments, "--json")
        assert ended.code == 0
        assert gpuwatch("audit", "--trace", str(file), "--json").code == 0
        assert ended.data["gpus"] == [longer.verdict.device_uuid]
    notes = gpuwatch(*daemon.flags(), "record", "-o", str(file), "--run", str(longer.run_id)).err
    assert " s of 1 GPU, " in notes
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_audit_judges_parts_of_an_smi_log(gpuwatch: Gpuwatch, tmp_path: Path) -> None:
    """Seconds or wall times select parts of an nvidia-smi log; --query names the columns of a log without a header."""
    rows = [f"2026/11/20 14:02:{i // 20:02d}.{i % 20 * 50:03d}, 0, GPU-log, 1980 MHz, 500.00 W, 97 %" for i in range(200)]
    header = "timestamp, index, uuid, clocks.current.sm [MHz], power.draw [W], utilization.gpu [%]"
    log = tmp_path / "log.csv"
    log.write_text("\n".join([header, *rows]) + "\n")
    (whole,) = gpuwatch("audit", "--trace", str(log), "--json").data["verdicts"]
    for begin, end in (("2", "4"), ("14:02:02", "14:02:04"), ("2026-11-20 14:02:02", "2026-11-20 14:02:04")):
        (part,) = gpuwatch("audit", "--trace", str(log), "--json", "--from", begin, "--to", end).data["verdicts"]
        assert part["begin_ns"] - whole["begin_ns"] == 2_000_000_000
        assert part["end_ns"] - whole["begin_ns"] == 4_000_000_000
    notes = gpuwatch("audit", "--trace", str(log)).err
    assert "a log holds no process list" in notes
    assert "add clocks_event_reasons.active" in notes
    bare = tmp_path / "bare.csv"
    bare.write_text("\n".join([*rows, ""]))
    query = "timestamp,index,uuid,clocks.current.sm,power.draw,utilization.gpu"
    assert gpuwatch("audit", "--trace", str(bare), "--query", query, "--json").data["verdicts"] == [
        whole | {"label": "bare.csv"},
    ]  # fmt: skip


def test_db_path_prints_the_existing_database(gpuwatch: Gpuwatch, daemon: Settings, short: Window) -> None:
    data = gpuwatch(*daemon.flags(), "db", "path", "--json").data
    assert data == {"schema": 1, "path": str(daemon.state / "gpuwatch.db"), "exists": True}
    assert Path(data["path"]).exists()


def test_rejudging_in_several_processes_gives_equal_verdicts(daemon: Settings, short: Window, longer: Window) -> None:
    from gpuwatch.cli import open_store

    with open_store.reader(daemon) as store:
        runs = store.runs()
        assert len(runs) >= 2
        assert rejudge.all_again(store, runs, None, shared_count=1) == [rejudge.again(store, run, None) for run in runs]


def test_audit_trace_refuses_limit_outside_its_range(
    gpuwatch: Gpuwatch, daemon: Settings, longer: Window, tmp_path: Path
) -> None:
    file = tmp_path / "window.gpuwatch"
    assert gpuwatch(*daemon.flags(), "record", "-o", str(file), "--run", str(longer.run_id)).code == 0
    ended = gpuwatch("audit", "--trace", str(file), "--limit", "no-work.busy_ratio=0")
    expected = "limit no-work.busy_ratio: expected a number from 1e-06 to 1, found 0.0"
    assert (ended.code, ended.err.splitlines()) == (2, [f"gpuwatch: {expected}"])
