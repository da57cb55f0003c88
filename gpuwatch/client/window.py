"""The window around a benchmark: it marks an interval, declares facts, and returns the verdict.

A window runs in the benchmark's process, so this module imports little.  A failure of telemetry never stops the block.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Collection, Mapping
from contextvars import ContextVar
from types import TracebackType
from typing import Literal

from annotate.claims import Claim
from annotate.times.reference_clock import ReferenceClock
from annotate.user_policy import Policy
from gpuwatch import clock
from gpuwatch.client import start
from gpuwatch.client.conversation import Conversation
from gpuwatch.client.hand_over import reader
from gpuwatch.client.stated_claim import StatedClaim
from gpuwatch.client.testimony import Testimony
from gpuwatch.client.window_answers import WindowAnswers
from gpuwatch.client.window_arguments import check_choices, check_label, check_policy, check_step, list_gpus
from gpuwatch.client.window_body import WindowBody
from gpuwatch.client.window_decorator import P, T, wrap
from gpuwatch.client.window_tags import check_tags
from gpuwatch.config.settings import Settings
from gpuwatch.errors import UsageError
from gpuwatch.process import torch_state
from gpuwatch.wire.messages import FactValue

_enclosing: ContextVar[Window | None] = ContextVar("gpuwatch_window", default=None)


class Window(WindowBody, WindowAnswers):
    """A window: the ``with`` block of a benchmark, and after the block the verdict.

    ``window()`` makes a window.  A window can be entered once.  Make a new window for each measurement, or use a decorator.

    Attributes:
        label: Name of the window; None without a name.
        policy: Claim, accepted hazards, limits and thresholds by which the daemon judges.
        tags: Tags known so far; ``tags.all()`` is a dict of text.
        run_id: Run under which the store keeps the window (18 hexadecimal digits); None before opening and without a daemon.
        begin_ns: Start of the block on ``time.monotonic_ns``, in nanoseconds; None before the block.
        end_ns: End of the block on the same clock, in nanoseconds; None before the end.
        parent: Enclosing window of the same process; None without one.
        warm_up: Step that runs before the block; None without one.
        stated: Parameters of the claim, by the names of ``annotate.declared``.
        verdict: Verdict of the worst GPU.  Waits for the judge, usually less than a second after the block.
        verdicts: One verdict per GPU, worst first.  Waits for the judge as ``verdict`` does.

    Raises UsageError: when the window is entered twice or names a GPU that the daemon does not watch, and when a verdict is
        read before the block has ended.

    Example:
        >>> with gpuwatch.window("sum") as w:
        ...     for _ in w.iterations(3):
        ...         total = sum(range(100_000))
        >>> print(w.verdict.status)  # varies
        valid
        >>> w.verdict.length_s > 0
        True
    """

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
        self.warm_up: Callable[[], object] | None = None  # runs before the block until the step's times are steady
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
            raise UsageError("expected a new window, found one that was entered before; make a new one with gpuwatch.window()")
        self._pid = os.getpid()
        reader().make_room()
        if self.warm_up is not None:
            self.declare(**start.warm_up(self.warm_up, self._settings))
        try:
            self._open()
        except BaseException:  # also Ctrl-C: the daemon keeps a window open while its connection is open
            self._testimony.beside.end()
            self._conversation.hang_up()
            _enclosing.set(self.parent)
            raise
        reader().begin(self)
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
        if self._conversation.refusal is not None:
            raise UsageError(self._conversation.refusal)
        if self._sync:
            with self._conversation.guard("synchronising"):
                torch_state.synchronize()
            self._testimony.stamp()
        self._testimony.beside.begin()
        self._note_in_parents(opening_ns)

    def _note_in_parents(self, begin_ns: int) -> None:
        """Record, in each open enclosing window, the pause that opening or closing this window caused."""
        end_ns, window = clock.now_ns(), self.parent
        while window is not None:
            if window.end_ns is None:
                window._testimony.beside.note_hand_over(begin_ns, end_ns)  # noqa: SLF001 - of the same class
            window = window.parent

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # A forked child leaves only a copy of the block: the window, the socket and the GPU belong to the parent.
        is_forked = os.getpid() != self._pid
        try:
            self._leave(error, is_forked=is_forked)
        finally:
            reader().end(self)  # after synchronising, which may take long
            if not self._conversation.is_finishing:
                self._conversation.hang_up()  # after an interrupted close, hanging up makes the daemon end the window
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

    @property
    def stated(self) -> dict[str, FactValue]:
        """Return the parameters of the claim, by the names of ``annotate.declared``."""
        return self._stated.facts()

    async def __aenter__(self) -> Window:
        return self.__enter__()  # opening is fast on a local socket; a thread would have another CUDA stream

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    def __call__(self, function: Callable[P, T]) -> Callable[P, T]:
        """Decorate a function: every call runs in its own window, and ``function.window`` is the latest."""
        return wrap(function, self.label, lambda label: _prepare(self._again(label), self.warm_up, self.tags.given))


def _find_open(window: Window | None) -> Window | None:
    """Return this window or the nearest enclosing one that is open; None without any.  Windows may end in any order."""
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
    reference_clock: ReferenceClock | None = None,
    gpus: list[str] | tuple[str, ...] | str | None = None,
    sync: bool = True,
    warm_up: Callable[[], object] | None = None,
    tags: Mapping[str, str | float] | None = None,
    on_reject: Literal["report", "raise"] = "report",
    settings: Settings | None = None,
) -> Window:
    """Make a window around a benchmark: a context manager, an async context manager, and a decorator.

    The daemon samples the GPUs from its own process while the block runs, then judges the evidence.  A failure of telemetry
    never stops the block: the verdict becomes unproven.

    Args:
        label: Name of the window, at most 256 characters.
        claim: Meaning of the number: ``"sustained"``, ``"burst"`` or ``"fixed-clock"``.
        locked_mhz: SM clock that you locked, in MHz.
        every: Intended time from the start of one call to the start of the next, in seconds.
        varies: True states that times vary by design.
        untrusted: True states that the code may cheat: only the daemon's evidence counts.
        policy: A ``Policy`` instead of claim, accept and limits.
        accept: Names of rules whose hazards you accept.  Accepted hazards stay in the verdict.
        limits: Limits to override by rule and name, such as ``{"outliers": {"host_ratio": 0.8}}``.
        tolerance: Share by which disturbances may change a number before the window is flagged; 0.01 by default.
        precision: Share to which a number must repeat from window to window; not required by default.
        reference_clock: SM clock for the time at one clock, in MHz, or a table such as ``{"NVIDIA B200": 1500}``; by default
            the model's recorded clock.
        gpus: GPUs to judge, each by the driver's index as text, UUID, either end of a UUID, or PCI address.  Default: the GPUs
            on which this process or a descendant holds a context.
        sync: False skips ``torch.cuda.synchronize()`` at both ends; only processes with a CUDA context synchronize.
        warm_up: Step of the work, a function without arguments.  The step runs before the block until times and clock are
            steady, for 10 s at most.
        tags: Tags to store with the window, such as ``{"team": "vision"}``, in addition to those of batch job, pod or CI run.
        on_reject: ``"raise"`` waits for the verdict at the end of the block and raises RejectedError for a rejected one.
        settings: Settings to use instead of the environment's and the files'.

    Returns:
        A new window, not yet entered.

    Raises UsageError: when an argument is invalid.
    Raises RejectedError: at the end of the block, when the verdict is rejected and ``on_reject`` is ``"raise"``.

    Example:
        As a context manager:

        >>> with gpuwatch.window("sum", tags={"team": "vision"}, tolerance=0.02) as w:
        ...     total = sum(range(100_000))
        >>> print(w.verdict.status)  # varies
        valid

        As a decorator; each call has its own window, and ``function.window`` is the latest:

        >>> @gpuwatch.window(claim="burst")
        ... def step():
        ...     return sum(range(100_000))
        >>> step()
        4999950000
        >>> step.window.label
        'step'
    """
    check_choices(on_reject, settings)
    made = Window(
        check_label(label),
        check_policy(claim, policy, tolerance, precision, reference_clock, accept=accept, limits=limits),
        gpus=list_gpus(gpus),
        sync=sync,
        on_reject=on_reject,
        settings=settings,
        stated=StatedClaim.checked(locked_mhz=locked_mhz, every=every, varies=varies, untrusted=untrusted),
    )
    return _prepare(made, check_step(warm_up), check_tags(tags))


def _prepare(made: Window, warm_up: Callable[[], object] | None, tags: Mapping[str, str]) -> Window:
    made.warm_up = warm_up
    made.tags.given = dict(tags)
    return made
