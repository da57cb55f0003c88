"""Tests of blocks timed by the host, or by events of a mock torch.cuda whose GPU has a queue and a clock."""

from __future__ import annotations

import pytest

from gpuwatch.comparing.blocks import Block, EventBlocks, HostBlocks, choose_timer


class Gpu:
    """A queue: the host submits at its own speed, and the GPU runs one item after the other."""

    def __init__(self, call_s: float, issue_s: float) -> None:
        self.call_s, self.issue_s = call_s, issue_s
        self.host_s = self.free_s = 0.0
        self.pending_count = self.most_pending_count = 0

    def call(self) -> None:
        self.host_s += self.issue_s
        self.free_s = max(self.free_s, self.host_s) + self.call_s

    def Event(self, *, enable_timing: bool) -> Event:  # noqa: N802 - torch's name
        assert enable_timing
        return Event(self)


class Event:
    def __init__(self, gpu: Gpu) -> None:
        self.gpu, self.at_s = gpu, 0.0

    def record(self) -> None:
        self.at_s = max(self.gpu.free_s, self.gpu.host_s)
        self.gpu.pending_count += 1
        self.gpu.most_pending_count = max(self.gpu.most_pending_count, self.gpu.pending_count)

    def query(self) -> bool:
        return self.at_s <= self.gpu.host_s

    def synchronize(self) -> None:
        self.gpu.host_s = max(self.gpu.host_s, self.at_s)
        self.gpu.pending_count -= 2

    def elapsed_time(self, last: Event) -> float:
        return (last.at_s - self.at_s) * 1e3


def test_blocks_return_the_time_per_call_in_order() -> None:
    gpu = Gpu(call_s=200e-6, issue_s=5e-6)
    timed = list(EventBlocks(gpu).times([Block("ab"[i % 2], gpu.call, 10 + i) for i in range(20)]))
    assert [each.block.variant for each in timed] == list("ab" * 10)
    assert [each.took_s for each in timed[1:]] == pytest.approx([200e-6] * 19)
    assert timed[5].whole_s == pytest.approx(15 * 200e-6)


def test_event_blocks_keep_host_ahead_of_gpu() -> None:
    """The host stays a few blocks ahead, so that the GPU never waits."""
    gpu = Gpu(call_s=200e-6, issue_s=5e-6)
    timed = list(EventBlocks(gpu).times(Block("a", gpu.call, 10) for _ in range(100)))
    assert not any(each.starved for each in timed)
    assert gpu.free_s == pytest.approx(100 * 10 * 200e-6, rel=0.01)
    assert gpu.most_pending_count <= 14


def test_blocks_are_starved_if_the_gpu_waits_for_launches() -> None:
    gpu = Gpu(call_s=2e-6, issue_s=5e-6)
    timed = list(EventBlocks(gpu).times(Block("a", gpu.call, 100) for _ in range(20)))
    assert all(each.starved for each in timed[1:])


def test_block_launches_are_timed_separately() -> None:
    """A block has the host's time per call, and the gap after the previous block, here zero."""
    for call_s, issue_s, gap_s in ((200e-6, 5e-6, 0.0), (2e-6, 5e-6, 0.0)):
        gpu = Gpu(call_s=call_s, issue_s=issue_s)
        timer = EventBlocks(gpu, now_ns=lambda gpu=gpu: round(gpu.host_s * 1e9))  # type: ignore[misc]
        timed = list(timer.times(Block("a", gpu.call, 10) for _ in range(20)))
        assert all(each.launch is not None for each in timed)
        launches = [each.launch for each in timed[1:] if each.launch is not None]
        assert [each.issue_s for each in launches] == pytest.approx([issue_s] * 19)
        assert [each.gap_s for each in launches] == pytest.approx([gap_s] * 19, abs=1e-9)


def test_event_overhead_is_divided_by_the_calls() -> None:
    class Holding(Gpu):
        """A GPU that can be held, and whose events take a microsecond each."""

        def _sleep(self, cycles: int) -> None:
            self.free_s += cycles / 2e9

        def Event(self, *, enable_timing: bool) -> Event:  # noqa: N802 - torch's name
            self.free_s += 1e-6
            return super().Event(enable_timing=enable_timing)

    for before, count in ((None, 10), (lambda: None, 1)):
        gpu = Holding(call_s=200e-6, issue_s=5e-6)
        timed = next(iter(EventBlocks(gpu).times([Block("a", gpu.call, 10, before)])))
        assert timed.launch is not None
        assert timed.launch.overhead_s == pytest.approx(1e-6 / count)


def test_work_before_each_call_is_not_timed() -> None:
    """The flush of a cold cache is outside the timed spans, and inside the block's whole time."""
    gpu, order = Gpu(call_s=200e-6, issue_s=5e-6), []

    def call() -> None:
        order.append("call")
        gpu.call()

    def flush() -> None:
        order.append("flush")
        gpu.host_s += 5e-6
        gpu.free_s = max(gpu.free_s, gpu.host_s) + 40e-6

    timed = list(EventBlocks(gpu).times(Block("a", call, 10, flush) for _ in range(5)))
    assert order == ["flush", "call"] * 50
    assert [each.took_s for each in timed] == pytest.approx([200e-6] * 5)
    assert [each.whole_s for each in timed[1:]] == pytest.approx([10 * 240e-6] * 4)
    assert not any(each.starved for each in timed)


def test_host_blocks_time_only_the_calls() -> None:
    order: list[str] = []
    block = Block("a", lambda: order.append("call"), 3, lambda: order.append("flush"))
    timed = next(iter(HostBlocks().times([block])))
    assert order == ["flush", "call"] * 3
    assert timed.whole_s >= 3 * timed.took_s


def test_host_blocks_are_chosen_without_a_context() -> None:
    assert isinstance(choose_timer(), HostBlocks)
