"""A window's conversation with the daemon.  A failure makes the verdict unproven, and never stops the benchmark."""

import contextlib
import logging
import os
import shlex
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from annotate.user_policy import Policy
from annotate.verdict import Status, Verdict
from gpuwatch.client.connection import VERDICT_S, Client, connect, connect_and
from gpuwatch.client.hand_over import HandOver, reader
from gpuwatch.client.launch import say
from gpuwatch.client.testimony import Testimony
from gpuwatch.config.settings import Settings, load
from gpuwatch.errors import DaemonError, GpuwatchError
from gpuwatch.wire.messages import Close, Closed, FactValue, JudgedReply, Open, Opened, Welcome

_log = logging.getLogger("gpuwatch")
_without_tags: set[int] = set()  # pids of older daemons that were reported

REST_S = 0.4  # pause after a window of untrusted code: the daemon reads for 0.25 s more, and the request takes time


def outdated(welcome: Welcome, settings: Settings) -> str:
    """Return the error for a daemon of an earlier version that lacks a feature, with the remedy."""
    stop = f"gpuwatch {shlex.quote(f'--socket={settings.socket}')} daemon stop"
    return f"expected a daemon of this version, found version {welcome.version} (pid {welcome.pid}); stop it with: {stop}"


def readable_policy(welcome: Welcome, policy: dict[str, Any]) -> dict[str, Any]:
    """Return a policy's data as this daemon reads it; a daemon of an earlier version refuses a reference clock."""
    if welcome.takes_reference_clock or "reference_clock_mhz" not in policy:
        return policy
    say(f"the daemon (pid {welcome.pid}) runs gpuwatch {welcome.version} without reference_clock; run: gpuwatch daemon stop")
    return {name: value for name, value in policy.items() if name != "reference_clock_mhz"}


class Connections:
    """Connections that many windows share to request verdicts: one per settings, dropped after a failure."""

    def __init__(self) -> None:
        self._clients: dict[Settings, Client] = {}

    def verdicts(self, settings: Settings, run: str) -> JudgedReply:
        client = self._clients.pop(settings, None) or connect(settings)
        try:
            judged = client.verdicts(run)
        except BaseException:  # a late answer would be taken for the next window's
            client.close()
            raise
        self._clients[settings] = client
        return judged

    def close(self) -> None:
        while self._clients:
            self._clients.popitem()[1].close()


