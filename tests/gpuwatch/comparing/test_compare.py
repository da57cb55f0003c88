"""Tests of compare() on a simulated power-limited GPU."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from annotate.compare.decision import Decision
from gpuwatch.comparing import Block, compare, floor_record
from gpuwatch.comparing.blocks import BlockLaunch, HostBlocks, Timed
from gpuwatch.comparing.compare_result import Compared
from gpuwatch.comparing.floor_record import Floor
from gpuwatch.comparing.schedule import Runner, calibrate, quad_blocks
from gpuwatch.config.settings import Settings, load
from gpuwatch.errors import UsageError
from tests.gpuwatch.cli.test_schemas import check
from tests.gpuwatch.comparing.simulated import COPY, GEMM, Kernel, SimulatedBlocks


def nothing() -> None: ...


class Mixed(SimulatedBlocks):
    """A simulated GPU on which some of b's blocks take twice as long."""

    def __init__(self, kernels: Mapping[str, Kernel], *, slow_ratio: float, seed: int) -> None:
        super().__init__(kernels, seed=seed)
        self._slow_ratio, self._luck = slow_ratio, random.Random(seed)

    def times(self, blocks: Iterable[Block]) -> Iterator[Timed]:
        for timed in super().times(blocks):
            is_slow = timed.block.variant == "b" and self._luck.random() < self._slow_ratio
            yield replace(timed, took_s=2 * timed.took_s) if is_slow else timed


def compared(b: Kernel, *, a: Kernel = GEMM, **settings: object) -> Compared:
    timer = SimulatedBlocks({"a": a, "b": b}, seed=5)
    return compare({"a": nothing, "b": nothing}, watch=False, floor_ratio=0.003, timer=timer, **settings)  # type: ignore[arg-type]


