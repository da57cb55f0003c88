"""Tests of the rules about partitions, other own work, displays, sockets and links, and overlapping windows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate.budget import Group, Number
from annotate.claims import Claim
from annotate.evidence import Host, OtherWindow, Ownership, Trace, Visibility
from annotate.judge import judge
from annotate.rule import Answer, Clear, Found, Rule, Severity, Unobserved
from annotate.rules.contention import contention_residual
from annotate.rules.sharing import (
    RULES,
    contention_self,
    contention_shared_partition,
    display_active,
    numa_pcie_affinity,
    overlapping_window,
)
from tests.annotate.builders import BEGIN_NS, DEVICE, OWN, evidence
from tests.annotate.occurrences.sharing import XORG
from tests.annotate.proofs.company_builders import times
from tests.annotate.rules.asking import ask, found
from tests.examples import share_of

HOST = evidence().host
LATE = (Number.THROUGHPUT, Group.INSIDE)


def sizes(answer: Answer) -> dict[tuple[Number, Group], float | None]:
    assert found(answer).severity is Severity.NOTE
    return {(bound.number, bound.group): bound.ratio for bound in found(answer).bounds}


def unobserved(answer: Answer) -> str:
    assert isinstance(answer, Unobserved), answer
    return answer.reason


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@pytest.mark.parametrize("claim", Claim)
def test_unshared_gpu_on_the_near_socket_is_clear(rule: Rule, claim: Claim) -> None:
    assert isinstance(ask(rule, evidence(declared={"busy_ratio": 0.96}), claim), Clear)


@pytest.mark.parametrize("rule", [contention_shared_partition, numa_pcie_affinity], ids=lambda rule: rule.name)
def test_sharing_without_a_witness_returns_the_absence(rule: Rule) -> None:
    nobody = replace(evidence(), trace=Trace(), device=None, absence="no daemon is running")
    assert unobserved(ask(rule, nobody)) == "no daemon is running"


class TestContentionSharedPartition:
    def test_sharing_names_are_sorted(self) -> None:
        """The names of sharing are sorted, so the fact does not depend on Python's hash seed."""
        about = evidence(host=Host(sharing="gpushare,MPS,HAMi"), device=replace(DEVICE, mig_mode=True))
        answer = found(ask(contention_shared_partition, about))
        assert answer.facts["by"] == "HAMi,MIG,MPS,gpushare,pass-through"

    @pytest.mark.parametrize("changes", [{"mig_mode": True}, {"parent_uuid": "GPU-board"}])
    def test_mig_shares_power_and_heat(self, changes: dict[str, object]) -> None:
        about = evidence(device=replace(DEVICE, **changes))  # type: ignore[arg-type]  # names and values of the record's fields
        answer = found(ask(contention_shared_partition, about))
        assert answer.severity is Severity.FLAG
        assert "MIG" in str(answer.facts["shared"])

    def test_mig_seen_in_readings_alone_counts(self) -> None:
        about = evidence(signals={"mig_mode": True}, device=replace(DEVICE, mig_mode=None))
        assert isinstance(ask(contention_shared_partition, about), Found)

    @pytest.mark.parametrize(
        ("mode", "severity"), [("vgpu", Severity.REJECT), ("host-vgpu", Severity.FLAG), ("host-vsga", Severity.FLAG)]
    )
    def test_virtualization_mode_sets_the_severity(self, mode: str, severity: Severity) -> None:
        about = evidence(device=replace(DEVICE, virtualization=mode))
        assert found(ask(contention_shared_partition, about)).severity is severity

    @pytest.mark.parametrize("mode", ["none", "pass-through"])
    def test_passed_through_card_belongs_to_one_machine(self, mode: str) -> None:
        assert isinstance(ask(contention_shared_partition, evidence(device=replace(DEVICE, virtualization=mode))), Clear)

    @pytest.mark.parametrize(
        ("sharing", "severity"), [("MPS", Severity.FLAG), ("gpushare", Severity.FLAG), ("HAMi,gpushare", Severity.REJECT)]
    )
    def test_sharing_seen_by_the_host_is_found(self, sharing: str, severity: Severity) -> None:
        assert found(ask(contention_shared_partition, evidence(host=replace(HOST, sharing=sharing)))).severity is severity

    def test_mps_on_the_process_list_is_found(self) -> None:
        server = replace(XORG, name="nvidia-cuda-mps-server", graphics=False)
        about = evidence(processes=[OWN, server], host=replace(HOST, sharing=None))
        assert "MPS" in str(found(ask(contention_shared_partition, about)).facts["by"])

    def test_unobserved_sharing_is_not_cleared(self) -> None:
        assert "MPS" in unobserved(ask(contention_shared_partition, evidence(host=replace(HOST, sharing=None))))
        about = evidence(device=replace(DEVICE, virtualization=None))
        assert "virtual" in unobserved(ask(contention_shared_partition, about))


