"""Stores with randomly damaged files: ``python -m tests.faults.damage --count 1000``.

After any damage, reading raises only one-line errors, writing continues, and later windows are judged.  A damaged store may
also be refused as newer.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np

from annotate.evidence import Timings
from annotate.verdict import Verdict
from gpuwatch import clock
from gpuwatch.clock import VirtualClock
from gpuwatch.daemon.judge_worker import judge_run
from gpuwatch.errors import StoreError
from gpuwatch.store import Reader, Store
from tests.faults import results
from tests.gpuwatch.store.stored import a_run, feed, opened
from tests.gpuwatch.store.streams import BEGIN_NS, BOOT, DEVICE, UUID, stream
from tests.waiting import PATIENCE_S

S = 1_000_000_000
OLD, NEW = "0000000000a1", "0000000000b2"
LATER_NS = BEGIN_NS + 1000 * S


def flipped(data: bytes, dice: random.Random) -> bytes:
    """Change some single bytes anywhere."""
    out = bytearray(data)
    for _ in range(dice.choice((1, 3, 30, 300))):
        out[dice.randrange(len(out))] = dice.randrange(256)
    return bytes(out)


def overwritten(data: bytes, dice: random.Random) -> bytes:
    """Overwrite whole sectors with noise, zeros, or another part of the same file."""
    begin = 512 * dice.randrange(max(1, len(data) // 512))
    length = min(512 * dice.randrange(1, 64), len(data) - begin)
    other = dice.randrange(max(1, len(data) - length))
    piece = dice.choice((dice.randbytes(length), bytes(length), data[other : other + length]))
    return data[:begin] + piece + data[begin + length :]


def cut(data: bytes, dice: random.Random) -> bytes:
    """Cut off the end, at a page or anywhere, or the whole content."""
    end = dice.randrange(len(data))
    return data[: dice.choice((end, end // 4096 * 4096, 0))]


def grown(data: bytes, dice: random.Random) -> bytes:
    """Append noise."""
    return data + dice.randbytes(dice.randrange(1, 20_000))


HARMS: tuple[Callable[[bytes, random.Random], bytes], ...] = (flipped, overwritten, cut, grown)


def make(folder: Path) -> None:
    """Make a store like that of a killed daemon: several segments, a judged window, logs not yet written back."""
    virtual = VirtualClock(BEGIN_NS)
    store = opened(folder / "live", clock=virtual, segment_bytes=1)
    store.put_device(DEVICE)
    feed(store, stream(640.0, loaded=True), clock=virtual, flush_ns=5 * S)
    store.put_run(a_run(id=OLD, status="judging", begin_ns=BEGIN_NS + 625 * S, end_ns=BEGIN_NS + 630 * S))
    at_ns = BEGIN_NS + np.arange(100, dtype=np.int64) * 1_000_000
    store.put_timings(OLD, Timings(at_ns, np.full(100, 1e-3)))
    assert store.flush(PATIENCE_S)
    judged = judge_run(folder / "live", OLD)
    status = judged.verdicts[0]["status"]
    run = a_run(id=OLD, status=status, begin_ns=BEGIN_NS + 625 * S, end_ns=BEGIN_NS + 630 * S, verdicts=tuple(judged.verdicts))
    store.put_run(run, judged.evidence)
    assert store.flush(PATIENCE_S)
    shutil.copytree(folder / "live", folder / "base", ignore=shutil.ignore_patterns("*-shm", "lock"))
    store.close()
    assert len(list((folder / "base").glob("readings-*.db"))) > 2


def one(base: Path, folder: Path, dice: random.Random) -> str:
    """Damage a copy, use it, and return the kinds of damage with the outcome.  Unexpected errors propagate."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(base, folder)
    done = []
    for path in dice.sample(sorted(folder.iterdir()), dice.choice((1, 1, 2))):
        harm = dice.choice(HARMS)
        path.write_bytes(harm(path.read_bytes(), dice))
        done.append(f"{_kind(path)} {harm.__name__}")
    read_all(folder)
    store = _opened(folder)
    if store is None:
        return f"{', '.join(sorted(done))}: refused as newer"
    store.put_device(DEVICE)
    feed(store, stream(12.0, loaded=True, begin_ns=LATER_NS))
    store.put_run(a_run(id=NEW, status="judging", begin_ns=LATER_NS + 6 * S, end_ns=LATER_NS + 10 * S))
    # The store may notice damage only at the first write: that write is reported as lost, and the next one succeeds.
    feed_again = not store.flush(10.0)
    if feed_again:
        store.put_run(a_run(id=NEW, status="judging", begin_ns=LATER_NS + 6 * S, end_ns=LATER_NS + 10 * S))
        assert store.flush(PATIENCE_S), "the store does not recover"
    judged = judge_run(folder, NEW)
    (verdict,) = judged.verdicts
    assert Verdict.from_dict(verdict).findings
    store.put_run(a_run(id=NEW, status=verdict["status"], verdicts=(verdict,)), judged.evidence)
    assert store.flush(PATIENCE_S)
    aside_count = store.statistics()["set_aside_count"]
    store.close()
    read_all(folder)
    return f"{', '.join(sorted(done))}: {aside_count} set aside"