class TestAnswers:
    @pytest.mark.parametrize(
        ("change", "expected"), [(-0.005, Decision.FASTER), (0.005, Decision.SLOWER), (0.0, Decision.SAME)]
    )
    def test_half_a_percent_is_found_under_a_power_cap(self, change: float, expected: Decision) -> None:
        found = compared(replace(GEMM, took_s=GEMM.took_s * (1 + change)))
        assert found.decision is expected
        assert found["b"].pairs_count >= 300
        assert found["b"].ratio is not None
        assert found["b"].ratio.centre == pytest.approx(1 + change, abs=0.001)

    def test_own_steady_shows_gain_of_lower_power(self) -> None:
        """A variant with less power is faster at its own clock than at a shared clock."""
        lean = replace(GEMM, power_w=0.85 * GEMM.power_w)
        found = compared(lean, own_steady=True, own_s=1.0, seconds=2.0)["b"]
        assert found.decision is Decision.SAME
        assert found.own_ratio is not None
        assert found.own_ratio.high < 0.95
        assert "draws less power" in str(found)

    @pytest.mark.parametrize(("name", "starved"), [("host", False), ("events", True)])
    def test_host_times_are_not_explained_by_power(self, name: str, starved: bool) -> None:
        lean = replace(GEMM, power_w=0.85 * GEMM.power_w)
        timer = SimulatedBlocks({"a": GEMM, "b": lean}, starved=starved)
        timer.name = name
        found = compare({"a": nothing, "b": nothing}, watch=False, own_steady=True, own_s=0.5, seconds=0.5, timer=timer)["b"]
        assert found.own_ratio is not None
        assert found.own_ratio.high < 0.95
        assert "power" not in str(found)

    @pytest.mark.parametrize(("starved", "says"), [(False, " %: 2 µs of"), (True, "GPU's share at least")])
    def test_each_variant_has_its_gpu_share(self, starved: bool, says: str) -> None:
        """The text shows the GPU's share of both variants, and reports a GPU that waited for launches."""
        launch = BlockLaunch(issue_s=12e-6, overhead_s=2e-6, gap_s=1e-6)
        timer = SimulatedBlocks({"a": GEMM, "b": GEMM}, starved=starved, launch=launch)
        found = compare({"a": nothing, "b": nothing}, watch=False, seconds=0.5, timer=timer)
        assert str(found).count(says) == 2
        assert ("the GPU waited for launches" in str(found)) == starved
        data = found.to_dict()
        check(data, "urn:gpuwatch:comparison:1")
        share = data["comparisons"][0]["b_launch_share"]
        assert (share["issue_s"], share["gap_s"], share["starved_ratio"]) == (12e-6, 1e-6, float(starved))
        assert share["launches_count"] > 1000

    def test_compare_names_launches_beyond_the_tolerance(self) -> None:
        """The reasons name b, whose launches take a third of a call and delay a tenth of b's blocks."""

        class Waiting(SimulatedBlocks):
            def times(self, blocks: Iterable[Block]) -> Iterator[Timed]:
                for number, timed in enumerate(super().times(blocks)):
                    yield replace(timed, starved=timed.block.variant == "b" and number % 10 == 0)

        timer = Waiting({"a": GEMM, "b": GEMM}, launch=BlockLaunch(issue_s=70e-6))
        found = compare({"a": nothing, "b": nothing}, watch=False, seconds=0.5, timer=timer)["b"]
        assert [reason for reason in found.reasons if "launching makes up to" in reason and " of b:" in reason]
        assert not [reason for reason in found.reasons if " of a:" in reason]

    def test_overlapping_ratios_are_not_explained_by_power(self) -> None:
        """A ratio at own clocks whose interval overlaps that of the shared clock is not attributed to power."""
        found = compared(replace(GEMM, noise_ratio=0.2), own_steady=True, own_s=0.05, rounds_count=2, seconds=0.3)["b"]
        assert found.own_ratio is not None
        assert found.ratio is not None
        assert abs(found.own_ratio.centre / found.ratio.centre - 1) > 0.005
        assert "power" not in str(found)

    def test_compare_takes_each_variant_against_reference(self) -> None:
        kernels = {"a": GEMM, "b": replace(GEMM, took_s=0.97 * GEMM.took_s), "c": COPY}
        timer = SimulatedBlocks(kernels)
        found = compare(
            dict.fromkeys(kernels, nothing), reference="b", seconds=0.5, watch=False, floor_ratio=0.003, timer=timer
        )
        assert {each.b: each.decision for each in found.comparisons} == {"a": Decision.SLOWER, "c": Decision.SLOWER}
        assert all(each.a == "b" for each in found.comparisons)
        with pytest.raises(KeyError):
            found["b"]

    def test_compare_reports_a_gpu_that_waits_for_launches(self) -> None:
        timer = SimulatedBlocks({"a": GEMM, "b": GEMM}, starved=True)
        found = compare({"a": nothing, "b": nothing}, watch=False, floor_ratio=0.003, seconds=0.3, timer=timer)
        assert "waited for launches" in str(found)

    def test_compare_result_is_text_json_and_html(self) -> None:
        found = compared(replace(GEMM, took_s=1.1 * GEMM.took_s), seconds=0.5)
        assert str(found).startswith("SLOWER")
        assert found.to_dict()["comparisons"][0]["decision"] == "slower"
        assert found.to_dict()["verdict"] is None
        check(found.to_dict(), "urn:gpuwatch:comparison:1")
        assert found._repr_html_().startswith("<pre>SLOWER")

    @pytest.mark.parametrize("seed", range(4))
    def test_nearly_half_slow_blocks_are_inconclusive(self, seed: int) -> None:
        """If 42 % of b's blocks take twice as long, the mean is longer and the median almost equal: inconclusive."""
        timer = Mixed({"a": GEMM, "b": GEMM}, slow_ratio=0.42, seed=seed)
        found = compare({"a": nothing, "b": nothing}, watch=False, floor_ratio=0.003, timer=timer)
        assert found.decision is Decision.INCONCLUSIVE
        assert re.search(r"b is slower in (3[5-9]|4\d) % of its blocks", str(found))

    def test_tolerance_is_the_margin_of_same(self) -> None:
        other = replace(GEMM, took_s=1.004 * GEMM.took_s)
        for tolerance, expected in ((0.01, Decision.SAME), (0.004, Decision.INCONCLUSIVE)):
            timer = SimulatedBlocks({"a": GEMM, "b": other}, seed=5)
            found = compare({"a": nothing, "b": nothing}, watch=False, floor_ratio=0.008, tolerance=tolerance, timer=timer)
            assert found.decision is expected
            assert found["b"].margin_ratio == tolerance

    def test_many_variants_are_percentages_of_the_reference(self) -> None:
        """The ladder lists the fastest first, each with its percentage of the reference's speed."""
        kernels = {
            "blas": GEMM,
            "naive": replace(GEMM, took_s=4 * GEMM.took_s),
            "tuned": replace(GEMM, took_s=1.25 * GEMM.took_s),
        }
        found = compare(dict.fromkeys(kernels, nothing), watch=False, floor_ratio=0.003, timer=SimulatedBlocks(kernels))
        lines = str(found).splitlines()
        first = next(number for number, line in enumerate(lines) if "percentage of blas" in line)
        assert "Holm" in lines[first]
        shares = {name: float(share) for name, share, *_ in map(str.split, lines[first + 1 : first + 4])}
        assert list(shares) == ["blas", "tuned", "naive"]
        assert shares == pytest.approx({"blas": 100.0, "tuned": 80.0, "naive": 25.0}, rel=0.01)
        check(found.to_dict(), "urn:gpuwatch:comparison:1")


