"""The work of paired windows: kernels of a real GPU, and simulated work for tests without a GPU."""

from __future__ import annotations

import contextlib
import importlib.util
import tempfile
import time
from pathlib import Path
from typing import Any, Protocol

PRETENCE = "pretence"
# Kernels of ``kernels.py``; one call takes 0.2 to 2.7 ms on an H200.
WORKLOADS = ("gemm-4096", "softmax-fp32", "attention", "copy-1g", "conv-3x3", "gemm-4096-fp32", "decode-graph")
_FILLER_COUNT = 1 << 24  # array length: one launch of other work takes at most about 50 µs; longer work takes several launches
_TRITON = """
import triton
import triton.language as tl

@triton.jit
def kernel_{number}(x, out, n, size: tl.constexpr):
    at = tl.program_id(0) * size + tl.arange(0, size)
    tl.store(out + at, tl.load(x + at, mask=at < n) * {number} + 1.0, mask=at < n)
"""


class Work(Protocol):
    """The measured calls, and the possible disturbances in and between calls."""

    capped: bool  # a power-capped clock takes 3 s to settle

    def step(self, calls: int, *, aside: bool = False) -> None:
        """Launch this number of calls; ``aside`` on another stream."""

    def add(self, share: float, *, aside: bool = False) -> None:
        """Launch other work that takes about this ratio of a call's time."""

    def ease(self, share: float) -> None:
        """Make this ratio of the inputs zero from now on."""

    def compile(self, kind: str, number: int) -> None:
        """Compile a new kernel, and launch it."""

    def join(self) -> None:
        """Make the stream of the calls wait for the other stream."""

    def mark(self) -> Any:
        """Mark a point in the GPU's work."""

    def passed_s(self, first: Any, last: Any) -> float:
        """Wait for the last of two marks; return the time between them."""

    def synchronize(self) -> None:
        """Wait for all GPU work."""


class Pretence:
    """Work that sleeps, for a simulated GPU."""

    capped = False
    _CALL_S = 5e-4

    def __init__(self) -> None:
        self._shorter = 0.0

    def step(self, calls: int, *, aside: bool = False) -> None:
        time.sleep(calls * self._CALL_S * (1.0 - self._shorter))

    def add(self, share: float, *, aside: bool = False) -> None:
        time.sleep(share * self._CALL_S)

    def ease(self, share: float) -> None:
        self._shorter = 0.1 * share

    def compile(self, kind: str, number: int) -> None:
        time.sleep(0.05)

    def join(self) -> None: ...

    def mark(self) -> float:
        return time.perf_counter()

    def passed_s(self, first: float, last: float) -> float:
        return last - first

    def synchronize(self) -> None: ...


class TorchWork:
    """A kernel of ``kernels.py`` on the current GPU."""

    def __init__(self, name: str) -> None:
        import torch

        from tests.hardware.kernels import KERNELS

        self._torch = torch
        kernel = next(each for each in KERNELS if each.name == name)
        self.capped = kernel.capped
        self._call = self._usual = kernel.make()
        self._eased = kernel.make()
        self._kept = [(tensor, tensor.clone()) for tensor in _tensors(self._eased)]
        self._share = 0.0
        self._side = torch.cuda.Stream()
        self._is_aside = False
        self._from, self._into = (torch.randn(_FILLER_COUNT, device="cuda") for _ in range(2))
        self._folder = tempfile.TemporaryDirectory(prefix="paired")
        self._call_s = self._took_s(lambda: self.step(1))
        self._filler_s = max(self._took_s(lambda: self._fill(_FILLER_COUNT)), 1e-6)
        for kind in ("triton", "jiterator"):
            with contextlib.suppress(Exception):  # only the windows that need this compiler fail
                self.compile(kind, 0)  # a window pays for one kernel, without the compiler's start
        self.ease(0.5)
        self._call()
        self.ease(0.0)
        self.synchronize()

    def step(self, calls: int, *, aside: bool = False) -> None:
        if aside:
            self._is_aside = True
            with self._torch.cuda.stream(self._side):
                for _ in range(calls):
                    self._call()
            return
        for _ in range(calls):
            self._call()

    def add(self, share: float, *, aside: bool = False) -> None:
        numbers = round(share * self._call_s / self._filler_s * _FILLER_COUNT)
        if aside:
            self._is_aside = True
            with self._torch.cuda.stream(self._side):
                self._fill_all(numbers)
            return
        self._fill_all(numbers)

    def _fill_all(self, numbers: int) -> None:
        while numbers > 0:
            self._fill(min(numbers, _FILLER_COUNT))
            numbers -= _FILLER_COUNT

    def _fill(self, numbers: int) -> None:
        self._torch.mul(self._from[:numbers], 1.001, out=self._into[:numbers])

    def ease(self, share: float) -> None:
        """Switch between two sets of inputs: the second is prepared at the first use of a ratio, before the window."""
        if share and share != self._share:
            for tensor, kept in self._kept:
                tensor.copy_(kept * (self._torch.rand(tensor.shape, device="cuda") >= share))
            self._share = share
        self._call = self._eased if share else self._usual

    def compile(self, kind: str, number: int) -> None:
        x, out = self._from[:1024], self._into[:1024]
        if kind == "triton":
            path = Path(self._folder.name) / f"kernel_{number}.py"
            path.write_text(_TRITON.format(number=number))
            spec = importlib.util.spec_from_file_location(path.stem, path)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            getattr(module, path.stem)[(1,)](x, out, 1024, size=1024)
            return
        code = f"template <typename T> T paired_{number}(T x) {{ return x * x + T({number}); }}"
        self._torch.cuda.jiterator._create_jit_fn(code)(x)

    def join(self) -> None:
        if self._is_aside:
            self._torch.cuda.current_stream().wait_stream(self._side)
            self._is_aside = False

    def mark(self) -> Any:
        event = self._torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def passed_s(self, first: Any, last: Any) -> float:
        last.synchronize()
        return float(first.elapsed_time(last)) / 1e3

    def synchronize(self) -> None:
        self._torch.cuda.synchronize()

    def _took_s(self, call: Any, count: int = 50) -> float:
        for _ in range(5):
            call()
        first = self.mark()
        for _ in range(count):
            call()
        return self.passed_s(first, self.mark()) / count


def _tensors(call: Any) -> list[Any]:
    """Return the floating-point tensors in a call's closure: its inputs, and outputs that it overwrites."""
    cells = [cell.cell_contents for cell in call.__closure__ or ()]
    found = [each for cell in cells for each in (cell if isinstance(cell, list | tuple) else [cell])]
    return [each for each in found if getattr(each, "is_floating_point", lambda: False)()]


def made(name: str) -> Work:
    return Pretence() if name == PRETENCE else TorchWork(name)
