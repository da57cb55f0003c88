"""Tests of compilation pauses from the hooks of Triton and torch, both mocked."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from gpuwatch import clock
from gpuwatch.process.compilations import CompilationPauses
from gpuwatch.process.span_log import SpanLog


@dataclass
class CallbackHandler:
    """The used part of torch._dynamo.callback."""

    starts: list[Callable[..., None]] = field(default_factory=list)
    ends: list[Callable[..., None]] = field(default_factory=list)

    def register_start_callback(self, callback: Callable[..., None]) -> None:
        self.starts.append(callback)

    def register_end_callback(self, callback: Callable[..., None]) -> None:
        self.ends.append(callback)

    def remove_start_callback(self, callback: Callable[..., None]) -> None:
        self.starts.remove(callback)

    def remove_end_callback(self, callback: Callable[..., None]) -> None:
        self.ends.remove(callback)


@pytest.fixture
def triton(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    compilation = SimpleNamespace(listener=None)
    monkeypatch.setitem(sys.modules, "triton.knobs", SimpleNamespace(compilation=compilation))
    return compilation


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> CallbackHandler:
    handler = CallbackHandler()
    monkeypatch.setitem(sys.modules, "torch._dynamo.callback", SimpleNamespace(callback_handler=handler))
    return handler


def pauses(log: SpanLog) -> list[tuple[int, int, str]]:
    return [
        (begin_ns, end_ns, message.names[number])
        for message in log.messages("run")
        for begin_ns, end_ns, number in zip(
            memoryview(message.begin_ns).cast("q"), memoryview(message.end_ns).cast("q"), message.named, strict=True
        )
    ]


def test_triton_compilation_is_a_pause_of_equal_length(triton: SimpleNamespace) -> None:
    log = SpanLog("pauses")
    listening = CompilationPauses(log)
    listening.start()
    before_ns = clock.now_ns()
    triton.listener(src=None, metadata={}, metadata_group={}, times=SimpleNamespace(total=250_000), cache_hit=False)
    listening.stop()
    ((begin_ns, end_ns, cause),) = pauses(log)
    assert cause == "compilation"
    assert end_ns - begin_ns == 250_000_000
    assert end_ns >= before_ns
    assert triton.listener is None


def test_earlier_triton_listener_gets_every_call(triton: SimpleNamespace) -> None:
    heard: list[Any] = []
    triton.listener = lambda **facts: heard.append(facts["cache_hit"])
    earlier = triton.listener
    listening = CompilationPauses(SpanLog("pauses"))
    listening.start()
    triton.listener(times=SimpleNamespace(total=1), cache_hit=True)
    triton.listener(times=None, cache_hit=False)
    listening.stop()
    assert heard == [True, False]
    assert triton.listener is earlier


def test_later_triton_listener_is_not_removed(triton: SimpleNamespace) -> None:
    listening = CompilationPauses(SpanLog("pauses"))
    listening.start()
    ours = triton.listener

    def theirs(**facts: Any) -> None:
        ours(**facts)

    triton.listener = theirs
    listening.stop()
    assert triton.listener is theirs


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        ((), "compilation"),
        ((SimpleNamespace(callback_trigger="CallbackTrigger.DYNAMO"),), "compilation"),
        ((SimpleNamespace(callback_trigger="CallbackTrigger.TRITON_AUTOTUNING"),), "autotuning"),
    ],
)
def test_torch_compilation_lasts_from_start_to_end(torch: CallbackHandler, arguments: tuple[Any, ...], cause: str) -> None:
    log = SpanLog("pauses")
    listening = CompilationPauses(log)
    listening.start()
    for callback in torch.starts:
        callback(*arguments)
    for callback in torch.ends:
        callback(*arguments)
    listening.stop()
    ((begin_ns, end_ns, found),) = pauses(log)
    assert found == cause
    assert begin_ns <= end_ns
    assert torch.starts == torch.ends == []


def test_compilation_end_without_a_start_is_ignored(torch: CallbackHandler) -> None:
    """A compilation that started before the window is not a pause, because only the compilation's end is reported."""
    log = SpanLog("pauses")
    listening = CompilationPauses(log)
    listening.start()
    torch.ends[0]()
    assert len(log) == 0


def test_compilers_without_hooks_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton.knobs", SimpleNamespace(compilation=SimpleNamespace()))
    monkeypatch.setitem(sys.modules, "torch._dynamo.callback", SimpleNamespace(callback_handler=object()))
    listening = CompilationPauses(SpanLog("pauses"))
    listening.start()
    listening.stop()