def _opened(folder: Path) -> Store | None:
    try:
        return opened(folder, clock=VirtualClock(LATER_NS))
    except StoreError as error:
        if "use a newer gpuwatch" not in str(error):
            raise
        return None


def read_all(folder: Path) -> None:
    """Run the queries of the commands; only a one-line StoreError may result."""
    try:
        reader = Reader(folder)
    except StoreError as error:
        _one_line(error)
        return
    with reader:
        questions: list[Callable[[], object]] = [
            reader.runs, lambda: reader.runs(worst_first=True), reader.ended, reader.devices,
            lambda: reader.to_monotonic(1.7e9), lambda: reader.trace(UUID, BOOT, BEGIN_NS, LATER_NS),
            lambda: judge_run(folder, OLD), lambda: reader.device(UUID, boot_id=BOOT, at_ns=BEGIN_NS),
        ]  # fmt: skip
        for ask in questions:
            try:
                ask()
            except StoreError as error:
                _one_line(error)


def _one_line(error: StoreError) -> None:
    assert "\n" not in str(error).strip(), error


def _kind(path: Path) -> str:
    name = "segment" if path.name.startswith("readings") else "ledger"
    return f"{name}'s log" if path.name.endswith("-wal") else name


def campaign(count: int, *, seed: int = 0, progress: bool = False) -> Counter[str]:
    """Damage this many copies of a store; return the kinds of damage and outcomes with their counts."""
    seen: Counter[str] = Counter()
    folder = Path(tempfile.mkdtemp(prefix="gw-damage-"))
    make(folder)
    for number in range(count):
        dice = random.Random(f"{seed}/{number}")
        try:
            seen[one(folder / "base", folder / "copy", dice)] += 1
        except Exception:
            print(f"case {seed}/{number}", flush=True)
            raise
        if progress and number % 100 == 99:
            print(number + 1, flush=True)
    shutil.rmtree(folder)
    return seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    begun_ns = clock.now_ns()
    seen = campaign(asked.count, seed=asked.seed, progress=True)
    took_s = round((clock.now_ns() - begun_ns) / 1e9)
    results.keep("damage", {
        "stores_count": asked.count, "seed": asked.seed, "took_s": took_s, "sqlite": sqlite3.sqlite_version,
        "refused_as_newer_count": sum(n for what, n in seen.items() if "newer" in what),
        "set_aside_count": sum(n for what, n in seen.items() if what.endswith("set aside") and not what.endswith(": 0 set aside")),
    })  # fmt: skip


if __name__ == "__main__":
    main()