class Conversation:
    """The daemon's answers about one window; ``absence`` is the reason for missing answers."""

    def __init__(self, settings: Settings | None) -> None:
        self.absence: str | None = None
        self.refusal: str | None = None  # a wrong argument that only the daemon can find: a name of no GPU
        self._settings = settings
        self._run_id = ""
        self._client: Client | None = None
        self._is_untrusted = False
        self._verdicts: tuple[Verdict, ...] = ()
        self._hand_over = HandOver()

    # A broad except: no failure of telemetry may break the benchmark.
    @contextlib.contextmanager
    def guard(self, doing: str) -> Iterator[None]:
        """Store a failure inside as ``absence``, and close the connection.

        An exception that the benchmark's signal handler raised inside propagates.
        """
        before = sys.exception()
        try:
            yield
        except Exception as error:  # noqa: BLE001 - see above
            if (raised := _raised_by_handler(error, before)) is not None:
                raise raised  # noqa: B904 - it belongs to the benchmark
            self.absence = (
                str(error) if isinstance(error, GpuwatchError) else f"{doing} failed: {type(error).__name__}: {error}"
            )
            self.hang_up()
            with contextlib.suppress(Exception):  # a log handler of the benchmark may raise
                _log.warning("gpuwatch: %s: %s", doing, self.absence)

    def open(
        self,
        label: str | None,
        policy: Policy,
        gpus: list[str] | None,
        parent: str | None,
        *,
        tags: dict[str, str],
        meanwhile: Callable[[], dict[str, FactValue]],
    ) -> str:
        """Open the window and return its run id.

        ``meanwhile`` gathers facts to declare while the daemon answers the greeting.
        Raises DaemonError, UsageError: as ``connect_and``, and for untrusted code with an earlier version of the daemon.
        """
        declared: dict[str, FactValue] = {}
        self._settings = self._settings or load()
        settings = self._settings
        policy = settings.complete(policy)

        # Only quick steps may follow between the start as the daemon records it and the start of the block.
        def open_with(client: Client) -> Opened:
            request = Open(
                label=label,
                claim=policy.claim.value,
                policy=readable_policy(client.welcome, policy.to_dict()),
                gpus=gpus,
                parent=parent,
                declared=declared,
                thread=_launching_thread(),
                tags=tags,
            )
            return client.exchange(request, Opened)

        self._client, opened = connect_and(open_with, self._settings, meanwhile=lambda: declared.update(meanwhile()))
        self._run_id, self._is_untrusted = opened.run, declared.get("untrusted") is True
        if self._is_untrusted and not self._client.welcome.holds_marks:
            raise DaemonError(f"untrusted code: {outdated(self._client.welcome, self._settings)}", "outdated")
        # An earlier daemon also writes "gpus:" on a machine where no GPU can be watched, which is no wrong argument.
        if opened.warning and opened.warning.startswith("gpus:") and not opened.warning.endswith("watched GPUs: none"):
            self.refusal = opened.warning
        elif opened.warning:
            say(opened.warning)
        if tags and not (daemon := self._client.welcome).takes_tags and daemon.pid not in _without_tags:
            _without_tags.add(daemon.pid)
            say(
                f"the daemon (pid {daemon.pid}) runs gpuwatch {daemon.version}, which stores no tags; run: gpuwatch daemon stop"
            )
        return opened.run

    def close(self, begin_ns: int, end_ns: int, testimony: Testimony, declared: dict[str, FactValue]) -> None:
        """Fix the interval, send times and declared facts, and close the connection; in a thread if reading takes long."""
        if self._client is None:
            return
        with self.guard("closing the window"):
            if testimony.has_more_than_facts:
                try:
                    self._client.end_window(self._run_id, begin_ns, end_ns)
                except DaemonError as error:
                    # An older daemon gets the interval at the close.  After another error, each step would wait for a timeout.
                    if error.code != "unknown-message":
                        raise
            finish = partial(self._finish, begin_ns, end_ns, testimony, declared)
            if not (testimony.settle() and self._hand_over.start(partial(self._finish_beside, finish, testimony))):
                finish()
        if self._is_untrusted:  # work after the end is visible only if no other work follows
            threading.Event().wait(REST_S)

    def _finish(self, begin_ns: int, end_ns: int, testimony: Testimony, declared: dict[str, FactValue]) -> None:
        if self._client is None:
            return
        if testimony.has_more_than_facts:
            testimony.hand_over_times(self._client, self._run_id)
            testimony.hand_over_beside(self._client, self._run_id)
        facts, tags = testimony.all() | declared, testimony.tags.declared
        self._client.exchange(Close(run=self._run_id, begin_ns=begin_ns, end_ns=end_ns, declared=facts, tags=tags), Closed)
        self.hang_up()

    def _finish_beside(self, finish: Callable[[], None], testimony: Testimony) -> None:
        try:
            with self.guard("closing the window"), testimony.reading_beside(reader().rest):
                finish()
                testimony.close()
        finally:
            self.hang_up()
            testimony.close()

    @property
    def is_finishing(self) -> bool:
        """Return True while a thread still sends the times."""
        return self._hand_over.is_running

    def verdicts(self, connections: Connections | None = None) -> tuple[Verdict, ...]:
        """Wait for the verdicts, and return them worst first; without verdicts return (), with the reason in ``absence``.

        ``connections`` are shared with other windows; None makes new ones.
        """
        self._hand_over.wait()
        if not self._verdicts and self.absence is None:
            with self.guard("asking for the verdict"):
                # The daemon that closed the window may have exited; another one reads the window from the store.
                with contextlib.ExitStack() as held:
                    if connections is None:
                        connections = held.enter_context(contextlib.closing(Connections()))
                    judged = connections.verdicts(self._settings or load(), self._run_id)
                if judged.status not in list(Status):
                    later = f"try later: gpuwatch show {self._run_id}"
                    raise DaemonError(f"no verdict within {VERDICT_S:g} s; {later}", "silent")
                self._verdicts = tuple(Verdict.from_dict(verdict) for verdict in judged.verdicts)
                if not self._verdicts:
                    self.absence = judged.why or "no verdict came"
        return self._verdicts

    def hang_up(self) -> None:
        """Close the connection; the daemon ends a window that is still open."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def leave_to_parent(self) -> None:
        """Drop the conversation in a forked child, without closing the parent's connection."""
        self._client = None
        self.absence = "this is a forked child: the window belongs to the process that opened it"


def _launching_thread() -> int:
    """Return the kernel's id of this thread; 0 for the main thread."""
    thread = threading.get_native_id()
    return 0 if thread == os.getpid() else thread


def _raised_by_handler(error: BaseException | None, before: BaseException | None) -> BaseException | None:
    """Return the benchmark's exception from a signal handler among this error and its contexts; None without one.

    A time limit of the benchmark is not a failure of telemetry.  ``before`` was already being handled.
    """
    handlers = [handler for number in signal.valid_signals() if callable(handler := signal.getsignal(number))]
    codes = {getattr(getattr(handler, "__func__", handler), "__code__", None) for handler in handlers} - {None}
    while error is not None and error is not before:
        if any(frame.f_code in codes for frame, _ in traceback.walk_tb(error.__traceback__)):
            return error
        error = error.__context__
    return None