class TestContentionSelf:
    def test_contention_self_by_uncounted_work(self) -> None:
        """Busy time beyond the declared share is own work of the process, if it was alone on the GPU."""
        answer = ask(contention_self, evidence(declared={"busy_ratio": 0.6}))
        assert found(answer).facts["beyond_ratio"] == pytest.approx(0.37)
        assert sizes(answer) == {LATE: None}  # without times the size is unknown

    @pytest.mark.parametrize(("busy", "is_found"), [(0.4, False), (0.48, True)])
    def test_utilisation_of_the_warm_up_does_not_count(self, busy: float, is_found: bool) -> None:
        """The first two refreshes of a window of 2 s may show the warm-up at 100 %, which does not count."""
        signals = {"utilization_ratio": lambda t: 1.0 if t < 0.4 else busy}
        about = evidence(length_s=2.0, signals=signals, declared={"busy_ratio": 0.4})
        assert isinstance(ask(contention_self, about), Found if is_found else Clear)

    @pytest.mark.parametrize("declared", [{"stamp_seen_ratio": 0.8}, {"stamp_spread_s": 0.4e-6}])
    @pytest.mark.parametrize("visibility", [Visibility.HOST, Visibility.NAMESPACE])
    def test_stamps_on_busy_sms_show_other_streams(self, declared: dict[str, float], visibility: Visibility) -> None:
        assert sizes(ask(contention_self, evidence(declared=declared, visibility=visibility))) == {LATE: None}

    def test_late_iterations_bound_other_streams(self) -> None:
        """Late iterations that add about 6 % bound the mean; with even times, stamps give bounds of unknown size."""
        met = {"stamp_spread_s": 2e-6}
        late = sizes(ask(contention_self, evidence(declared=met, timings=times(late_every=200))))
        assert 0.05 < (late[Number.MEAN, Group.INSIDE] or 0.0) < 0.08
        assert 0.05 < (late[LATE] or 0.0) < 0.08
        even = sizes(ask(contention_self, evidence(declared=met, timings=times())))
        assert len(even) == 4
        assert set(even.values()) == {None}

    def test_stamps_after_a_single_kernel_are_clear(self) -> None:
        quiet = {"stamp_seen_ratio": 1.0, "stamp_spread_s": 0.096e-6}  # as on an H200
        assert isinstance(ask(contention_self, evidence(declared=quiet)), Clear)

    @pytest.mark.parametrize("visibility", [Visibility.NAMESPACE, Visibility.UNKNOWN])
    def test_contention_self_leaves_hidden_neighbours(self, visibility: Visibility) -> None:
        """If other processes may be hidden, only ``contention-residual`` reports the busy time."""
        about = evidence(declared={"busy_ratio": 0.6}, visibility=visibility, processes=[replace(OWN, utilization_ratio=None)])
        assert isinstance(ask(contention_self, about), Unobserved)
        assert isinstance(ask(contention_residual, about), Found)

    @given(st.floats(0.0, 1.2), st.sampled_from(Visibility), st.booleans())
    @settings(max_examples=share_of(40))
    def test_own_work_and_hidden_neighbour_exclude_each_other(
        self, declared: float, visibility: Visibility, beside: bool
    ) -> None:
        stranger = replace(OWN, pid=77, ownership=Ownership.FOREIGN)
        processes = [OWN, stranger] if beside else [OWN]
        about = evidence(length_s=2.0, declared={"busy_ratio": declared}, visibility=visibility, processes=processes)
        both = [isinstance(ask(rule, about), Found) for rule in (contention_self, contention_residual)]
        assert not all(both)

    def test_gaps_between_iterations_are_not_own_other_work(self) -> None:
        from tests.annotate.occurrences.clock_control import stamped

        every = stamped(1980.0)
        about = evidence(timings=replace(every, took_s=every.took_s / 3))
        assert isinstance(ask(contention_self, about), Unobserved)
        assert "contention-self" not in {hazard.rule for hazard in judge(about).hazards}

    def test_contention_self_needs_a_second(self) -> None:
        assert isinstance(ask(contention_self, evidence(length_s=0.8, declared={"busy_ratio": 0.1})), Unobserved)

    @pytest.mark.parametrize("nonsense", ["0.5", True, float("nan"), float("inf"), 10**400])
    def test_nonsense_is_never_found_as_sharing(self, nonsense: object) -> None:
        about = replace(evidence(), declared={"busy_ratio": nonsense})  # type: ignore[dict-item]  # what a client may send
        assert isinstance(ask(contention_self, about), Unobserved)


