"""Tests of bench()'s arguments: refused, converted, or accepted from any library."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from annotate.user_policy import Policy
from gpuwatch.errors import UsageError
from gpuwatch.measuring import bench
from tests.gpuwatch.measuring.scripted import ScriptedTimer, World, constant, nothing, run


async def _promised() -> None: ...


def _numbers() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"fn": 3}, "bench: expected a function, found 3"),
        ({"fn": _promised}, "bench: expected a function that does its work when it is called"),
        ({"fn": _numbers}, "found a coroutine or generator function"),
        ({"args": 3}, "args: expected a tuple"),
        ({"rotate": []}, "rotate: expected a list of tuples"),
        ({"rotate": [(1,)], "args": (1,)}, "expected either args or rotate"),
        ({"timer": "sundial"}, "timer: expected one of events, graph, host, found 'sundial'"),
        ({"timer": 3}, "timer: expected a name or a timer"),
        ({"timer": "host", "cache": "cold"}, "cache='cold': expected a GPU"),
        ({"cache": "tepid"}, "cache: expected 'cold' or 'warm'"),
        ({"flops": -1}, "flops: expected a number above 0, found -1"),
        ({"bytes": float("nan")}, "bytes: expected a number above 0, found nan"),
        ({"min_s": True}, "min_s: expected a number above 0, found True"),
        ({"max_s": 0}, "max_s: expected a number above 0"),
        ({"min_s": 20.0}, "min_s: expected at most max_s"),
        ({"target_ratio": "narrow"}, "target_ratio: expected a number"),
        ({"target_ratio": 5}, "target_ratio: expected a share between 0 and 1"),
        ({"warmup_max_s": -1}, "warmup_max_s: expected a number of at least 0"),
        ({"rtol": -1e-3}, "rtol: expected a number of at least 0"),
        ({"rtol": "1"}, "rtol: expected a number of at least 0, found '1'"),
        ({"max_s": None}, "max_s: expected a number above 0, found None"),
        ({"warmup_max_s": None}, "warmup_max_s: expected a number of at least 0, found None"),
        ({"target_ratio": None}, "target_ratio: expected a number above 0, found None"),
        ({"flops": 10**400}, "flops: expected a number above 0"),
        ({"flops": 1j}, "flops: expected a number above 0, found 1j"),
        ({"dtype": 5}, "dtype: expected a data type as 'bfloat16', found 5"),
        ({"dtype": "a b"}, "dtype: expected a data type"),
        ({"args": "abc"}, "args: expected a tuple of arguments, found str"),
        ({"rotate": [1, 2]}, "rotate: expected a list of tuples"),
        ({"policy": "strict"}, "policy: expected a gpuwatch.Policy"),
        ({"settings": {}}, "settings: expected gpuwatch.config.settings.Settings"),
        ({"label": "x" * 300}, "label: expected at most 256 characters"),
        ({"check_inputs": True, "args": (np.broadcast_to(np.ones(1), (5,)),), "fn": np.sum}, "can be changed in place"),
        ({"retries": -1}, "retries: expected a count"),
        ({"label": 3}, "label: expected text"),
        ({"claim": "fast"}, "claim"),
        ({"claim": "burst", "policy": Policy()}, "contradicts"),
        ({"check_inputs": True}, "check_inputs: expected floating-point tensors"),
        ({"reference": 1.0}, "found one that returns nothing to compare"),
    ],
)
def test_invalid_bench_argument_is_one_line(options: dict[str, object], complaint: str) -> None:
    fn = options.pop("fn", nothing)
    with pytest.raises(UsageError, match=complaint) as caught:
        bench(fn, **options)  # type: ignore[arg-type]  # wrong on purpose
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("number", [np.float64(5), np.float32(5), np.int64(5), 5, Fraction(5)])
def test_bench_takes_numbers_of_any_library(number: float) -> None:
    measured, world = run(constant(1e-3), flops=number, bytes=number, min_s=0.1)
    assert world.windows[0].declared["call_flops_count"] == measured.call_bytes == 5.0
    assert type(world.windows[0].declared["call_bytes"]) is float


@pytest.mark.parametrize("dtype", ["float16", "torch.float16", np.float16, np.dtype("float16")])
def test_data_type_has_one_name_for_all_libraries(dtype: object) -> None:
    measured, world = run(constant(1e-3), dtype=dtype, min_s=0.1)
    assert world.windows[0].declared["dtype"] == measured.dtype == "float16"


class _Sly(np.ndarray[Any, Any]):
    @property
    def flags(self) -> Any:
        raise KeyError("not today")


def test_unreadable_argument_is_measured_anyway() -> None:
    world = World(ScriptedTimer(constant(1e-3)), gpu=None)
    assert (
        bench(
            nothing, args=(np.ones(3).view(_Sly),), timer=world.timer, seams=world.environment(), cache="warm", min_s=0.1
        ).count
        > 10
    )


def test_long_function_name_is_cut_for_label() -> None:
    def named() -> None:
        pass

    named.__name__ = "x" * 300
    world = World(ScriptedTimer(constant(1e-3)))
    assert bench(named, timer=world.timer, seams=world.environment(), min_s=0.1).label == "x" * 256


@pytest.mark.parametrize("timer", ["events", "graph"])
def test_gpu_timer_without_torch_is_refused(timer: str) -> None:
    try:
        import torch  # noqa: F401
    except ImportError:
        with pytest.raises(UsageError, match="needs torch, which is not installed"):
            bench(nothing, timer=timer)  # type: ignore[arg-type]  # a name that is allowed
