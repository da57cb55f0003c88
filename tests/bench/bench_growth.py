"""Growth with GPUs, stored windows and days of readings: the daemon's cost, and a user's waiting times."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from gpuwatch.clock import VirtualClock, wall_s
from gpuwatch.config.settings import Settings
from gpuwatch.store import Reader, Store, StoreLimits, files
from gpuwatch.store.boot import Boot
from gpuwatch.view import history
from tests.bench import made_up
from tests.bench.bench_peers import machine, ours, sleeping, why_no_driver
from tests.bench.bench_store import readings_bytes, unwatched
from tests.bench.bench_top import first_ms
from tests.fake_nvml.build import build
from tests.gpuwatch.live import running, settings
from tests.gpuwatch.store.stored import NEVER
from tests.gpuwatch.store.streams import BEGIN_NS, BOOT, UUID, stream

Figures = dict[str, float]

GPUS = (1, 2, 4, 8)
WINDOWS = (1_000, 10_000, 100_000, 1_000_000)
DAYS = (1, 7, 30)
_MINUTE_NS = 60_000_000_000


def main(
    gpus: Sequence[int] = GPUS, windows: Sequence[int] = WINDOWS, days: Sequence[int] = DAYS, seconds: float = 10.0
) -> Figures:
    return {**with_gpus(gpus, seconds), **with_windows(windows), **with_days(days)}


# Growth with the number of GPUs


def with_gpus(counts: Sequence[int], seconds: float) -> Figures:
    figures: Figures = {}
    if why := why_no_driver():
        print(f"\ngrowth with GPUs: {why}")
        return figures
    print(
        f"\n{f'busy GPUs, double, {seconds:.0f} s each':<26}{'20 Hz':>9}{'a GPU':>8}{'in a window':>13}{'a GPU':>8}{'MB':>7}{'MB/day':>9}{'a GPU':>8}"
    )
    with tempfile.TemporaryDirectory(prefix="gw") as folder, sleeping() as pid:
        library = build(Path(folder) / "library")
        for count in counts:
            scene = machine(Path(folder) / f"scene-{count}", count, pid)
            idle, busy = (next(ours(scene, library, seconds, open_window=each)) for each in (False, True))
            stored = day_bytes(Path(folder) / f"store-{count}", count)
            print(
                f"{count:<26}{idle.spent.cpu_ratio:>9.2%}{idle.spent.cpu_ratio / count:>8.2%}{busy.spent.cpu_ratio:>13.2%}"
                f"{busy.spent.cpu_ratio / count:>8.2%}{busy.spent.memory_bytes / 1e6:>7.0f}{stored / 1e6:>9.1f}"
                f"{stored / count / 1e6:>8.1f}",
                flush=True,
            )
            figures |= {
                f"gpus_{count}_20hz_cpu_ratio": idle.spent.cpu_ratio, f"gpus_{count}_100hz_cpu_ratio": busy.spent.cpu_ratio,
                f"gpus_{count}_memory_bytes": busy.spent.memory_bytes, f"gpus_{count}_day_bytes": stored,
            }  # fmt: skip
    return figures


def day_bytes(folder: Path, gpus: int, seconds: float = 600.0) -> float:
    """Return the bytes in the store for a day of loaded GPUs without a window, extrapolated from ten minutes."""
    Store(folder / "empty", source="synthetic", boot_id=BOOT).close()
    clock = VirtualClock(BEGIN_NS)
    store = Store(folder / "full", source="synthetic", boot_id=BOOT, limits=StoreLimits(commit_s=60.0), clock=clock)
    due_ns = BEGIN_NS
    for sweeps in zip(*(unwatched(stream(seconds, loaded=True, seed=seed)) for seed in range(gpus)), strict=False):
        for number, each in enumerate(sweeps):
            uuid = f"{UUID[:-2]}{number:02x}"
            store.take(replace(each, uuid=uuid, observed=replace(each.observed, uuid=uuid)))
        if sweeps[0].due_ns >= due_ns:
            due_ns += 500_000_000
            clock.wait_until(sweeps[0].due_ns, NEVER)
            store.flush(10.0)
    store.close()
    return (readings_bytes(folder / "full") - readings_bytes(folder / "empty")) / seconds * 86_400


# Growth with the number of windows


def with_windows(counts: Sequence[int]) -> Figures:
    figures: Figures = {}
    heads = (
        "ledger MB", "audit s", "of a label", "rejected", "2 statuses", "show s", "newest 200", "back, ms", "keep 1, ms",
        "daemon up s", "1st picture",
    )  # fmt: skip
    print(f"\n{'stored windows':<15}" + "".join(f"{head:>12}" for head in heads))
    with tempfile.TemporaryDirectory(prefix="gw") as place:
        found = settings(Path(place))
        for count in made_up.windows(found.state, wall_s() - 60.0 * max(counts), tuple(counts)):
            row = _windows(Path(place), found, count)
            print(f"{count:<15}" + "".join(f"{value:>12.2f}" for value in row.values()), flush=True)
            figures |= {f"windows_{count}_{name}": value for name, value in row.items()}
    print(
        "audit, show: the whole command; newest 200: the reader, ms; back: top's first moment of the past; 1st picture: top's, s"
    )
    return figures


def _windows(place: Path, found: Settings, count: int) -> Figures:
    state = found.state
    row = {
        "ledger_mb": (state / files.DATABASE).stat().st_size / 1e6,
        "audit_s": command_s(found, "audit"),
        "audit_label_s": command_s(found, "audit", "--label", "bursty-3-7"),
        "audit_rejected_s": command_s(found, "audit", "--status", "rejected"),
        "audit_two_s": command_s(found, "audit", "--status", "flagged,unproven"),
        "show_s": command_s(found, "show"),
        "newest_ms": timed_ms(lambda: _newest(state)),
        "past_ms": timed_ms(lambda: _back(state, count)),
        "keep_ms": _keep_ms(state),
    }
    begin_s = time.monotonic()
    with running(place) as live:
        row["daemon_s"] = time.monotonic() - begin_s
        row["picture_s"] = statistics.median(first_ms(live.settings)[1] for _ in range(3)) / 1e3
    return row


def command_s(found: Settings, *arguments: str) -> float:
    """Return the time of the whole command with its imports, the median of three."""
    took = []
    for _ in range(3):
        begin_s = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "gpuwatch", arguments[0], *found.flags(), *arguments[1:]], stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
        took.append(time.perf_counter() - begin_s)
        assert done.returncode in (0, 1), done.stderr
    return statistics.median(took)


def timed_ms(work: Callable[[], object]) -> float:
    took = []
    for _ in range(3):
        begin_s = time.perf_counter()
        work()
        took.append(time.perf_counter() - begin_s)
    return statistics.median(took) * 1e3


def _newest(state: Path) -> None:
    with Reader(state) as reader:
        assert len(reader.runs(limit=200)) == 200


def _back(state: Path, count: int) -> None:
    """Run the query of `top` for a first moment of the past."""
    stored = history.StoredHistory(lambda: state)
    there = stored.live(BEGIN_NS + count * _MINUTE_NS)
    assert len(there.windows) + there.windows_left_out_count >= count - 2 * len(made_up.SCENES)
    stored.close()


def _keep_ms(state: Path, count: int = 20) -> float:
    """Return the median milliseconds to commit a verdict in a large store; the first commit also measures the evidence."""
    with Reader(state) as reader:
        (newest,) = reader.runs(limit=1)
    store = Store(state, source=newest.source, boot_id=newest.boot_id)
    took = []
    for number in range(count):
        run = replace(newest, id=f"ffffffff{number:010x}", begun_wall_s=newest.begun_wall_s + number)
        begin_s = time.perf_counter()
        store.put_run(run, {UUID: bytes(1000)})
        assert store.flush(30.0)
        took.append(time.perf_counter() - begin_s)
    store.close()
    return statistics.median(took) * 1e3


# Growth with days of readings


def with_days(counts: Sequence[int]) -> Figures:
    figures: Figures = {}
    heads = ("readings MB", "open, ms", "a minute", "again, ms", "top's span", "writer up", "half dropped")
    print(f"\n{'days, one busy GPU':<20}" + "".join(f"{head:>13}" for head in heads))
    with tempfile.TemporaryDirectory(prefix="gw") as place:
        state = Path(place)
        for count in made_up.days(state, max(counts)):
            if count in counts:
                row = _days(state, count)
                print(f"{count:<20}" + "".join(f"{value:>13.2f}" for value in row.values()), flush=True)
                figures |= {f"days_{count}_{name}": value for name, value in row.items()}
    return figures


def _days(state: Path, count: int) -> Figures:
    begin_ns = BEGIN_NS + count * 12 * made_up.HOUR_NS
    row = {"readings_mb": readings_bytes(state) / 1e6, "open_ms": timed_ms(lambda: Reader(state).close())}
    with Reader(state) as reader:
        for name in ("minute_ms", "again_ms"):
            begin_s = time.perf_counter()
            assert reader.trace(UUID, BOOT, begin_ns, begin_ns + _MINUTE_NS).observes("power_w")
            row[name] = (time.perf_counter() - begin_s) * 1e3
    row["span_ms"] = timed_ms(lambda: _span(state))
    row["writer_ms"], row["dropped_ms"] = _writer(state, count)
    return row


def _span(state: Path) -> None:
    boot = Boot(state)
    assert boot.segment_spans()
    boot.close()


def _writer(state: Path, count: int) -> tuple[float, float]:
    """Return the milliseconds to open a copy for writing, with a large budget and with half of the store's size."""
    took = []
    with tempfile.TemporaryDirectory(prefix="gw", dir=state.parent) as copy:
        copied = Path(copy) / "state"
        copied.mkdir()
        for path in [*state.glob(files.SEGMENTS), state / files.DATABASE]:
            shutil.copy2(path, copied / path.name)
        for budget_bytes in (1 << 40, readings_bytes(state) // 2):
            begin_s = time.perf_counter()
            store = Store(
                copied, source="synthetic", boot_id=BOOT, limits=StoreLimits(budget_bytes=budget_bytes),
                clock=VirtualClock(BEGIN_NS + (count * 24 + 1) * made_up.HOUR_NS),
            )  # fmt: skip
            took.append((time.perf_counter() - begin_s) * 1e3)
            dropped_count = store.statistics()["dropped_segments_count"]
            store.close()
        assert dropped_count >= count // 2 - 1, f"expected half of {count} segments dropped, found {dropped_count}"
    return took[0], took[1]


if __name__ == "__main__":
    main()
