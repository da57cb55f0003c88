"""The window around a benchmark: it marks an interval, declares facts, and returns the verdict.

It runs in the benchmark's process, so it does little, imports little, and never lets telemetry break the body.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from annotate.claims import Claim
from annotate.user_policy import Policy
from gpuwatch import clock
from gpuwatch.client import start
from gpuwatch.client.conversation import Conversation
from gpuwatch.client.iteration import Iteration
from gpuwatch.client.stated_claim import StatedClaim
from gpuwatch.client.testimony import Testimony
from gpuwatch.client.window_answers import WindowAnswers
from gpuwatch.client.window_arguments import check_choices, check_kind, check_label, check_policy, check_step, list_gpus
from gpuwatch.client.window_decorator import P, T, wrap
from gpuwatch.client.window_tags import check_tags
from gpuwatch.config.settings import Settings
from gpuwatch.errors import UsageError
from gpuwatch.process import torch_state
from gpuwatch.utf8 import found_words
from gpuwatch.wire.messages import FactValue

if TYPE_CHECKING:
    from annotate.evidence import OtherWork, Timings

_enclosing: ContextVar[Window | None] = ContextVar("gpuwatch_window", default=None)


class Window(WindowAnswers):
    """One window.  Enter it once; after it closed, ``verdict`` waits for the tail and the judge (less than a second)."""

    def __init__(
        self,
        label: str | None,
        policy: Policy,
        *,
        gpus: list[str] | None,
        sync: bool,
        on_reject: Literal["report", "raise"],
        settings: Settings | None,
        stated: StatedClaim = StatedClaim(),  # noqa: B008 - frozen
    ) -> None:
        self.label = label
        self.policy = policy
        self.run_id: str | None = None
        self.parent: Window | None = None
        self.warm_up: Callable[[], object] | None = None  # run until it is steady, before the beginning
        self.begin_ns: int | None = None
        self.end_ns: int | None = None
        self._gpus = gpus
        self._sync = sync
        self._on_reject = on_reject
        self._settings = settings
        self._conversation = Conversation(settings)
        self._stated = stated
        self._testimony = Testimony(stated=stated)
        self.tags = self._testimony.tags
        self._pid = os.getpid()
        self._again = functools.partial(
            Window, policy=policy, gpus=gpus, sync=sync, on_reject=on_reject, settings=settings, stated=stated
        )

    def __enter__(self) -> Window:
        if self.begin_ns is not None:
            raise UsageError("a window is entered once: make a new one with gpuwatch.window()")
        self._pid = os.getpid()
        if self.warm_up is not None:
            self.declare(**start.warm_up(self.warm_up, self._settings))
        try:
            self._open()
        except BaseException:  # Ctrl-C: a connection left open would keep the window open for good
            self._testimony.beside.end()
            self._conversation.hang_up()
            _enclosing.set(self.parent)
            raise
        self.begin_ns = clock.now_ns()
        return self

    def _open(self) -> None:
        self.parent = _find_open(_enclosing.get())
        opening_ns = clock.now_ns()
        with self._conversation.guard("opening the window"):
            parent = self.parent.run_id if self.parent is not None else os.environ.get("GPUWATCH_PARENT")
            begin = functools.partial(self._testimony.begin, is_stamped=self._sync)
            tags = self.tags.at_opening(self.parent.tags if self.parent is not None else None)
            self.run_id = self._conversation.open(self.label, self.policy, self._gpus, parent, tags=tags, meanwhile=begin)
            _enclosing.set(self)
        if self._sync:
            with self._conversation.guard("synchronising"):
                torch_state.synchronize()
            self._testimony.stamp()
        self._testimony.beside.begin()
        self._note_in_parents(opening_ns)

    def _note_in_parents(self, begin_ns: int) -> None:
        """Note in the windows around this one that opening or closing it held up their body."""
        end_ns, window = clock.now_ns(), self.parent
        while window is not None:
            if window.end_ns is None:
                window._testimony.beside.note_hand_over(begin_ns, end_ns)  # noqa: SLF001 - of the same class
            window = window.parent

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # A forked child leaves its copy of the block: the window is its parent's, and so are the socket and the GPU.
        is_forked = os.getpid() != self._pid
        try:
            self._leave(error, is_forked=is_forked)
        finally:
            if not self._conversation.is_finishing:
                self._conversation.hang_up()  # after an interrupted close the daemon ends the window
                if not is_forked:
                    self._testimony.close()
        if self._on_reject == "raise" and kind is None and not is_forked:
            self.raise_for_verdict()

    def _leave(self, error: BaseException | None, *, is_forked: bool) -> None:
        declared: dict[str, FactValue] = {}
        if self._sync and error is None and not is_forked:
            self._testimony.stamp()
            with self._conversation.guard("synchronising"):
                declared["sync_s"] = torch_state.synchronize()
        self.end_ns = clock.now_ns()
        self._testimony.beside.end()
        _enclosing.set(_find_open(_enclosing.get()))
        if is_forked:
            self._conversation.leave_to_parent()
            return
        if error is not None and not (isinstance(error, SystemExit) and not error.code):
            declared["exception"] = type(error).__name__
        self._conversation.close(self.begin_ns or 0, self.end_ns, self._testimony, declared)
        self._note_in_parents(self.end_ns)

    def iteration(self) -> Iteration:
        """Return a context manager around one iteration, whose time and true clock become evidence.

        On a GPU each iteration costs about 12 us of the host (two events, two stamps) and 4 us of the GPU outside the
        measured time; without a GPU the host's clock is read twice.

        Raises UsageError: outside of the with block.
        """
        self._check_inside("iteration")
        return self._testimony.iteration()

    def iterations(self, count: int) -> Iterator[int]:
        """Return the numbers from 0 to ``count``; each pass of the loop is timed as one iteration.

        One stamp serves as the end of an iteration and the beginning of the next, so it costs less than ``iteration``.

        Raises UsageError: outside of the with block, and for a count below 1.
        """
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise UsageError(f"iterations: expected how many, at least 1, found {found_words(count)}")
        self._check_inside("iterations")
        return self._testimony.iterations(count)

    def other_work(self, kind: str) -> Iteration:
        """Return a context manager around work that belongs to the window and is not timed: a flush, a warm-up, a check.

        Its time becomes evidence as that of an iteration does, by CUDA events where this process uses a GPU, so that the
        GPU's busy time is accounted for.  ``kind`` is a word for it, such as ``"flush"``.

        Raises UsageError: outside of the with block, and for no word or a long one.
        """
        self._check_inside("other_work")
        return self._testimony.other_work(check_kind(kind))

    def record(self, times: Iterable[float] | Timings, *, at_ns: Iterable[int] | None = None) -> None:
        """Hand over times you took yourself, in seconds, in the order they ran; ``at_ns`` is when each began, if you know.

        Beginnings are CLOCK_MONOTONIC (``time.monotonic_ns``); without them the times are assumed to have run back to back
        until now.

        A value that is no duration (text, a truth value, zero, infinity) is logged, and the verdict rejects it as an
        impossible time; it never stops the benchmark.

        Raises UsageError: outside of the with block.
        """
        self._check_inside("record")
        self._testimony.record(times, at_ns, self.begin_ns or 0)

    def record_other_work(self, other: OtherWork) -> None:
        """Hand over work that you timed yourself and that is no iteration: flushes, holds, checks.

        Raises UsageError: outside of the with block.
        """
        self._check_inside("record_other_work")
        self._testimony.beside.recorded.append(other)

    def inputs(self, *tensors: Any) -> None:
        """Sample the inputs of the measured work: zeros and repeated values run cooler and faster than data.

        It reads some values of each tensor (torch's or numpy's), which takes about a millisecond: call it before the
        timed part.

        Raises UsageError: outside of the with block, and where none is a tensor.
        """
        self._check_inside("inputs")
        self._testimony.look_at(tensors)

    def declare(self, **facts: FactValue) -> None:
        """Declare facts that only the measured process knows, by the names of ``annotate.declared``; other names become tags.

        Raises UsageError: for values that cannot be sent.
        """
        self._testimony.declare(facts)

    tell = declare  # its former name, for one release

    def _check_inside(self, doing: str) -> None:
        if self.begin_ns is None or self.end_ns is not None:
            raise UsageError(f"{doing}: expected to be called inside of the window's with block")

    raise_for_verdict = WindowAnswers.raise_for_verdict  # names of the window itself, as in earlier versions
    to_dict = WindowAnswers.to_dict

    @property
    def stated(self) -> dict[str, FactValue]:
        """The parts of the claim that were stated beside its name, by the names of ``annotate.declared``."""
        return self._stated.facts()

    async def __aenter__(self) -> Window:
        return self.__enter__()  # 2 ms of a local socket: not worth a thread with another CUDA stream

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    def __call__(self, function: Callable[P, T]) -> Callable[P, T]:
        """Decorate a function: every call runs in its own window, the latest of which is ``function.window``."""
        return wrap(function, self.label, lambda label: self._again(label).prepared(self.warm_up, self.tags.given))

    def prepared(self, warm_up: Callable[[], object] | None, tags: Mapping[str, str]) -> Window:
        """Return this window, which has these tags, and runs the step of a warm-up until it is steady before it begins."""
        self.warm_up = warm_up
        self.tags.given = dict(tags)
        return self


def _find_open(window: Window | None) -> Window | None:
    """Return this window or the nearest one around it that is still open: windows may end in any order and context."""
    while window is not None and window.end_ns is not None:
        window = window.parent
    return window


def window(
    label: str | None = None,
    *,
    claim: Claim | str = Claim.SUSTAINED,
    locked_mhz: float | None = None,
    every: float | None = None,
    varies: bool = False,
    untrusted: bool = False,
    policy: Policy | None = None,
    accept: Collection[str] = (),
    limits: Mapping[str, Mapping[str, float]] | None = None,
    tolerance: float | None = None,
    precision: float | None = None,
    gpus: list[str] | tuple[str, ...] | str | None = None,
    sync: bool = True,
    warm_up: Callable[[], object] | None = None,
    tags: Mapping[str, str | float] | None = None,
    on_reject: Literal["report", "raise"] = "report",
    settings: Settings | None = None,
) -> Window:
    """Make a window around a benchmark: a context manager, an async one, and a decorator.

    It covers the GPUs on which this process and its descendants hold a context, or those named by UUID (or a unique
    beginning of one).  With torch loaded and a context made, it synchronises at both ends unless ``sync=False``.
    ``tolerance`` is the share by which disturbances may move a number before the window is flagged (0.01 by default), ``precision``
    the repeatability it must have.  ``accept=["rule"]`` names hazards, ``limits={"rule": {"limit": 0.1}}`` other limits; or a ``policy``.
    ``locked_mhz``, ``every`` (seconds from one call's begin to the next) and ``varies`` (by design) state more.
    ``untrusted=True`` is for code that may cheat: only the daemon's evidence counts.
    ``warm_up``, one step of the work, runs before the beginning until it is steady, as in ``bench``, for ten seconds at most.
    ``tags={"team": "vision"}`` are kept with the window, beside those of its batch job, pod or CI run.
    ``on_reject="raise"`` waits for the verdict at the end and raises RejectedError.

    Raises UsageError: for arguments that can never be right; any failure of telemetry makes the verdict unproven instead.
    """
    check_choices(on_reject, settings)
    return Window(
        check_label(label),
        check_policy(claim, policy, tolerance, precision, accept=accept, limits=limits),
        gpus=list_gpus(gpus),
        sync=sync,
        on_reject=on_reject,
        settings=settings,
        stated=StatedClaim.checked(locked_mhz=locked_mhz, every=every, varies=varies, untrusted=untrusted),
    ).prepared(check_step(warm_up), check_tags(tags))
