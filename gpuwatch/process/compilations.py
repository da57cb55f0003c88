"""Compilations in this process, from hooks of Triton and of torch's compiler, if the program has imported them."""

import contextlib
import sys
import threading
from collections.abc import Callable
from typing import Any

from gpuwatch import clock
from gpuwatch.process.span_log import SpanLog

COMPILATION, AUTOTUNING = "compilation", "autotuning"
_US = 1000


class CompilationPauses:
    """Listeners of both compilers, installed between ``start`` and ``stop``.

    Triton (3.4 and later, ``triton.knobs``) reports a compilation at its end, with the duration in microseconds.
    torch (``torch._dynamo.callback``) reports start and end, also of Triton's autotuning, once for any nesting.
    """

    def __init__(self, log: SpanLog) -> None:
        self._log = log
        self._numbers = {cause: log.number_of(cause) for cause in (COMPILATION, AUTOTUNING)}
        self._begun: dict[int, tuple[int, str]] = {}  # by thread
        self._undo: list[Callable[[], object]] = []

    def start(self) -> None:
        """Listen to the imported compilers; skip a version without these hooks."""
        with contextlib.suppress(AttributeError, TypeError):
            self._listen_to_triton()
        with contextlib.suppress(AttributeError, TypeError):
            self._listen_to_torch()

    def stop(self) -> None:
        while self._undo:
            with contextlib.suppress(AttributeError, TypeError, ValueError, LookupError):
                self._undo.pop()()

    def _listen_to_triton(self) -> None:
        knobs = getattr(sys.modules.get("triton.knobs"), "compilation", None)
        if knobs is None:
            return
        earlier = knobs.listener

        def listen(*arguments: Any, **facts: Any) -> None:  # Triton's signature
            took_us = getattr(facts.get("times"), "total", None)
            if isinstance(took_us, int | float) and took_us > 0:
                now_ns = clock.now_ns()
                self._log.add(now_ns - int(took_us * _US), now_ns, self._numbers[COMPILATION])
            if earlier is not None:
                earlier(*arguments, **facts)

        def remove() -> None:
            if knobs.listener is listen:  # otherwise a later listener calls this one
                knobs.listener = earlier

        knobs.listener = listen
        self._undo.append(remove)

    def _listen_to_torch(self) -> None:
        handler = getattr(sys.modules.get("torch._dynamo.callback"), "callback_handler", None)
        if handler is None:
            return
        begin, end = self._begin, self._end  # the same objects for registration and removal
        handler.register_start_callback(begin)
        self._undo.append(lambda: handler.remove_start_callback(begin))
        handler.register_end_callback(end)
        self._undo.append(lambda: handler.remove_end_callback(end))

    def _begin(self, *arguments: Any) -> None:  # torch 2.8 and later pass the kind of compilation
        trigger = str(getattr(arguments[0], "callback_trigger", "")) if arguments else ""
        cause = AUTOTUNING if "AUTOTUN" in trigger.upper() else COMPILATION
        self._begun[threading.get_ident()] = (clock.now_ns(), cause)

    def _end(self, *_: Any) -> None:
        begun = self._begun.pop(threading.get_ident(), None)
        if begun is not None:
            begin_ns, cause = begun
            self._log.add(begin_ns, clock.now_ns(), self._numbers[cause])