class TestDisplayActive:
    def test_display_server_without_work_is_a_label(self) -> None:
        answer = found(ask(display_active, evidence(processes=[OWN, XORG])))
        assert (answer.severity, answer.bounds) == (Severity.NOTE, ())
        assert display_active.says.format(**answer.facts) == "process 5 (Xorg) could draw on this GPU, and did not"

    @pytest.mark.parametrize("utilization_ratio", [None, 0.04, 0.5])
    def test_drawing_display_server_is_a_neighbour(self, utilization_ratio: float | None) -> None:
        """A drawing server has a bound of unknown size without times; at half of the GPU, throughput lost at least a sixth."""
        own = OWN if utilization_ratio is not None else replace(OWN, utilization_ratio=None)
        answer = ask(display_active, evidence(processes=[own, replace(XORG, utilization_ratio=utilization_ratio)]))
        assert sizes(answer) == {LATE: None}
        (only,) = found(answer).bounds
        assert (only.estimate.nearer_ratio if only.estimate else 0.0) == pytest.approx((utilization_ratio or 0.0) / 3, abs=0.02)

    def test_late_iterations_give_the_size_of_a_display(self) -> None:
        drawing = evidence(processes=[OWN, replace(XORG, utilization_ratio=0.04)], timings=times(late_every=200))
        assert 0.05 < (sizes(ask(display_active, drawing))[LATE] or 0.0) < 0.08

    def test_measured_process_may_draw(self) -> None:
        assert isinstance(ask(display_active, evidence(processes=[replace(OWN, graphics=True)])), Clear)

    def test_computing_neighbour_is_not_a_display(self) -> None:
        assert isinstance(ask(display_active, evidence(processes=[OWN, replace(XORG, graphics=False)])), Clear)

    def test_display_clock_bound_is_unknown_without_times(self) -> None:
        assert sizes(ask(display_active, evidence(signals={"event_reasons_mask": 0x100}))) == {LATE: None}

    def test_partial_list_can_find_but_not_clear_a_display(self) -> None:
        assert isinstance(ask(display_active, evidence(visibility=Visibility.NAMESPACE)), Unobserved)
        about = evidence(visibility=Visibility.NAMESPACE, processes=[OWN, replace(XORG, utilization_ratio=0.5)])
        assert isinstance(ask(display_active, about), Found)

    def test_display_with_an_unread_list_is_unobserved(self) -> None:
        assert isinstance(ask(display_active, evidence(processes=None)), Unobserved)

    def test_list_with_a_long_gap_cannot_clear_displays(self) -> None:
        about = evidence(length_s=4.0)
        late = tuple(
            process_list
            for process_list in about.trace.process_lists
            if not 0 < (process_list.at_ns - about.window.begin_ns) / 1e9 < 3
        )
        assert "not read" in unobserved(ask(display_active, replace(about, trace=replace(about.trace, process_lists=late))))


