"""Tests of a window's facts from an imported torch, with a stand-in for torch."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from gpuwatch.process import torch_state
from gpuwatch.process.torch_state import Snapshot, facts_since, snapshot


class FakeCuda:
    """A stand-in for torch.cuda with one H200 and an allocator whose counters the test sets."""

    def __init__(self) -> None:
        self.capturing = False
        self.asked = 0
        self.stats: dict[str, Any] = {
            "num_alloc_retries": 0, "num_device_alloc": 10, "reserved_bytes": {"all": {"current": 1 << 30}},
            "segment": {"all": {"allocated": 7}},
        }  # fmt: skip

    def is_initialized(self) -> bool:
        return True

    def is_current_stream_capturing(self) -> bool:
        return self.capturing

    def device_count(self) -> int:
        return 1

    def get_device_properties(self, index: int) -> SimpleNamespace:
        self.asked += 1
        return SimpleNamespace(uuid="0000-1", multi_processor_count=132, L2_cache_size=62_914_560)

    def memory_stats_as_nested_dict(self, index: int) -> dict[str, Any]:
        self.asked += 1
        return self.stats

    def synchronize(self, index: int) -> None:
        self.asked += 1


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    made = FakeCuda()
    backends = SimpleNamespace(cudnn=SimpleNamespace(version=lambda: 91_002, allow_tf32=True, benchmark=False))
    torch = SimpleNamespace(
        __version__="2.13.0+cu130", cuda=made, version=SimpleNamespace(cuda="13.0"), backends=backends,
        get_float32_matmul_precision=lambda: "high", are_deterministic_algorithms_enabled=lambda: False,
        autograd=SimpleNamespace(_profiler_enabled=lambda: False),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(torch_state, "_seen_profiled", set())
    return made


def test_snapshot_holds_software_and_gpu(cuda: FakeCuda) -> None:
    found = snapshot().facts
    assert found["torch_version"] == "2.13.0+cu130"
    assert (found["cuda_version"], found["cudnn_version"], found["matmul_precision"]) == ("13.0", "91002", "high")
    assert (found["cudnn_tf32"], found["cudnn_benchmark"], found["deterministic"]) == (True, False, False)
    assert (found["cuda_uuids"], found["sm_count"], found["l2_bytes"]) == ("GPU-0000-1", 132, 62_914_560)
    assert found["launch_blocking"] is False


def test_allocator_facts_are_differences_of_the_edges(cuda: FakeCuda) -> None:
    before = snapshot()
    cuda.stats = {**cuda.stats, "num_device_alloc": 25, "num_alloc_retries": 2, "reserved_bytes": {"all": {"current": 0}}}
    found = facts_since(before)
    assert (found["alloc_count"], found["alloc_retry_count"], found["reserved_change_bytes"]) == (15, 2, -(1 << 30))
    assert "torch_version" not in found


def test_older_allocator_counts_segments(cuda: FakeCuda) -> None:
    """Without the count of driver calls, the allocator's segments count; without statistics there are no figures."""
    del cuda.stats["num_device_alloc"]
    assert facts_since(snapshot())["alloc_count"] == 0
    cuda.stats = {}
    assert "alloc_count" not in facts_since(snapshot())


def test_context_made_inside_counts_all_allocations(cuda: FakeCuda) -> None:
    found = facts_since(Snapshot())
    assert (found["alloc_count"], found["reserved_change_bytes"]) == (10, 1 << 30)
    assert found["cuda_uuids"] == "GPU-0000-1"


def test_gpu_is_not_queried_during_a_graph_capture(cuda: FakeCuda) -> None:
    cuda.capturing = True
    assert torch_state.synchronize() is None
    assert torch_state.cuda_at_hand() is None
    assert "cuda_uuids" not in facts_since(snapshot())
    assert cuda.asked == 0


def test_context_and_capture_decide_on_safe_calls(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """A context without a capture allows calls; a failed, partial or uninitialised torch has no context."""
    assert (torch_state.cuda_with_context(), torch_state.cuda_at_hand(), torch_state.capturing()) == (cuda, cuda, False)
    cuda.capturing = True
    assert (torch_state.cuda_with_context(), torch_state.cuda_at_hand(), torch_state.capturing()) == (cuda, None, True)
    for torch in (None, SimpleNamespace(), SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: False))):
        monkeypatch.setitem(sys.modules, "torch", torch)  # None: the import failed
        assert (torch_state.cuda_with_context(), torch_state.cuda_at_hand(), torch_state.capturing()) == (
            None,
            None,
            False,
        )


def test_minimal_torch_has_its_version_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__version__="1.0"))
    assert snapshot().facts["torch_version"] == "1.0"


def test_torch_switch_that_raises_is_left_out(cuda: FakeCuda) -> None:
    class Mixed:
        benchmark = True

        @property
        def allow_tf32(self) -> bool:
            raise RuntimeError("mix of the legacy and new APIs to set the TF32 status")

    sys.modules["torch"].backends.cudnn = Mixed()
    found = snapshot().facts
    assert "cudnn_tf32" not in found
    assert "cudnn_version" not in found
    assert found["cudnn_benchmark"] is True


def test_profiler_at_one_edge_is_remembered_at_the_next(cuda: FakeCuda) -> None:
    """A profiler at one edge counts at every later edge."""
    if sys.gettrace() is None and sys.getprofile() is None:
        assert snapshot().facts["profiler_used"] is False
    sys.modules["torch"].autograd._profiler_enabled = lambda: True
    before = snapshot()
    assert before.facts["profiler_used"] is True
    sys.modules["torch"].autograd._profiler_enabled = lambda: False
    assert facts_since(before).get("profiler_used", True) is True
    assert snapshot().facts["profiler_used"] is True


def test_python_profile_function_counts_as_a_profiler(cuda: FakeCuda) -> None:
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, argument: None)
    try:
        assert snapshot().facts["profiler_used"] is True
    finally:
        sys.setprofile(before)


def test_blocking_launches_are_recorded(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    before = snapshot()
    assert before.facts["launch_blocking"] is True
    monkeypatch.delenv("CUDA_LAUNCH_BLOCKING")
    assert "launch_blocking" not in facts_since(before)


def test_clocks_replaced_at_either_edge_are_declared(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    before = Snapshot({"tampered": "torch.cuda.Event"})
    monkeypatch.setattr(time, "perf_counter", lambda: 0.0)
    assert facts_since(before)["tampered"] == "time.perf_counter,torch.cuda.Event"
