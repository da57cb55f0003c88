"""Tests of compare()'s steps."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from annotate.compare.decision import Decision
from annotate.evidence import Values
from gpuwatch.comparing import Block, Compared, compare
from gpuwatch.comparing.blocks import Timed
from gpuwatch.errors import UsageError
from gpuwatch.measuring.environment import BenchEnvironment
from tests.gpuwatch.cli.test_schemas import check
from tests.gpuwatch.comparing.simulated import GEMM, SimulatedBlocks
from tests.gpuwatch.measuring.scripted import ScriptedTimer, World, constant

Variants = dict[str, Callable[..., object]]


def nothing() -> None: ...


class Journal(SimulatedBlocks):
    """A simulated GPU that runs the blocks' ``before``, and records the order of events."""

    def __init__(self, notes: list[str]) -> None:
        super().__init__({"a": GEMM, "b": GEMM})
        self._notes = notes

    def times(self, blocks: Iterable[Block]) -> Iterator[Timed]:
        for timed in super().times(blocks):
            for _ in range(timed.block.calls_count if timed.block.before else 0):
                assert timed.block.before is not None
                timed.block.before()
            self._notes.append("block" if not gc.isenabled() else "block with the collector on")
            yield timed


def run(**options: Any) -> tuple[Compared, list[str]]:
    """Compare two empty functions on a simulated GPU; return the result and the events in order."""
    notes: list[str] = []
    world = World(ScriptedTimer(constant(1e-3)))
    plain = world.environment()

    def opened(*given: Any, **more: Any) -> Any:
        notes.append("window")
        return plain.window(*given, **more)

    def start(_: object) -> None:
        notes.append("daemon")

    environment = replace(plain, window=opened, start_daemon=start)
    variants: Variants = {"a": nothing, "b": nothing}
    found = compare(variants, floor_ratio=0.003, seconds=0.5, timer=Journal(notes), seams=environment, **options)
    notes.append(f"{world.flushes} flushes")
    return found, notes


class TestCourse:
    def test_gpu_is_warm_before_the_window_opens(self) -> None:
        """The daemon starts, then the GPU works for 3 s, then the window opens."""
        _, notes = run()
        daemon, window = notes.index("daemon"), notes.index("window")
        # A block of 3 ms takes longer at the capped clock.
        assert 700 <= notes[daemon:window].count("block") <= 1000
        assert "block" in notes[window:]

    def test_compare_restores_the_collector(self) -> None:
        assert gc.isenabled()
        found, notes = run()
        assert "block with the collector on" not in notes
        assert gc.isenabled()
        assert "garbage collector was held off" in str(found)
        assert found.to_dict()["collector"] == "off"

    def test_compare_restores_the_collector_after_an_exception(self) -> None:
        class Broken(SimulatedBlocks):
            def times(self, blocks: Iterable[Block]) -> Iterator[Timed]:
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            compare({"a": nothing, "b": nothing}, watch=False, timer=Broken({}))
        assert gc.isenabled()

    @pytest.mark.parametrize(("cache", "expected"), [(None, "cold"), ("cold", "cold"), ("warm", "warm")])
    def test_cache_is_cold_on_a_gpu_unless_warm_is_given(self, cache: Any, expected: str) -> None:
        found, notes = run(cache=cache)
        assert (found.cache, found["b"].cache) == (expected, expected)
        assert f"L2 cache: {expected}" in str(found)
        assert (notes[-1] == "0 flushes") == (expected == "warm")
        check({**found.to_dict(), "verdict": None}, "urn:gpuwatch:comparison:1")

    def test_cold_cache_without_a_gpu_is_refused(self) -> None:
        alone = BenchEnvironment(gpu=lambda: None)
        timer = SimulatedBlocks({"a": GEMM, "b": GEMM})
        with pytest.raises(UsageError, match="expected a GPU whose cache can be emptied"):
            compare({"a": nothing, "b": nothing}, watch=False, cache="cold", timer=timer, seams=alone)
        found = compare({"a": nothing, "b": nothing}, watch=False, seconds=0.3, timer=timer, seams=alone)
        assert (found.cache, "L2 cache" in str(found)) == (None, False)


