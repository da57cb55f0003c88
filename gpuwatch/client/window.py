"""window(): mark an interval, tell what only this process knows, hand over the verdict.

It runs in the benchmark's process, so it does little, imports little, and never lets telemetry break the body.
"""

from __future__ import annotations

import contextlib
import functools
import html
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

from annotate.claims import Claim
from annotate.errors import AnnotateError
from annotate.policy import Policy
from annotate.verdict import Status, Verdict
from gpuwatch import clock
from gpuwatch.client.connection import VERDICT_S, Client, connect, connect_and_open, say
from gpuwatch.client.testimony import ROOM_COUNT, Iteration, Testimony
from gpuwatch.config import settings as config
from gpuwatch.errors import DaemonError, GpuwatchError, RejectedError, UsageError
from gpuwatch.process import torch_state
from gpuwatch.utf8 import clean_text, found_words
from gpuwatch.wire.messages import LABEL_LENGTH

if TYPE_CHECKING:
    from annotate.evidence import Timings
    from gpuwatch.wire.messages import FactValue, JudgedReply, Opened

_log = logging.getLogger("gpuwatch")
_P = ParamSpec("_P")
_T = TypeVar("_T")
_enclosing: ContextVar[Window | None] = ContextVar("gpuwatch_window", default=None)

SCHEMA = 1


