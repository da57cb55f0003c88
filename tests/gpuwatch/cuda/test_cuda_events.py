"""Tests of events by number: the driver's handles if libcuda is usable, else torch's objects."""

from __future__ import annotations

import ctypes
import gc
import itertools
import sys
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpuwatch.cuda.cuda_events import TorchEvents, make_events

_contexts = itertools.count(0x5000)


@dataclass
class Library:
    """The used functions of libcuda; the nth recorded event is n milliseconds after the start."""

    context: int = field(default_factory=lambda: next(_contexts))
    at_ms: dict[int, float] = field(default_factory=dict)
    recorded: list[tuple[int, int]] = field(default_factory=list)

    def cuCtxGetCurrent(self, out: Any) -> int:  # noqa: N802 - the driver's names
        out._obj.value = self.context
        return 0

    def cuCtxGetId(self, context: ctypes.c_void_p, out: Any) -> int:  # noqa: N802
        out._obj.value = 1
        return 0

    def cuEventCreate(self, out: Any, flags: int) -> int:  # noqa: N802
        out._obj.value = 0x100 + len(self.at_ms)
        self.at_ms[out._obj.value] = 0.0
        return 0

    def cuEventRecord(self, event: int, stream: int) -> int:  # noqa: N802
        self.recorded.append((event, stream))
        self.at_ms[event] = float(len(self.recorded))
        return 0

    def cuEventSynchronize(self, event: int) -> int:  # noqa: N802
        return 0 if self.at_ms.get(event) else 400

    def cuEventQuery(self, event: int) -> int:  # noqa: N802
        return 0 if self.at_ms.get(event) else 600

    def cuEventElapsedTime(self, out: Any, first: int, last: int) -> int:  # noqa: N802
        out._obj.value = self.at_ms[last] - self.at_ms[first]
        return 0


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setitem(sys.modules, "torch._C", SimpleNamespace(_cuda_getCurrentRawStream=lambda index: 70 + index))
    return SimpleNamespace(current_device=lambda: 1)


def test_events_are_recorded_on_the_current_stream(cuda: Any) -> None:
    library = Library()
    events = make_events(cuda, library)
    events.prepare(3)
    for number in range(4):
        events.record(number)
    assert [stream for _, stream in library.recorded] == [71] * 4
    events.synchronize(3)
    assert events.elapsed_s(np.array([0, 1]), np.array([1, 3])).tolist() == pytest.approx([1e-3, 2e-3])


def test_event_is_done_once_the_gpu_reached_the_event(cuda: Any) -> None:
    events = make_events(cuda, Library())
    events.prepare(1)
    events.record(0)
    assert events.is_done(0)
    assert not events.is_done(1)


def test_released_events_are_reused(cuda: Any) -> None:
    library = Library()
    first = make_events(cuda, library)
    first.prepare(9)
    first.close()
    second = make_events(cuda, library)
    second.reserve(6)
    second.prepare(9)
    assert len(library.at_ms) == 10
    made_elsewhere = make_events(cuda, Library())
    made_elsewhere.prepare(0)
    assert len(library.at_ms) == 10


def test_driver_events_are_not_tracked_by_the_collector(cuda: Any) -> None:
    """The garbage collector tracks fewer than ten more objects after a thousand of the driver's events."""
    events = make_events(cuda, Library())
    events.prepare(0)
    gc.collect()
    before = len(gc.get_objects())
    events.prepare(1000)
    assert len(gc.get_objects()) - before < 10


def test_unrecorded_event_is_an_error(cuda: Any) -> None:
    events = make_events(cuda, Library())
    events.prepare(0)
    with pytest.raises(RuntimeError, match="CUDA: error 400"):
        events.synchronize(0)


def test_torch_events_replace_an_unusable_library(cuda: Any) -> None:
    """Events are torch's if the library lacks a function, or without a context."""
    assert isinstance(make_events(cuda, SimpleNamespace()), TorchEvents)
    assert isinstance(make_events(cuda, Library(context=0)), TorchEvents)
