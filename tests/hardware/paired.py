"""Windows with known true values on a real GPU: each disturbed window between two clean ones of one work and process.

    python -m tests.hardware.paired OUT --seconds 500 --seed N [--work NAME …] [--mode MODE] [--families NAME …]

One daemon watches; one process per kind of work takes windows in the order clean, disturbed, clean, disturbed, clean.  This
program, not the measured process, starts the neighbours.  ``OUT/paired-N.json`` holds a row and the true values of each
window in order; each ``OUT/paired-N-K.capsule`` holds the evidence of one or two sessions.  The sessions are planned to end within ``--seconds``.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from annotate.capsule.pack import pack
from annotate.evidence import Evidence
from gpuwatch.client.connection import connect
from gpuwatch.config.settings import Settings
from gpuwatch.errors import StoreError
from gpuwatch.store import Reader
from tests.gpuwatch.live import running
from tests.hardware import paired_data as data
from tests.hardware.paired_disturbances import FAMILIES, LENGTH_S, MODES, PLAIN, Disturbance, Planned, deck, drawn, length_s
from tests.hardware.paired_neighbours import Lines, Neighbours
from tests.hardware.paired_work import PRETENCE, WORKLOADS
from tests.hardware.paired_worker import Answer, Task
from tests.waiting import wait_until

_START_S = 90.0  # limit for a process that imports torch with a cold file cache
_ANSWER_S = 40.0  # limit beyond a window's planned time
_WARM_S = {True: 3.1, False: 1.0}  # under the power cap, and without it
_OVERHEAD_S = 1.0  # extra time per window: its tail, the transfer of times, an occasional start of a neighbour
_ENDING_S = 12.0  # extra time per run: the last session's evidence is read and written
_JUDGED_S = 10.0
_TOGETHER_COUNT = 2  # sessions per file, few enough for the file's size limit
_STALLS_COUNT = 2  # consecutive clean windows with a stall, after which the pair is dropped


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """The parameters of random windows, and the maximum of disturbed windows per session."""

    seed: int
    families: Sequence[str] = tuple(FAMILIES)
    lengths_s: tuple[float, float] = LENGTH_S
    most_count: int = 10_000


@dataclass(slots=True)
class Session:
    """The windows of one kind of work, taken until a given time."""

    work: str
    mode: str
    until_s: float
    rows: list[data.Row] = field(default_factory=list)
    warm_s: float = _WARM_S[True]
    torch: str | None = None

    @property
    def left_s(self) -> float:
        return self.until_s - time.monotonic()


class Run:
    """All sessions of one call."""

    def __init__(self, draws: Draws, settings: Settings, neighbours: Neighbours, *, uuid: str = "") -> None:
        self.seed, self._draws = draws.seed, draws
        self._settings, self._neighbours, self._uuid = settings, neighbours, uuid
        self._deck = deck(draws.seed, draws.families)
        self._held: list[str] = []  # families that did not fit a session
        self._number = 0

    def session(self, work: str, mode: str, until_s: float) -> Session:
        """Take windows until the time is up; a failure ends only this session."""
        made = Session(work, mode, until_s)
        task = Task(
            work=work, mode=mode, source=self._settings.source, state=str(self._settings.state),
            socket=str(self._settings.socket), uuid=self._uuid,
        )  # fmt: skip
        command = [sys.executable, "-m", "tests.hardware.paired_worker", msgspec.json.encode(task).decode()]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            self._windows(made, Lines(process))
        except Exception:  # noqa: BLE001 - the other sessions go on
            traceback.print_exc()
        finally:
            process.kill()
            process.wait()
        return made

    def _windows(self, session: Session, lines: Lines) -> None:
        ready = _answer(lines, min(_START_S, session.left_s))
        session.warm_s, session.torch = _WARM_S[ready.facts["capped"]], ready.facts["torch"]
        a_window_s = session.warm_s + _OVERHEAD_S + sum(self._draws.lengths_s) / 2.0
        if session.left_s < 3 * a_window_s:
            return
        self._clean(session, lines)
        for _ in range(self._draws.most_count):
            if session.left_s < 2 * a_window_s:
                return
            self._take(session, lines, self._planned(session, disturbed=True))
            self._clean(session, lines)

    def _clean(self, session: Session, lines: Lines) -> None:
        """Take a clean window, and another one after a stall if time is left."""
        for _ in range(_STALLS_COUNT):
            row = self._take(session, lines, self._planned(session, disturbed=False))
            if row.failed or not row.is_stalled or session.left_s < session.warm_s + _OVERHEAD_S + self._draws.lengths_s[1]:
                return

    def _planned(self, session: Session, *, disturbed: bool) -> Planned:
        self._number += 1
        number, window_s = self._number, length_s(self.seed, self._number, self._draws.lengths_s)
        happens = drawn(self._family(session.mode), self.seed, number, window_s, os.cpu_count() or 1) if disturbed else None
        return Planned(number=number, length_s=window_s, warm_s=session.warm_s, disturbance=happens)

    def _family(self, mode: str) -> str:
        """Return the next family that fits the mode; other families wait for their turn."""
        for name in self._held:
            if not (FAMILIES[name].needs_times and mode == PLAIN):
                self._held.remove(name)
                return name
        while FAMILIES[name := next(self._deck)].needs_times and mode == PLAIN:
            self._held.append(name)
        return name

    def _take(self, session: Session, lines: Lines, planned: Planned) -> data.Row:
        row = data.Row(
            number=planned.number, seed=self.seed, work=session.work, mode=session.mode, length_s=planned.length_s,
            is_capped=session.warm_s == _WARM_S[True], disturbance=planned.disturbance,
        )  # fmt: skip
        lines.send(msgspec.json.encode(planned).decode())
        try:
            answer = self._ask(lines, planned)
        except RuntimeError as error:
            row = msgspec.structs.replace(row, failed=str(error))
            session.rows.append(row)
            raise
        row = msgspec.structs.replace(
            row, failed=answer.why, run_id=answer.run_id, calls_count=answer.calls_count, window_s=answer.window_s,
            events_s=answer.events_s, longest_gap_s=answer.longest_gap_s,
        )  # fmt: skip
        session.rows.append(row)
        what = planned.disturbance.words if planned.disturbance else "clean"
        rate = row.calls_count / row.window_s if row.window_s else 0.0
        print(
            f"{row.number:3} {row.work} {row.mode} {rate:.1f}/s gap {row.longest_gap_s * 1e3:.1f} ms: {what} {row.failed}",
            flush=True,
        )
        return row

    def _ask(self, lines: Lines, planned: Planned) -> Answer:
        """Await the warm-up, start the disturbance's processes if any, and await the window."""
        warm = _answer(lines, planned.warm_s + _ANSWER_S)
        if warm.says != "warm":
            return warm
        of = planned.disturbance
        within_s = 2.0 * planned.length_s + _ANSWER_S
        with contextlib.ExitStack() as beside:
            why = ""
            if of is not None and FAMILIES[of.family].outside:
                why = _entered(beside, self._neighbours, of, within_s)
            lines.send("go")
            done = _answer(lines, within_s)
        return replace(done, why=done.why or why)