def checked(variants: Variants, **options: Any) -> Compared:
    timer = SimulatedBlocks({"a": GEMM, "b": GEMM})
    return compare(variants, watch=False, floor_ratio=0.003, seconds=0.3, timer=timer, **options)


def double(x: Values) -> Values:
    return x * 2


def wrong_from(size: int) -> Callable[[Values], Values]:
    return lambda x: x * (2.0 if len(x) < size else 2.1)


class TestGate:
    def test_results_are_compared_for_every_seed(self) -> None:
        """A variant that fails only for the third seed is caught."""
        seeds: list[int] = []

        def inputs(seed: int = 9) -> tuple[Values]:
            seeds.append(seed)
            return (np.full(4, float(seed + 1)),)

        variants: Variants = {"a": double, "b": lambda x: x * (2.1 if x[0] == 3.0 else 2.0)}
        assert checked(variants, inputs=inputs).decision is Decision.INCOMPARABLE
        assert seeds == [0, 1, 2]
        right = checked({"a": double, "b": double}, inputs=inputs)
        assert right.checked_sets_count == right.to_dict()["checked_sets_count"] == 3
        assert "results compared on 3 sets of inputs" in str(right)

    @pytest.mark.parametrize("as_function", [False, True])
    def test_results_are_compared_for_other_sizes(self, as_function: bool) -> None:
        sizes = [(np.arange(1.0, size),) for size in (8, 32, 100)]
        given: Any = (lambda: sizes) if as_function else sizes
        variants: Variants = {"a": double, "b": wrong_from(50)}
        timed = (np.arange(1.0, 5.0),)
        assert checked(variants, inputs=timed).decision is not Decision.INCOMPARABLE
        assert checked(variants, inputs=timed, check_inputs=given).decision is Decision.INCOMPARABLE
        assert checked({"a": double, "b": double}, inputs=timed, check_inputs=sizes).checked_sets_count == 4

    def test_factories_are_checked_on_other_sizes(self) -> None:
        def make_right(x: Values) -> Callable[[], Values]:
            return lambda: x * 2

        def make_wrong(x: Values) -> Callable[[], Values]:
            return lambda: wrong_from(50)(x)

        def make_own() -> Callable[[], Values]:
            return lambda: np.ones(3)

        sizes = [(np.arange(1.0, 100.0),)]
        variants: Variants = {"a": make_right, "b": make_wrong}
        assert checked(variants, inputs=(np.ones(3),), check_inputs=sizes).decision is Decision.INCOMPARABLE
        with pytest.raises(UsageError, match=r"check_inputs: expected inputs too, .* found none; give inputs"):
            checked({"a": make_own, "b": make_own}, check_inputs=sizes)

    def test_worst_match_of_all_sets_is_kept(self) -> None:
        sizes = [(np.full(size, 1.0),) for size in (3, 100, 5)]
        found = checked({"a": double, "b": wrong_from(50)}, inputs=(np.ones(2),), check_inputs=sizes)
        assert found.matches["b"].error_ratio == pytest.approx(0.1 / 4, rel=0.01)

    def test_in_place_variant_does_not_change_other_inputs(self) -> None:
        def grow(x: Values) -> Values:
            x += 1
            return x

        data = np.zeros(4)
        found = checked({"a": grow, "b": lambda x: x + 1}, inputs=(data,))
        assert found.matches["b"].holds

    def test_rtol_replaces_the_limit_of_the_data_type(self) -> None:
        variants: Variants = {"a": double, "b": lambda x: x * 2.1}
        data = (np.ones(4),)
        assert checked(variants, inputs=data, rtol=0.1).decision is not Decision.INCOMPARABLE
        assert checked(variants, inputs=data, tolerance_ratio=0.1).decision is not Decision.INCOMPARABLE
        assert checked(variants, inputs=data, rtol=0.001).decision is Decision.INCOMPARABLE
        with pytest.raises(UsageError, match="tolerance_ratio: expected only rtol"):
            checked(variants, inputs=data, rtol=0.1, tolerance_ratio=0.1)

    def test_check_inputs_are_tuples(self) -> None:
        with pytest.raises(UsageError, match="check_inputs: expected a list of tuples"):
            checked({"a": double, "b": double}, inputs=(np.ones(3),), check_inputs=[np.ones(3)])
