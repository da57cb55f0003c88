"""Tests of the rules about changed settings, hardware errors, persistence and clock steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from annotate.claims import Claim
from annotate.evidence import Column, Event, Evidence, Gap, Host, Process, Timings
from annotate.rule import Clear, Found, Rule, Severity, Unobserved
from annotate.rules.identity import RULES, clock_source_step, hardware_error, persistence_off, setting_changed
from tests.annotate.builders import BEGIN_NS, DEVICE, OWN, QUIET, UUID, evidence
from tests.annotate.rules.asking import ask, found
from tests.truth_windows import truth_windows


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@pytest.mark.parametrize("claim", Claim)
def test_identity_of_an_unchanged_gpu_is_clear(rule: Rule, claim: Claim) -> None:
    assert isinstance(rule.ask(evidence(length_s=4.0), claim), Clear)


class TestSettingChanged:
    @pytest.mark.parametrize(
        ("signal", "before", "after", "says"),
        [
            ("power_limit_w", 700.0, 500.0, ("the power limit", "700 W", "500 W")),
            ("ecc_mode", False, True, ("ECC", "off", "on")),
            ("mig_mode", False, True, ("MIG", "off", "on")),
            ("sm_clock_lock_mhz", 1980, 1200, ("the requested SM clock", "1980 MHz", "1200 MHz")),
        ],
    )
    def test_setting_changed_inside_the_window_is_rejected(
        self, signal: str, before: Any, after: Any, says: tuple[str, ...]
    ) -> None:
        answer = found(ask(setting_changed, evidence(signals={signal: lambda t: before if t < 2.5 else after})))
        assert answer.severity is Severity.REJECT
        assert (answer.facts["setting"], answer.facts["before"], answer.facts["after"]) == says
        assert answer.facts["when"] == "2.0 s to 3.0 s into the window"
        assert answer.span_ns == (BEGIN_NS + 2_000_000_000, BEGIN_NS + 3_000_000_000)

    @pytest.mark.parametrize(("signal", "count"), [("power_limit_w", 3), ("sm_clock_lock_mhz", 3), ("ecc_mode", 4)])
    def test_changed_setting_has_bounds_of_unknown_size(self, signal: str, count: int) -> None:
        """A changed setting gives bounds of unknown size; a power limit or clock lock gives none for the median at one clock."""
        about = evidence(signals={signal: lambda t: QUIET.get(signal) or 700.0 if t < 0.5 else 600.0})
        bounds = found(ask(setting_changed, about)).bounds
        assert {each.ratio for each in bounds} == {None}
        assert len(bounds) == count

    @pytest.mark.parametrize(("signal", "after"), [("persistence_mode", False), ("compute_mode", 3)])
    def test_harmless_setting_change_is_noted(self, signal: str, after: Any) -> None:
        about = evidence(signals={signal: lambda t: QUIET[signal] if t < 2.5 else after})
        answer = found(ask(setting_changed, about))
        assert (answer.severity, answer.bounds) == (Severity.NOTE, ())

    def test_setting_change_that_may_have_come_before_is_flagged(self) -> None:
        about = evidence(signals={"power_limit_w": lambda t: 700.0 if t < -0.5 else 600.0})
        assert isinstance(ask(setting_changed, about), Clear)  # the reading at second 0 shows the new limit
        moved = replace(about, window=replace(about.window, begin_ns=BEGIN_NS - 200_000_000))
        assert found(ask(setting_changed, moved)).severity is Severity.FLAG

    def test_setting_change_that_may_have_come_after_is_flagged(self) -> None:
        about = evidence(length_s=6.0, signals={"power_limit_w": lambda t: 700.0 if t < 5.5 else 600.0})
        shorter = replace(about, window=replace(about.window, end_ns=BEGIN_NS + 5_200_000_000))
        assert found(ask(setting_changed, shorter)).severity is Severity.FLAG

    @pytest.mark.parametrize("late_s", [0.1, 0.9, 3.0])
    def test_setting_read_late_after_the_end_is_flagged(self, late_s: float) -> None:
        """A change that may have happened inside the window is flagged, even if the setting was read late."""
        about = evidence(length_s=3.0)
        at_ns = BEGIN_NS + np.array([0, 1_000_000_000, 2_000_000_000, 2_900_000_000, 3_000_000_000 + round(late_s * 1e9)])
        read = Column(at_ns, np.array([700.0, 700.0, 700.0, 700.0, 500.0]))
        columns = {**about.trace.columns, "power_limit_w": read}
        answer = found(ask(setting_changed, replace(about, trace=replace(about.trace, columns=columns))))
        assert (answer.severity, answer.facts["when"]) == (Severity.FLAG, "about when the window ended")

    def test_undone_setting_change_is_found(self) -> None:
        about = evidence(signals={"power_limit_w": lambda t: 500.0 if 2 <= t < 3 else 700.0})
        answer = found(ask(setting_changed, about))
        assert answer.severity is Severity.REJECT
        assert answer.facts["changes_count"] == 2

    def test_rounding_of_the_power_limit_is_not_a_change(self) -> None:
        about = evidence(signals={"power_limit_w": lambda t: 700.0 if t < 2 else 700.2})
        assert isinstance(ask(setting_changed, about), Clear)

    def test_setting_without_later_readings_has_not_changed(self) -> None:
        about = evidence(signals={"sm_clock_lock_mhz": lambda t: 1200 if t < 2 else None})
        assert isinstance(ask(setting_changed, about), Clear)

    @pytest.mark.parametrize(("limit_w", "kind"), [(700.0, Clear), (690.0, Clear), (670.0, Found)])
    def test_recorded_power_above_the_limit_shows_a_higher_one(self, limit_w: float, kind: type) -> None:
        """A recorded GEMM draws up to 693 W over a second, so a limit read as 670 W was higher in between."""
        about = truth_windows()["neighbour-late-gemm4k"].before
        read = about.trace.column("power_limit_w")
        columns = {**about.trace.columns, "power_limit_w": replace(read, values=np.full(len(read.values), limit_w))}
        lowered = replace(about, trace=replace(about.trace, columns=columns))
        answer = ask(setting_changed, lowered)
        assert isinstance(answer, kind)
        if isinstance(answer, Found):
            assert answer.severity is Severity.FLAG
            assert {each.ratio for each in answer.bounds} == {None}
            assert answer.facts["before"] == "670 W"
            unknown = replace(lowered.device or DEVICE, name="another GPU")  # its controller was not measured
            assert isinstance(ask(setting_changed, replace(lowered, device=unknown)), Clear)

    @pytest.mark.parametrize(("before_w", "kind"), [(700.0, Found), (600.0, Clear)])
    def test_second_above_the_limit_follows_one_at_the_limit(self, before_w: float, kind: type) -> None:
        """After less power the controller overshoots: a second at 730 of 700 W alone does not show a higher limit."""
        about = evidence(signals={"power_w": lambda t: 90.0 if t < -4.5 else 730.0 if 3.0 <= t < 4.2 else before_w})
        assert isinstance(ask(setting_changed, about), kind)

    def test_setting_changed_needs_the_power_limit(self) -> None:
        """Without the power limit the other settings do not clear the rule."""
        assert isinstance(ask(setting_changed, evidence(signals={"power_limit_w": None})), Unobserved)
        moved = evidence(signals={"power_limit_w": None, "ecc_mode": lambda t: t < 2.5})
        assert isinstance(ask(setting_changed, moved), Found)

    def test_settings_never_read_are_unobserved(self) -> None:
        names = ("power_limit_w", "persistence_mode", "ecc_mode", "mig_mode", "compute_mode")
        assert isinstance(ask(setting_changed, evidence(signals=dict.fromkeys(names))), Unobserved)


class TestHardwareError:
    @pytest.mark.parametrize(
        ("signal", "severity"),
        [
            ("ecc_uncorrected_count", Severity.REJECT),
            ("remap_pending_count", Severity.REJECT),
            ("remap_failed_count", Severity.REJECT),
            ("ecc_corrected_count", Severity.FLAG),
            ("remapped_rows_count", Severity.FLAG),
        ],
    )
    def test_error_in_the_window_is_found(self, signal: str, severity: Severity) -> None:
        assert found(ask(hardware_error, evidence(signals={signal: lambda t: int(t > 2)}))).severity is severity

    @pytest.mark.parametrize(
        "signal", ["ecc_uncorrected_count", "ecc_corrected_count", "remapped_rows_count", "pcie_replay_count"]
    )
    def test_errors_counted_before_the_window_are_clear(self, signal: str) -> None:
        assert isinstance(ask(hardware_error, evidence(signals={signal: 1_000})), Clear)

    def test_xid_is_rejected_and_named(self) -> None:
        events = [Event(uuid=UUID, at_ns=BEGIN_NS + 1, kind="xid", value=79)]
        answer = found(ask(hardware_error, evidence(events=events)))
        assert answer.severity is Severity.REJECT
        assert answer.facts["errors"] == "Xid 79"

    def test_xid_of_unknown_number_rejects(self) -> None:
        events = [Event(uuid=UUID, at_ns=BEGIN_NS + 1, kind="xid")]
        assert found(ask(hardware_error, evidence(events=events))).severity is Severity.REJECT

    def test_hardware_error_ignores_outside_events(self) -> None:
        """Events before the window and clock events are not errors."""
        events = [
            Event(uuid=UUID, at_ns=BEGIN_NS - 1, kind="xid", value=31),
            Event(uuid=UUID, at_ns=BEGIN_NS + 10**9, kind="clock", value=0),
        ]
        assert isinstance(ask(hardware_error, evidence(events=events)), Clear)

    def test_hardware_error_flags_only_a_stream_of_replays(self) -> None:
        """A single burst of replays is clear; a stream of replays is flagged."""
        assert isinstance(ask(hardware_error, evidence(signals={"pcie_replay_count": lambda t: 3 + int(t > 2) * 8})), Clear)
        stream = evidence(signals={"pcie_replay_count": lambda t: int(max(0, t) * 5)})
        assert found(ask(hardware_error, stream)).severity is Severity.FLAG

    def test_six_replays_per_minute_are_clear(self) -> None:
        slow = evidence(length_s=300.0, period_s=1.0, signals={"pcie_replay_count": lambda t: int(max(0, t) / 10)})
        assert isinstance(ask(hardware_error, slow), Clear)

    def test_reset_error_counter_is_unobserved(self) -> None:
        names = ("ecc_corrected_count", "ecc_uncorrected_count", "remapped_rows_count")
        about = evidence(signals=dict.fromkeys(names, lambda t: 5 if t < 2 else 0))
        assert isinstance(ask(hardware_error, about), Unobserved)

    @pytest.mark.parametrize(
        ("signal", "unseen"),
        [
            ("ecc_uncorrected_count", "uncorrectable memory errors"),
            ("ecc_corrected_count", "corrected memory errors"),
            ("remapped_rows_count", "remapped memory rows"),
            ("remap_pending_count", "whether a row remap waits for a reset"),
            ("remap_failed_count", "whether a row remap failed"),
            ("pcie_replay_count", "PCIe replays"),
        ],
    )
    def test_missing_error_counter_is_named_as_unobserved(self, signal: str, unseen: str) -> None:
        assert ask(hardware_error, evidence(signals={signal: None})) == Unobserved(f"not observed: {unseen}")

    def test_counted_error_is_found_despite_missing_counters(self) -> None:
        signals: dict[str, Any] = {"ecc_uncorrected_count": None, "pcie_replay_count": None, "remap_pending_count": 1}
        assert found(ask(hardware_error, evidence(signals=signals))).facts["errors"] == "a row remap waits for a reset"

    def test_missing_memory_counters_are_unobserved(self) -> None:
        names = ("ecc_corrected_count", "ecc_uncorrected_count", "remapped_rows_count")
        assert isinstance(ask(hardware_error, evidence(signals=dict.fromkeys(names))), Unobserved)


class TestPersistenceOff:
    BARE = replace(DEVICE, persistence_mode=False, virtualization="none")

    @pytest.mark.parametrize(
        ("virtualization", "processes", "says"),
        [
            ("none", (), "persistence mode off"),
            ("none", (OWN,), "persistence mode off, but the GPU was in use before the window began"),
            ("pass-through", (), "persistence mode off in this virtual machine"),
        ],
    )
    def test_persistence_off_is_a_label(self, virtualization: str, processes: tuple[Process, ...], says: str) -> None:
        device = replace(self.BARE, virtualization=virtualization)
        answer = found(ask(persistence_off, evidence(device=device, signals={"persistence_mode": False}, processes=processes)))
        assert answer.severity is Severity.NOTE
        assert persistence_off.says.format(**answer.facts) == says

    def test_unread_persistence_mode_is_unobserved(self) -> None:
        device = replace(DEVICE, persistence_mode=None)
        assert isinstance(ask(persistence_off, evidence(device=device, signals={"persistence_mode": None})), Unobserved)
        assert isinstance(ask(persistence_off, evidence(device=None, signals={"persistence_mode": None})), Unobserved)


class TestClockSourceStep:
    @staticmethod
    def stepped(stepped_s: float, **declared: str) -> Evidence:
        about = evidence(declared=declared)
        return replace(about, host=replace(about.host, wall_step_s=stepped_s))

    @pytest.mark.parametrize("stepped_s", [0.05, -0.05, 3600.0])
    def test_clock_step_flags_only_times_of_the_caller(self, stepped_s: float) -> None:
        """A step of the wall clock is noted, and flagged only if the caller took the times."""
        assert found(ask(clock_source_step, self.stepped(stepped_s))).severity is Severity.NOTE
        assert found(ask(clock_source_step, self.stepped(stepped_s, timer="events"))).severity is Severity.NOTE
        assert found(ask(clock_source_step, self.stepped(stepped_s, timer="caller"))).severity is Severity.FLAG

    def test_difference_of_microseconds_is_not_a_step(self) -> None:
        assert isinstance(ask(clock_source_step, self.stepped(50e-6)), Clear)

    @pytest.mark.parametrize(("off_s", "says"), [(-0.02, "before it began"), (10.0, "after it ended")])
    def test_times_outside_the_window_are_flagged(self, off_s: float, says: str) -> None:
        at_ns = BEGIN_NS + np.array([off_s * 1e9, 1e9]).astype(np.int64)
        answer = found(ask(clock_source_step, evidence(timings=Timings(at_ns, np.array([0.01, 0.01])))))
        assert answer.severity is Severity.FLAG
        assert says in str(answer.facts["disagreement"])

    def test_times_a_millisecond_outside_are_clear(self) -> None:
        at_ns = BEGIN_NS + np.array([-1_000_000, 6_001_000_000])
        assert isinstance(ask(clock_source_step, evidence(timings=Timings(at_ns, np.array([0.01, 0.01])))), Clear)

    @pytest.mark.parametrize(("each_s", "says"), [(6.0, "add up to 6000 s"), (6000.0, "an iteration of 6000 s")])
    def test_times_too_long_for_the_window_are_rejected(self, each_s: float, says: str) -> None:
        at_ns = BEGIN_NS + np.arange(1_000) * 6_000_000
        answer = found(ask(clock_source_step, evidence(timings=Timings(at_ns, np.full(1_000, each_s)))))
        assert answer.severity is Severity.REJECT
        assert says in str(answer.facts["disagreement"])

    def test_parallel_calls_may_add_up_to_more_than_the_window(self) -> None:
        at_ns = BEGIN_NS + np.arange(1_000) * 6_000_000
        assert isinstance(ask(clock_source_step, evidence(timings=Timings(at_ns, np.full(1_000, 0.1)))), Clear)

    @pytest.mark.parametrize("length_s", [2.0, 36_000.0])
    def test_suspension_inside_the_window_is_flagged(self, length_s: float) -> None:
        """A suspension flags windows of any length: the GPU's state may have changed."""
        answer = found(ask(clock_source_step, self.suspended(1.2, length_s)))
        assert answer.severity is Severity.FLAG
        assert answer.facts["disagreement"] == "the machine was suspended for 600.0 s inside the window"
        assert answer.span_ns == (BEGIN_NS + 900_000_000, BEGIN_NS + 1_200_000_000)

    @pytest.mark.parametrize(("looked_s", "is_inside"), [(-0.1, False), (0.0, False), (2.1, True), (2.4, False)])
    def test_suspension_possibly_inside_the_window_counts(self, looked_s: float, is_inside: bool) -> None:
        """A suspension counts if the interval between two checks of the daemon overlaps the window."""
        assert isinstance(ask(clock_source_step, self.suspended(looked_s, 2.0)), Found) is is_inside

    @staticmethod
    def suspended(looked_s: float, length_s: float) -> Evidence:
        """Return evidence with a suspension between two checks of the daemon, 0.3 s apart."""
        at_ns = BEGIN_NS + round(looked_s * 1e9)
        event = Event(uuid=UUID, at_ns=at_ns, kind="suspended", text="the machine was suspended for 600.0 s")
        gap = Gap(begin_ns=at_ns - 300_000_000, end_ns=at_ns)
        about = evidence(length_s=min(length_s, 6.0), events=[event], gaps=[gap])
        return replace(about, window=replace(about.window, end_ns=BEGIN_NS + round(length_s * 1e9)))

    def test_clock_step_without_times_and_host_is_unobserved(self) -> None:
        nothing = Timings(np.empty(0, np.int64), np.empty(0))
        assert isinstance(ask(clock_source_step, evidence(timings=nothing, host=Host())), Unobserved)