class TestResults:
    def test_differing_result_is_incomparable(self) -> None:
        """A faster variant with another result is incomparable; without the check it is faster."""
        data = np.arange(1.0, 9.0)
        variants: dict[str, Callable[..., object]] = {"a": lambda x: x * 2, "b": lambda x: x * 2.1}
        timer = SimulatedBlocks({"a": GEMM, "b": replace(GEMM, took_s=0.5 * GEMM.took_s)})
        found = compare(variants, inputs=(data,), watch=False, floor_ratio=0.003, seconds=0.3, timer=timer)
        assert found.decision is Decision.INCOMPARABLE
        assert "computes something else" in str(found)
        unchecked = compare(variants, inputs=(data,), check=False, watch=False, floor_ratio=0.003, seconds=0.3, timer=timer)
        assert unchecked.decision is Decision.FASTER

    def test_shared_output_buffer_does_not_hide_differences(self) -> None:
        """Variants that write to one buffer are still distinguished by their results."""
        out = np.empty(8)

        def filled(value: float) -> Callable[[], object]:
            def call() -> object:
                out.fill(value)
                return out

            return call

        timer = SimulatedBlocks({"a": GEMM, "b": GEMM})
        found = compare({"a": filled(1.0), "b": filled(2.0)}, watch=False, floor_ratio=0.003, seconds=0.3, timer=timer)
        assert found.decision is Decision.INCOMPARABLE

    def test_equal_or_missing_results_are_comparable(self) -> None:
        variants: dict[str, Callable[..., object]] = {"a": lambda: np.ones(3), "b": lambda: np.ones(3) * (1 + 1e-12)}
        timer = SimulatedBlocks({"a": GEMM, "b": GEMM})
        found = compare(variants, watch=False, floor_ratio=0.003, timer=timer)
        assert found.decision is Decision.SAME
        assert "not compared" in str(compared(GEMM))


class TestBuffers:
    def test_input_function_is_called_once_per_buffer_set(self) -> None:
        """A function that makes inputs is called once per buffer set, and all variants get the same sets."""
        made: list[object] = []
        seen: dict[str, set[int]] = {"a": set(), "b": set()}

        def inputs() -> tuple[object]:
            made.append(object())
            return (made[-1],)

        variants: dict[str, Callable[..., object]] = {
            "a": lambda x: seen["a"].add(id(x)),
            "b": lambda x: seen["b"].add(id(x)),
        }
        compare(
            variants, inputs=inputs, watch=False, floor_ratio=0.003, seconds=0.3, timer=SimulatedBlocks({"a": GEMM, "b": GEMM})
        )
        assert seen == {"a": {id(each) for each in made}, "b": {id(each) for each in made}}
        assert len(made) == 3

    def test_factory_makes_a_variant_per_buffer_set(self) -> None:
        runs: Counter[int] = Counter()

        def make_variant() -> Callable[[], object]:
            number = len(runs)
            runs[number] = 0

            def variant() -> None:
                runs[number] += 1

            return variant

        variants: dict[str, Callable[..., object]] = {"a": make_variant, "b": nothing}
        compare(variants, watch=False, floor_ratio=0.003, seconds=0.3, timer=SimulatedBlocks({"a": GEMM, "b": GEMM}))
        assert len(runs) == 3
        assert min(runs.values()) > 0


class TestDesign:
    def test_variants_alternate_in_random_balanced_quads(self) -> None:
        a, b = Runner("a", (nothing,)), Runner("b", (nothing,))
        order = "".join(block.variant for block in islice(quad_blocks(a, [b], random.Random(3)), 400))
        found = Counter(order[i : i + 4] for i in range(0, 400, 4))
        assert set(found) == {"abba", "baab"}
        assert 30 <= found["abba"] <= 70

    @pytest.mark.parametrize(("took_s", "calls"), [(1e-6, 3000), (200e-6, 15), (2.9e-3, 1), (0.1, 1)])
    def test_block_has_calls_for_three_milliseconds(self, took_s: float, calls: int) -> None:
        timer = SimulatedBlocks({"a": Kernel(took_s, 0.0, 500.0, 0.0)})
        assert calibrate(timer, Runner("a", (nothing,))).calls_count == pytest.approx(calls, rel=0.01)

    def test_compare_times_by_the_host_without_a_gpu(self) -> None:
        timed = list(HostBlocks().times([Block("a", lambda: sum(range(1000)), 50)]))
        assert 1e-6 < timed[0].took_s < 1e-2
        found = compare(
            {"a": lambda: sum(range(3000)), "b": lambda: sum(range(9000))},
            seconds=0.3,
            warm_s=0.0,
            watch=False,
            floor_ratio=0.01,
        )
        assert found.timer == "host"