class Window:
    """One window.  Enter it once; ask ``verdict`` after it closed (waits for the tail and the judge, under a second)."""

    def __init__(
        self,
        label: str | None,
        policy: Policy,
        *,
        gpus: list[str] | None,
        sync: bool,
        on_reject: Literal["report", "raise"],
        settings: config.Settings | None,
    ) -> None:
        self.label = label
        self.policy = policy
        self.run_id: str | None = None
        self.begin_ns: int | None = None
        self.end_ns: int | None = None
        self._gpus = gpus
        self._sync = sync
        self._on_reject = on_reject
        self._settings = settings
        self._client: Client | None = None
        self._absence: str | None = None
        self._judged: JudgedReply | None = None
        self._verdicts: tuple[Verdict, ...] = ()
        self.parent: Window | None = None
        self._testimony = Testimony()
        self._pid = os.getpid()

    # The one broad except outside the daemon: telemetry never breaks the benchmark, whatever is wrong with it.
    @contextlib.contextmanager
    def _telemetry(self, doing: str) -> Iterator[None]:
        before = sys.exception()
        try:
            yield
        except Exception as error:  # noqa: BLE001 - see above
            if (raised := _raised_by_handler(error, before)) is not None:
                raise raised  # noqa: B904 - it is the benchmark's own
            self._absence = (
                str(error) if isinstance(error, GpuwatchError) else f"{doing} failed: {type(error).__name__}: {error}"
            )
            self._let_go()
            with contextlib.suppress(Exception):  # a handler of the benchmark's own may raise
                _log.warning("gpuwatch: %s: %s", doing, self._absence)

    def _let_go(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def __enter__(self) -> Window:
        if self.begin_ns is not None:
            raise UsageError("a window is entered once: make a new one with gpuwatch.window()")
        self._pid = os.getpid()
        try:
            self._open()
        except BaseException:  # Ctrl-C: a connection left open would keep the window open for good
            self._let_go()
            _enclosing.set(self.parent)
            raise
        self.begin_ns = clock.now_ns()
        return self

    def _open(self) -> None:
        self.parent = _open_one(_enclosing.get())
        with self._telemetry("opening the window"):
            settings = self._settings = self._settings or config.load()
            # Nothing that takes long lies between the daemon's mark of the beginning and ours.
            self._client, opened = connect_and_open(settings, self._open_with, meanwhile=self._look_around)
            self.run_id = opened.run
            _enclosing.set(self)
            if opened.warning:
                say(opened.warning)
        if self._sync:
            with self._telemetry("synchronising"):
                torch_state.synchronize()
            self._testimony.stamp()

    def _open_with(self, client: Client) -> Opened:
        parent = self.parent.run_id if self.parent is not None else os.environ.get("GPUWATCH_PARENT")
        return client.open(
            label=self.label,
            claim=self.policy.claim.value,
            policy=self.policy.to_dict(),
            gpus=self._gpus,
            parent=parent,
            told=self._testimony.before.facts,
        )

    def _look_around(self) -> None:
        """What takes time and needs no daemon: done while it answers."""
        self._testimony.facts()
        if self._sync:
            self._testimony.prepare()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # A forked child leaves its copy of the block: the window is its parent's, and so are the socket and the GPU.
        is_forked = os.getpid() != self._pid
        try:
            self._leave(error, is_forked=is_forked)
        finally:
            self._let_go()  # an interrupted one: the daemon then ends the window
            if not is_forked:
                self._testimony.close()
        if self._on_reject == "raise" and kind is None and not is_forked:
            self.raise_for_verdict()

    def _leave(self, error: BaseException | None, *, is_forked: bool) -> None:
        told: dict[str, FactValue] = {}
        if self._sync and error is None and not is_forked:
            self._testimony.stamp()
            with self._telemetry("synchronising"):
                told["sync_s"] = torch_state.synchronize()
        self.end_ns = clock.now_ns()
        _enclosing.set(_open_one(_enclosing.get()))
        if is_forked:
            self._client = None
            self._absence = "this is a forked child: the window belongs to the process that opened it"
            return
        if error is not None and not (isinstance(error, SystemExit) and not error.code):
            told["exception"] = type(error).__name__
        if self._client is not None:
            with self._telemetry("closing the window"):
                run, begin_ns = self.run_id or "", self.begin_ns or 0
                if self._testimony.has_times:
                    self._end(self._client, run, begin_ns, self.end_ns)
                    self._testimony.hand_over_times(self._client, run)
                self._client.close_window(run, begin_ns, self.end_ns, self._testimony.all() | told)
                self._client.close()
                self._client = None

    @staticmethod
    def _end(client: Client, run: str, begin_ns: int, end_ns: int) -> None:
        try:
            client.end_window(run, begin_ns, end_ns)
        except DaemonError as error:
            # An older daemon settles the interval when it is closed; one that is silent would be waited for again and again.
            if error.code != "unknown-message":
                raise

    # What the measured code may say, between the edges

    def iteration(self) -> Iteration:
        """A context manager around one iteration: its time and true clock are evidence then.

        On a GPU it costs about 12 us of the host an iteration (two events, two stamps) and 4 us of the GPU outside the
        time it takes; without one the host's clock is read twice.  Raises UsageError outside of the with block.
        """
        self._inside("iteration")
        return self._testimony.iteration(ROOM_COUNT)

    def iterations(self, count: int) -> Iterator[int]:
        """The numbers from 0 to ``count``, each pass of the loop timed as one iteration.

        One stamp serves as the end of an iteration and the beginning of the next, so it costs less than ``iteration``.
        """
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise UsageError(f"iterations: expected how many, at least 1, found {found_words(count)}")
        self._inside("iterations")
        return self._counted(count)

    def _counted(self, count: int) -> Iterator[int]:
        marked = self._testimony.iteration(count // 2 + 1)  # a stamp each and one more
        # Not a with block: one that is left early keeps the iterations that ended, and leaves the last out.
        marked.__enter__()
        for number in range(count):
            if number:
                marked.next()
            yield number
        marked.__exit__()

    def record(self, times: Iterable[float] | Timings, *, at_ns: Iterable[int] | None = None) -> None:
        """Hand over times you took yourself, in seconds, in the order they ran; ``at_ns`` is when each began, if you know.

        Beginnings are CLOCK_MONOTONIC (``time.monotonic_ns``); without them the times are taken to have run back to back
        until now.  Raises UsageError for what is no time.
        """
        self._inside("record")
        self._testimony.record(times, at_ns, self.begin_ns or 0)

    def inputs(self, *tensors: Any) -> None:
        """Look at the inputs of the measured work: zeros and repeated values run cooler and faster than data.

        Some values of each tensor (torch's or numpy's) are sampled, which takes about a millisecond: call it before the
        timed part.  Raises UsageError where none is a tensor.
        """
        self._inside("inputs")
        from gpuwatch.process.inputs import has_tensor

        try:
            is_tensor_there = has_tensor(tensors)
        except Exception as error:  # a list that holds itself, a type whose attributes fail
            raise UsageError(f"inputs: expected tensors of torch or numpy; {type(error).__name__} while looking") from error
        if not is_tensor_there:
            found = ", ".join(type(each).__name__ for each in tensors)
            raise UsageError(f"inputs: expected tensors of torch or numpy, found {found or 'nothing'}")
        self._testimony.look_at(tensors)

    def tell(self, **facts: FactValue) -> None:
        """Tell what only the measured process knows, by the names of ``annotate.declared``.  Raises UsageError for others."""
        self._testimony.tell(facts)

    def _inside(self, doing: str) -> None:
        if self.begin_ns is None or self.end_ns is not None:
            raise UsageError(f"{doing}: expected to be called inside of the window's with block")

    async def __aenter__(self) -> Window:
        return self.__enter__()  # two milliseconds of a local socket: not worth a thread with another CUDA stream

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    def __call__(self, function: Callable[_P, _T]) -> Callable[_P, _T]:
        """As a decorator: every call runs in a window of its own, the last one kept as ``function.window``."""
        import inspect

        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise UsageError("a generator's call only makes it: put `with gpuwatch.window():` around the loop that runs it")

        def fresh() -> Window:
            label = self.label or function.__qualname__[:LABEL_LENGTH]
            again = Window(
                label, self.policy, gpus=self._gpus, sync=self._sync, on_reject=self._on_reject, settings=self._settings
            )
            wrapper.window = again  # type: ignore[attr-defined]  # functions take attributes; their type does not say so
            return again

        wrapper: Callable[_P, Any]
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def wrapper(*args: _P.args, **kwargs: _P.kwargs) -> Any:
                async with fresh():
                    return await function(*args, **kwargs)
        else:

            @functools.wraps(function)
            def wrapper(*args: _P.args, **kwargs: _P.kwargs) -> _T:
                with fresh():
                    return function(*args, **kwargs)

        return wrapper

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """One verdict a GPU, worst first."""
        if self.begin_ns is None:
            raise UsageError("the window was not entered: its verdict is there after a with block")
        if self.end_ns is None:
            raise UsageError("the window is still open: its verdict is there after the with block")
        if self._judged is None and self._absence is None:
            self._absence = "the window was never opened" if self.run_id is None else None
            with self._telemetry("asking for the verdict"):
                judged = self._ask()
                self._verdicts = tuple(Verdict.from_dict(verdict) for verdict in judged.verdicts)
                self._judged = judged
        if self._judged is None or not self._judged.verdicts:
            why = self._absence or (self._judged.why if self._judged else "")
            return (self._unproven(why or "no verdict came"),)
        return self._verdicts

    def _ask(self) -> JudgedReply:
        # The daemon that closed it may have left since; another one knows it from the store.
        with connect(self._settings or config.load()) as client:
            judged = client.verdicts(self.run_id or "")
        if judged.status not in list(Status):
            raise DaemonError(f"no verdict within {VERDICT_S:g} s; `gpuwatch show {self.run_id}` may have it later", "silent")
        return judged

    def _unproven(self, why: str) -> Verdict:
        return Verdict(
            status=Status.UNPROVEN, findings=(), claim=self.policy.claim.value, label=self.label, why=why,
            begin_ns=self.begin_ns or 0, end_ns=self.end_ns or 0, policy=self.policy.to_dict(),
        )  # fmt: skip

    @property
    def verdict(self) -> Verdict:
        """The verdict that decides: of the worst GPU."""
        return self.verdicts[0]

    def raise_for_verdict(self) -> None:
        """Raise RejectedError if the verdict is rejected; do nothing otherwise."""
        verdict = self.verdict
        if verdict.status is Status.REJECTED:
            raise RejectedError(verdict)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; the schema is ``docs/schemas/window.json``."""
        verdicts = self.verdicts
        return {
            "schema": SCHEMA,
            "run": self.run_id,
            "label": self.label,
            "status": verdicts[0].status.value,
            "why": verdicts[0].why,
            "verdicts": [verdict.to_dict() for verdict in verdicts],
        }

    def __repr__(self) -> str:
        state = "open" if self.end_ns is None else "closed"
        from annotate.output.report import plain  # a label steers no terminal

        return f"<gpuwatch.window {plain(self.label or self.run_id or '')} {state if self.begin_ns else 'not entered'}>"

    def _repr_html_(self) -> str:
        from annotate.output import card

        return card.html(self.verdicts) if self.end_ns is not None else html.escape(repr(self))


def _raised_by_handler(error: BaseException | None, before: BaseException | None) -> BaseException | None:
    """Find the exception that a signal handler of the benchmark raised, in place of which this one came.

    Its time limit is no failure of telemetry.  ``before`` was being handled already.
    """
    handlers = [handler for number in signal.valid_signals() if callable(handler := signal.getsignal(number))]
    codes = {getattr(getattr(handler, "__func__", handler), "__code__", None) for handler in handlers} - {None}
    while error is not None and error is not before:
        if any(frame.f_code in codes for frame, _ in traceback.walk_tb(error.__traceback__)):
            return error
        error = error.__context__
    return None


def _open_one(window: Window | None) -> Window | None:
    """This one or the nearest around it that is still open: they may end in any order, and in other contexts."""
    while window is not None and window.end_ns is not None:
        window = window.parent
    return window


def window(
    label: str | None = None,
    *,
    claim: Claim | str = Claim.SUSTAINED,
    policy: Policy | None = None,
    gpus: list[str] | tuple[str, ...] | str | None = None,
    sync: bool = True,
    on_reject: Literal["report", "raise"] = "report",
    settings: config.Settings | None = None,
) -> Window:
    """A window around a benchmark: a context manager, an async one, and a decorator.

    It covers the GPUs on which this process and its descendants hold a context, or those named by UUID (or a unique
    beginning of one).  With torch loaded and a context made, it synchronises at both ends unless ``sync=False``.
    ``on_reject="raise"`` waits for the verdict at the end and raises RejectedError.

    Raises UsageError for what can never be right; anything wrong with telemetry makes the verdict unproven instead.
    """
    if callable(label):
        raise UsageError("window() takes a label; as a decorator write @gpuwatch.window()")
    if label is not None and not isinstance(label, str):
        raise UsageError(f"label: expected text, found {found_words(label)}")
    if label is not None and len(label) > LABEL_LENGTH:
        raise UsageError(f"label: expected at most {LABEL_LENGTH} characters, found {len(label)}")
    if label is not None:  # a program's name may be no text: such bytes cannot be sent, nor stored
        label = clean_text(label)
    if on_reject not in ("report", "raise"):
        raise UsageError(f"on_reject: expected 'report' or 'raise', found {found_words(on_reject)}")
    names = _names(gpus)
    if not isinstance(claim, str):
        raise UsageError(f"claim: expected text, found {found_words(claim)}")
    if policy is not None and not isinstance(policy, Policy):
        raise UsageError(f"policy: expected a gpuwatch.Policy, found {found_words(policy)}")
    if settings is not None and not isinstance(settings, config.Settings):
        raise UsageError(f"settings: expected gpuwatch.config.settings.Settings, found {found_words(settings)}")
    try:
        if policy is None:
            policy = Policy(claim=Claim.of(claim))
        elif claim != Claim.SUSTAINED and claim != policy.claim:
            raise UsageError(f"claim: {found_words(claim)} contradicts the policy's {policy.claim.value!r}; give one of them")
    except AnnotateError as error:
        raise UsageError(str(error)) from error
    return Window(label, policy, gpus=names, sync=sync, on_reject=on_reject, settings=settings)


def _names(gpus: object) -> list[str] | None:
    """Return the GPUs' names as a list; None where none was given.  Raises UsageError for other types."""
    wrong = "an index names different GPUs in CUDA and in the driver"
    if gpus is None or isinstance(gpus, str):
        return None if gpus is None else [gpus]
    if not isinstance(gpus, list | tuple):
        raise UsageError(f"gpus: expected a list of UUIDs, found {found_words(gpus)}; {wrong}")
    for name in gpus:
        if not isinstance(name, str):
            raise UsageError(f"gpus: expected UUIDs, found {found_words(name)}; {wrong}")
    return list(gpus)


__all__ = ["Window", "window"]