class TestNumaPcieAffinity:
    def test_benchmark_bound_to_the_far_socket_is_a_label(self) -> None:
        answer = found(ask(numa_pcie_affinity, evidence(host=replace(HOST, numa_nodes="1"))))
        assert (answer.severity, answer.bounds) == (Severity.NOTE, ())
        assert answer.facts["far"] == "the GPU is on memory node 0, the benchmark on 1"

    def test_process_on_both_sockets_is_clear(self) -> None:
        assert isinstance(ask(numa_pcie_affinity, evidence(host=replace(HOST, numa_nodes="0,1"))), Clear)

    @pytest.mark.parametrize("link", [{"pcie_width_count": 8}, {"pcie_generation_count": 3}])
    def test_link_below_the_slots_limit_is_a_label(self, link: dict[str, int]) -> None:
        assert found(ask(numa_pcie_affinity, evidence(signals=link))).bounds == ()

    def test_changed_link_is_bounded_by_its_best_state(self) -> None:
        """A link half as wide at two of its seven readings has a bound of 29 %, the readings' mean extra time per copy."""
        about = evidence(signals={"pcie_width_count": lambda t: 8 if t > 4.5 else 16})
        shares = sizes(ask(numa_pcie_affinity, about))
        assert shares.keys() == {(number, Group.LINK) for number in (Number.THROUGHPUT, Number.MEAN, Number.MEDIAN)}
        assert shares[Number.MEAN, Group.LINK] == pytest.approx(2 / 7, abs=0.05)

    def test_slow_link_of_an_idle_gpu_is_clear(self) -> None:
        def width(t: float) -> int:
            return 16 if 2 < t < 4 else 1

        about = evidence(signals={"pcie_width_count": width, "utilization_ratio": lambda t: 0.9 if 2 < t < 4.3 else 0.0})
        assert isinstance(ask(numa_pcie_affinity, about), Clear)

    def test_link_of_an_idle_gpu_is_unobserved(self) -> None:
        about = evidence(signals={"pcie_width_count": 1, "event_reasons_mask": 0x1})
        assert "PCIe" in unobserved(ask(numa_pcie_affinity, about))

    def test_numa_hidden_node_is_unobserved(self) -> None:
        """A hidden memory node is unobserved, unless the link is slow."""
        hidden = replace(DEVICE, numa_node_count=None)
        assert "memory nodes" in unobserved(ask(numa_pcie_affinity, evidence(device=hidden)))
        assert isinstance(ask(numa_pcie_affinity, evidence(device=hidden, signals={"pcie_width_count": 8})), Found)

    def test_unobserved_host_does_not_clear_affinity(self) -> None:
        assert isinstance(ask(numa_pcie_affinity, evidence(host=Host(span_s=6.0))), Unobserved)


class TestOverlappingWindow:
    def test_overlapping_window_is_bounded_like_a_neighbour(self) -> None:
        other = OtherWindow(BEGIN_NS + 10**9, BEGIN_NS + 9 * 10**9, pid=77, label="theirs")
        assert isinstance(ask(overlapping_window, evidence()), Clear)
        seen = replace(evidence(), overlapping=(other,))
        assert sizes(ask(overlapping_window, seen)) == {LATE: None}
        late = ask(overlapping_window, replace(seen, timings=times(late_every=200)))
        assert 0.05 < (sizes(late)[LATE] or 0.0) < 0.08
        assert found(late).span_ns == (other.begin_ns, other.end_ns)