def _entered(stack: contextlib.ExitStack, neighbours: Neighbours, of: Disturbance, life_s: float) -> str:
    """Start the other processes; return the reason for a failure, empty without a failure."""
    try:
        stack.enter_context(neighbours.beside(of, life_s))
    except RuntimeError as error:
        return str(error)
    return ""


def _answer(lines: Lines, within_s: float) -> Answer:
    """Return the next answer; skip lines that libraries print."""
    while not (line := lines.next(within_s)).startswith("{"):
        print(line)
    return msgspec.json.decode(line, type=Answer)


def evidence_of(settings: Settings, rows: Sequence[data.Row]) -> Iterator[tuple[data.Row, Evidence]]:
    """Yield the rows of windows that did not fail, each with the stored evidence."""
    done = [row for row in rows if row.run_id and not row.failed]
    with Reader(settings.state) as reader:

        def is_judged() -> bool:
            with contextlib.suppress(StoreError):  # the store has a window one commit later than the client
                return bool(reader.run(done[-1].run_id).verdicts)
            return False

        if done:
            with contextlib.suppress(AssertionError):  # without a verdict the evidence is assembled from the readings
                wait_until(is_judged, what="the last verdict", deadline_s=_JUDGED_S)
        for row in done:
            run = reader.run(row.run_id)
            if run.uuids:
                yield row, reader.evidence(run, run.uuids[0])


def take(asked: argparse.Namespace, settings: Settings, begun_s: float) -> None:
    """Run all sessions, and write each at its end."""
    is_pretended = PRETENCE in asked.work
    uuid = ""
    if is_pretended:
        with connect(settings) as client:
            uuid = client.status()["gpus"][0]["uuid"]
    neighbours = Neighbours(has_gpu=not is_pretended)
    draws = Draws(seed=asked.seed, families=asked.families, lengths_s=tuple(asked.lengths), most_count=asked.rounds)
    run = Run(draws, settings, neighbours, uuid=uuid)
    end_s = begun_s + asked.seconds - _ENDING_S
    kept: list[tuple[data.Row, Evidence]] = []
    together: list[tuple[data.Row, Evidence]] = []
    failed: list[data.Row] = []
    torch: str | None = None
    try:
        for i, work in enumerate(asked.work):
            mode = asked.mode or MODES[(i + asked.seed) % len(MODES)]
            now_s = time.monotonic()
            session = run.session(work, mode, now_s + (end_s - now_s) / (len(asked.work) - i))
            found = list(evidence_of(settings, session.rows))
            torch = session.torch or torch
            kept += found
            together = [*together, *found] if i % _TOGETHER_COUNT else found
            if together:
                path = asked.out / f"paired-{asked.seed}-{i // _TOGETHER_COUNT}.capsule"
                path.write_bytes(pack([evidence for _, evidence in together]))
            failed += [row for row in session.rows if row.failed]
            facts = {"seed": asked.seed, "torch": torch, "date": time.strftime("%Y-%m-%d"), "failed": failed}
            data.write_truth(asked.out / f"paired-{asked.seed}.json", kept, facts)
    finally:
        neighbours.close()
    print(data.table(kept, failed, time.monotonic() - begun_s))


def main(arguments: Sequence[str]) -> int:
    begun_s = time.monotonic()
    parser = argparse.ArgumentParser(prog="python -m tests.hardware.paired", description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=500.0)
    parser.add_argument("--seed", type=int, default=0, help="seed of the windows and of the modes")
    parser.add_argument("--work", nargs="+", default=list(WORKLOADS), choices=[*WORKLOADS, "decode", PRETENCE])
    parser.add_argument("--mode", choices=MODES, help="mode of every session")
    parser.add_argument(
        "--families", nargs="+", default=list(FAMILIES), choices=list(FAMILIES), help="families of disturbances to draw from"
    )
    parser.add_argument(
        "--lengths", nargs=2, type=float, default=LENGTH_S, metavar="SECONDS", help="shortest and longest window"
    )
    parser.add_argument("--rounds", type=int, default=10_000, help="most disturbed windows per session")
    parser.add_argument("--source", default="nvml")
    asked = parser.parse_args(arguments)
    asked.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gw") as folder, running(Path(folder), asked.source) as live:
        take(asked, live.settings, begun_s)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
