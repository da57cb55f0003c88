"""Tests of compare() with wrong arguments and failing services."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from annotate.compare.decision import Comparison, Condition, Decision
from annotate.verdict import Status
from gpuwatch.comparing import compare
from gpuwatch.comparing.blocks import HostBlocks
from gpuwatch.config.settings import load
from gpuwatch.errors import UsageError
from gpuwatch.process import torch_state


def nothing() -> None: ...


async def later() -> None: ...


def one_by_one() -> Iterator[int]:
    yield 1


async def one_by_one_later() -> AsyncIterator[int]:
    yield 1


def given_later() -> object:
    return later()


def given_one_by_one() -> object:
    return one_by_one()


class Later:
    async def __call__(self) -> None: ...


PAIR: dict[str, Callable[..., object]] = {"a": nothing, "b": nothing}


@pytest.mark.parametrize("variants", [[nothing, nothing], None, 5, "ab", {1: nothing, 2: nothing}, {"": nothing, "b": nothing}])
def test_variants_are_functions_by_name(variants: Any) -> None:
    with pytest.raises(UsageError, match=r"compare: expected (functions by name|a name for each)"):
        compare(variants, watch=False)


@pytest.mark.parametrize("variant", [later, one_by_one, one_by_one_later, Later(), given_later, given_one_by_one])
@pytest.mark.parametrize("check", [True, False])
def test_deferring_function_is_refused_as_variant(variant: Callable[[], object], check: bool) -> None:
    """compare() refuses a variant whose call only returns a coroutine or a generator."""
    for variants in ({"a": variant, "b": nothing}, {"b": nothing, "a": variant}):
        with pytest.raises(UsageError, match="compare: a: expected a function that does its work"):
            compare(variants, check=check, watch=False)


@pytest.mark.parametrize("inputs", [5, None, np.ones(3), "text", {"x": 1}])
def test_inputs_that_are_not_a_tuple_are_refused(inputs: Any) -> None:
    variants: dict[str, Callable[..., object]] = {"a": lambda x: x, "b": lambda x: x}
    with pytest.raises(UsageError, match=r"compare: inputs: expected a tuple of arguments, as \(x,\)"):
        compare(variants, inputs=inputs, watch=False)
    with pytest.raises(UsageError, match=r"compare: inputs\(\): expected a tuple of arguments"):
        compare(variants, inputs=lambda: inputs, watch=False)


WRONG: list[tuple[str, object]] = [
    *((name, value) for name in ("seconds", "block_s", "own_s") for value in ("3", None, 0.0, -1, float("inf"), True)),
    *(("warm_s", value) for value in ("1", -1.0, float("inf"), float("nan"))),
    *((name, value) for name in ("rounds_count", "buffers_count") for value in ("3", None, 0, 2.0, True)),
    *((name, value) for name in ("floor_ratio", "tolerance_ratio", "rtol") for value in (-1, float("nan"), "x")),
    *(("tolerance", value) for value in (0.0, 1.0, None, "0.5%", float("nan"))), ("cache", "tepid"),
    ("rounds_count", 1), ("seed", "x"), ("seed", 1.5), ("timer", "events"), ("reference", ["a"]), ("label", 5), ("settings", {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), WRONG, ids=[f"{name}={value!r}" for name, value in WRONG])
def test_wrong_compare_argument_is_named_with_its_value(name: str, value: object) -> None:
    with pytest.raises(UsageError, match=f"compare: {name}: expected") as refused:
        compare(PAIR, watch=False, **{name: value})  # type: ignore[arg-type]  # a wrong type is the test's subject
    assert "\n" not in str(refused.value)
    assert repr(value) in str(refused.value)


def test_compare_takes_numbers_of_numpy() -> None:
    settings: dict[str, Any] = {
        "seconds": np.float32(0.05),
        "warm_s": np.float64(0),
        "buffers_count": np.int64(1),
        "seed": np.int32(3),
    }
    assert compare(PAIR, watch=False, floor_ratio=0.01, timer=HostBlocks(), **settings).comparisons


def test_broken_configuration_makes_window_unproven(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A broken configuration does not stop the comparison, and makes its window unproven."""
    caplog.set_level(logging.CRITICAL)
    broken = tmp_path / "broken.toml"
    broken.write_text("state = [")
    monkeypatch.setenv("GPUWATCH_CONFIG", str(broken))
    with pytest.raises(Exception, match="broken"):
        load()
    found = compare({"a": lambda: 1.0, "b": lambda: 1.0}, seconds=0.05, warm_s=0.0, timer=HostBlocks())
    assert len(found.comparisons) == 1
    assert found.verdict is not None
    assert found.verdict.status is Status.UNPROVEN


def test_failing_torch_leaves_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison succeeds although torch raises an error at compare()'s query for the GPU."""

    def broken() -> object:
        raise RuntimeError("the GPU is lost")

    monkeypatch.setattr(torch_state, "snapshot", broken)
    found = compare(PAIR, seconds=0.05, warm_s=0.0, watch=False, timer=HostBlocks(), settings=load(environment={"HOME": "/"}))
    assert len(found.comparisons) == 1


def test_escapes_in_names_and_conditions_are_not_printed() -> None:
    found = compare({"a\x1b[2J": nothing, "b\nfaster": lambda: 1}, seconds=0.05, warm_s=0.0, watch=False, timer=HostBlocks())
    assert "\x1b" not in str(found)
    assert "b\\nfaster against a\\x1b[2J" in str(found).splitlines()[0]
    conditions = (Condition("driver\x07", "1\x1b]0;", "2\u202e", differs=True),)
    text = str(Comparison(a="a", b="b", decision=Decision.SAME, conditions=conditions, reasons=("no\r",)))
    assert not any(character in text for character in "\x07\x1b\u202e\r")