class TestRefusals:
    @pytest.mark.parametrize(
        ("variants", "settings", "says"),
        [
            ({"a": nothing}, {}, "two functions"),
            ({"a": nothing, "b": 7}, {}, "expected a function"),
            ({"a": nothing, "b": nothing}, {"reference": "c"}, "expected one of a, b"),
            ({"a": nothing, "b": nothing}, {"seconds": 0.0}, "above 0"),
            ({"a": nothing, "b": nothing}, {"block_s": float("nan")}, "above 0"),
            ({"a": nothing, "b": nothing}, {"buffers_count": 0}, "at least 1"),
            ({"a": nothing, "b": lambda x: x}, {}, "inputs"),
        ],
    )
    def test_invalid_compare_argument_is_one_error(
        self, variants: dict[str, object], settings: dict[str, object], says: str
    ) -> None:
        with pytest.raises(UsageError, match=says):
            compare(variants, watch=False, **settings)  # type: ignore[arg-type]

    def test_factory_without_a_function_is_refused(self) -> None:
        def make_nothing() -> None: ...

        with pytest.raises(UsageError, match="return a function"):
            compare({"a": make_nothing, "b": nothing}, watch=False)

    def test_exception_of_a_variant_propagates(self) -> None:
        def broken() -> None:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            compare({"a": broken, "b": nothing}, watch=False)


class TestFloors:
    @pytest.fixture
    def settings(self, tmp_path: object) -> Settings:
        return load({"source": "simulated:steady-copy", "state": f"{tmp_path}/state"}, environment={"HOME": "/"})

    def test_floor_record_returns_largest_for_unknown_kind(self, settings: Settings) -> None:
        """A floor is stored by GPU, kind and sharing, and the largest counts for an unknown kind."""
        assert floor_record.read_ratio(settings.state, "GPU-1") is None
        for kind, ratio in (("gemm", 0.002), ("copy", 0.0005), ("gemm", 0.0012)):
            floor_record.store(
                settings.state, "GPU-1", Floor(kind=kind, floor_ratio=ratio, trials_count=8, measured_wall_s=1.0)
            )
        floor_record.store(settings.state, "GPU-2", Floor(kind="copy", floor_ratio=0.01, trials_count=8, measured_wall_s=1.0))
        assert floor_record.read_ratio(settings.state, "GPU-1") == 0.0012
        assert floor_record.read_ratio(settings.state, "GPU-1", "copy") == 0.0005
        assert floor_record.read_ratio(settings.state, "GPU-1", "attention") == 0.0012
        assert floor_record.read_ratio(settings.state, "GPU-1", shared=True) is None
        same = Floor(kind="copy", shared=True, floor_ratio=0.0001, trials_count=8, measured_wall_s=1.0)
        floor_record.store(settings.state, "GPU-1", same)
        assert floor_record.read_ratio(settings.state, "GPU-1", shared=True) == 0.0001
        assert floor_record.read_ratio(settings.state, "GPU-1", "copy") == 0.0005
        assert {uuid: len(kept) for uuid, kept in floor_record.read(settings.state).items()} == {"GPU-1": 3, "GPU-2": 1}

    @pytest.mark.parametrize(
        "content", [b"", b"{", b"[]", b'{"schema":2}', b'{"schema":1,"floors":{"G":{"gemm":{"floor_ratio":"x"}}}}', b"\xff"]
    )
    def test_damaged_floor_file_is_ignored_and_replaced(self, settings: Settings, content: bytes) -> None:
        settings.state.mkdir(parents=True)
        (settings.state / floor_record.FILE).write_bytes(content)
        assert floor_record.read_ratio(settings.state, "G") is None
        floor_record.store(settings.state, "G", Floor(kind="copy", floor_ratio=0.01, trials_count=8, measured_wall_s=1.0))
        assert floor_record.read_ratio(settings.state, "G") == 0.01


def test_missing_result_gives_null_error_ratio_in_json() -> None:
    found = compare({"a": lambda: 1.0, "b": nothing}, seconds=0.05, warm_s=0.0, watch=False, timer=HostBlocks())
    assert found.decision is Decision.INCOMPARABLE
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    check(data, "urn:gpuwatch:comparison:1")
    assert data["comparisons"][0]["error_ratio"] is None


def test_long_variant_names_have_a_window(copying: Settings) -> None:
    variants = {"x" * 150: lambda: 1.0, "y" * 150: lambda: 1.0}
    found = compare(variants, seconds=0.05, warm_s=0.0, timer=HostBlocks(), settings=copying)
    assert found.window is not None
    assert found.window.run_id is not None
    check(found.to_dict(), "urn:gpuwatch:comparison:1")
