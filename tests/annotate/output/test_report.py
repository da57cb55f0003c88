"""A verdict as text for a terminal and as Markdown for a pull request."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate.budget import Bound, Budget, Group, Number, NumberBudget
from annotate.evidence import Ownership, Process
from annotate.judge import judge
from annotate.output.report import markdown, plain, text, texts
from annotate.user_policy import Policy
from annotate.verdict import Answered, Finding, Status, Verdict
from tests.annotate.builders import DEVICE, OWN, evidence
from tests.annotate.derived.test_measured_numbers import STEADY
from tests.annotate.derived.test_time_levels import timed
from tests.examples import share_of


def hazard(rule: str = "power-limited", severity: str = "flag", **changes: Any) -> Finding:
    says, remedy = "capped for 2.0 of 2.1 s", "Quote the clock with the number."
    return replace(Finding(rule=rule, answered=Answered.FOUND, severity=severity, says=says, remedy=remedy), **changes)


def verdict(*findings: Finding, **changes: Any) -> Verdict:
    about = Verdict(
        status=Status.FLAGGED,
        findings=findings,
        claim="sustained",
        label="gemm-4096",
        device_uuid="GPU-1234abcd-0000",
        device_name="NVIDIA H200",
        begin_ns=0,
        end_ns=2_100_000_000,
    )
    return replace(about, **changes)


def unobserved(rule: str, why: str, basis: str = "timings") -> Finding:
    return Finding(rule=rule, answered=Answered.UNOBSERVED, says=why, basis=basis)


def as_valid(found: Verdict) -> Verdict:
    """Return a verdict as if no rule had found a hazard."""
    clear = tuple(each for each in found.findings if each not in found.hazards)
    return replace(found, status=Status.VALID, why="", findings=clear)


class TestText:
    def test_first_line_has_status_window_gpu_and_length(self) -> None:
        assert text(verdict()) == "FLAGGED  gemm-4096  NVIDIA H200  2.1 s"

    def test_str_of_a_verdict_is_its_text(self) -> None:
        assert str(verdict(hazard())) == text(verdict(hazard()))

    def test_hazards_have_one_line_each_with_aligned_names(self) -> None:
        lines = text(verdict(hazard(), hazard("regime-change-x"))).splitlines()
        assert lines[1] == "  power-limited     capped for 2.0 of 2.1 s: quote the clock with the number"
        assert lines[2].startswith("  regime-change-x   capped")

    def test_acronym_keeps_its_capitals_after_the_colon(self) -> None:
        assert "s: GPU clocks want a lock" in text(verdict(hazard(remedy="GPU clocks want a lock.")))

    def test_bound_joins_the_words_in_brackets(self) -> None:
        """The bound of a cause joins an estimate in brackets, or gets brackets if there is no estimate."""
        shown = Bound(number=Number.THROUGHPUT, rule="idle-stretch", group=Group.IDLE, ratio=0.018)
        numbers = (NumberBudget(number=Number.THROUGHPUT, bounds=(shown,)),)
        budget = Budget(tolerance_ratio=0.01, claimed=(Number.THROUGHPUT,), numbers=numbers)
        for says, due in (
            ("idled twice (-0.8 %)", "idled twice (-0.8 %, at most 1.8 %): "),
            ("idled", "idled (at most 1.8 %): "),
        ):
            assert due in text(verdict(hazard("idle-stretch", says=says), budget=budget))

    def test_effect_without_upper_bound_is_the_same_everywhere(self) -> None:
        """The first line, the line "shown" and the hazard's line state one estimate; without one the effect is unknown."""
        about = judge(
            evidence(length_s=4.0, processes=[OWN, replace(OWN, pid=7, ownership=Ownership.FOREIGN, utilization_ratio=0.4)])
        )
        shown = text(about)
        found = re.search(r"throughput ([\d.]+ %) off", shown)
        assert found
        assert f"(about {found[1]}, no upper bound)" in shown
        assert f"disturbances about {found[1]}, no upper bound" in shown
        assert "unknown" not in shown
        unknown = Bound(number=Number.THROUGHPUT, rule="idle-stretch", group=Group.IDLE, ratio=None)
        numbers = (NumberBudget(number=Number.THROUGHPUT, bounds=(unknown,)),)
        budget = Budget(tolerance_ratio=0.01, claimed=(Number.THROUGHPUT,), numbers=numbers)
        assert "(effect unknown)" in text(verdict(hazard("idle-stretch"), budget=budget))

    def test_notes_and_accepted_hazards_are_marked(self) -> None:
        shown = text(verdict(hazard(severity="note"), hazard("idle-stretch", accepted=True)))
        assert "power-limited   note: capped" in shown
        assert "idle-stretch    accepted: capped" in shown

    def test_flag_in_a_rejected_verdict_is_marked(self) -> None:
        shown = text(verdict(hazard(severity="reject"), hazard("idle-stretch"), status=Status.REJECTED))
        assert "power-limited   capped" in shown
        assert "idle-stretch    flag: capped" in shown

    def test_text_counts_unchecked_rules_by_reason(self) -> None:
        """Unchecked rules are counted with their most common reason."""
        blind = [unobserved("a", "no times"), unobserved("b", "no times"), unobserved("c", "no list")]
        assert text(verdict(*blind)).endswith("  not checked: 3 rules (2 of them: no times); `gpuwatch show -v` lists them")
        assert text(verdict(*blind[:1])).endswith("  not checked: 1 rule (no times); `gpuwatch show -v` lists them")

    def test_rules_without_user_evidence_are_not_counted(self) -> None:
        """Only rules that lack times or required evidence are counted; verbose lists the others too."""
        mixed = verdict(unobserved("a", "no times"), unobserved("b", "no counter", "telemetry"), unobserved("c", "one", "told"))
        assert "  not checked: 1 rule (no times); " in text(mixed)
        assert "  not checked: b: no counter\n  not checked: c: one" in text(mixed, verbose=True)
        assert "not checked" not in text(verdict(unobserved("b", "no counter", "telemetry")))

    def test_valid_verdict_has_three_lines(self) -> None:
        """Labels and claim share a line, and the third has bound, proofs, rules that need times, and reference."""
        lines = text(as_valid(judge(evidence()))).splitlines()
        assert len(lines) == 2
        assert lines[1] == "  shown: disturbances at most 0.0 % · against itself only · 12 rules need times"
        lines = text(as_valid(judge(evidence(declared={"whole_program": True})))).splitlines()
        assert len(lines) == 3
        assert "claim: sustained, a whole program" in lines[1]
        assert lines[2].startswith("  shown: ")
        assert lines[2].endswith("against itself only · no times")  # a program under `gpuwatch run` cannot give times
        assert text(verdict(status=Status.VALID)).count("\n") == 0

    def test_valid_verdict_with_times_fits_three_lines(self) -> None:
        """At 80 columns three lines hold number, interval, count, rate, the number at one clock, bound and reference."""
        found = replace(as_valid(judge(timed(STEADY, mhz=1450.0))), labels=("power-capped: 1450 MHz true, 692 W",))
        shown = text(found, width=80)
        assert len(shown.splitlines()) == 3
        assert all(len(line) <= 80 for line in shown.splitlines())
        words = " ".join(shown.split())
        assert re.search(r"median at 1450 MHz [\d.]+ µs ±[\d.]+ % \([^)]+\), n=\d+, [\d.]+/s", words)
        assert re.search(r"mean [\d.]+ µs ±", words)
        assert "power-capped: 1450 MHz true, 692 W" in words
        assert re.search(r"shown: disturbances at most [\d.]+ % · against itself only", words)
        assert "books balance · clock steady" in text(found, verbose=True)

    def test_reason_above_is_not_repeated(self) -> None:
        shown = text(verdict(unobserved("a", "no GPU"), unobserved("b", "no times"), status=Status.UNPROVEN, why="no GPU"))
        assert "  not checked: 2 rules (1 of them: for the reason above); " in shown
        alone = text(verdict(unobserved("a", "no GPU"), unobserved("b", "no GPU"), status=Status.UNPROVEN, why="no GPU"))
        assert "  not checked: 2 rules (for the reason above); " in alone

    def test_text_verbose_groups_rules_by_reason(self) -> None:
        shown = text(
            verdict(unobserved("a", "no times"), unobserved("c", "no list"), unobserved("b", "no times")), verbose=True
        )
        assert "  not checked: a, b: no times\n  not checked: c: no list" in shown

    def test_unproven_verdict_has_its_reason(self) -> None:
        shown = text(verdict(status=Status.UNPROVEN, why="no daemon is running"))
        assert shown.splitlines() == ["UNPROVEN  gemm-4096  NVIDIA H200  2.1 s", "  why: no daemon is running"]

    def test_flagged_and_unproven_verdict_has_its_reason(self) -> None:
        assert "  not proven: stale-daemon: unseen" in text(verdict(hazard(), why="stale-daemon: unseen"))

    def test_simulated_gpu_is_marked_in_the_first_line(self) -> None:
        shown = judge(evidence(device=replace(DEVICE, simulated=True)))
        assert "SIMULATED" in text(shown).splitlines()[0]
        assert "SIMULATED" in markdown(shown).splitlines()[0]
        assert "SIMULATED" not in text(judge(evidence()))

    def test_first_line_without_label_and_gpu(self) -> None:
        nowhere = verdict(label=None, device_name=None, device_uuid=None, status=Status.UNPROVEN)
        assert text(nowhere) == "UNPROVEN  no GPU  2.1 s"

    @pytest.mark.parametrize(
        ("length_ns", "shown"), [(35_000_000, "35 ms"), (1_000_000_000, "1.0 s"), (600 * 10**9, "10.0 min")]
    )
    def test_window_length_has_a_fitting_unit(self, length_ns: int, shown: str) -> None:
        assert text(verdict(end_ns=length_ns)).endswith(shown)

    def test_verbose_lists_every_rule_and_every_figure(self) -> None:
        about = judge(evidence(length_s=4.0, signals={"power_limit_w": 500.0}))
        shown = text(about, verbose=True)
        assert all(finding.rule in shown for finding in about.findings)
        assert re.search("figures of clock-controller-present: .*power limit 500 W", shown)
        assert (
            shown.count("claim: ")
            == text(judge(evidence(declared={"whole_program": True})), verbose=True).count("claim: ")
            == 1
        )

    def test_verbose_facts_have_no_punctuation_or_gaps(self) -> None:
        """Facts lose leading punctuation, empty facts have no line, and missing values read "not observed"."""
        facts = {
            "figures": ": 683 W",
            "share": "",
            "clock_mhz": None,
            "capped_ratio": 0.9992,
            "seen_s": 0.0192,
            "by_stamps": False,
        }
        facts |= {"held_bytes": 724_000_000, "others_count": 2, "said": "capped for"}
        shown = text(verdict(hazard(facts=facts)), verbose=True)
        assert (
            "figures of power-limited: figures: 683 W, clock not observed, capped 99.9 %, seen 19.2 ms, by stamps: no, "
            "held 724 MB, others count 2\n"
        ) in shown + "\n"

    def test_long_label_is_cut(self) -> None:
        assert len(text(verdict(label="x" * 10_000)).splitlines()[0]) < 200

    def test_texts_of_several_gpus_are_worst_first_with_uuids(self) -> None:
        other = verdict(device_uuid="GPU-5678efab-0000", status=Status.REJECTED)
        lines = texts([verdict(), other]).splitlines()
        assert lines[0] == "REJECTED  gemm-4096  NVIDIA H200 (GPU-5678…0000)  2.1 s"
        assert lines[1] == "FLAGGED  gemm-4096  NVIDIA H200 (GPU-1234…0000)  2.1 s"
        assert texts([verdict()]) == text(verdict())

    def test_gpus_with_similar_uuids_have_full_uuids(self) -> None:
        lines = texts([verdict(device_uuid="GPU-1234abcd-0001-0000"), verdict(device_uuid="GPU-1234abcd-0002-0000")])
        assert "(GPU-1234abcd-0001-0000)" in lines
        assert "(GPU-1234abcd-0002-0000)" in lines

    def test_terminal_lines_wrap_at_words_under_their_column(self) -> None:
        shown = text(verdict(hazard(says="capped " * 12), why="stale-daemon: " + "unseen " * 20), width=60).splitlines()
        assert all(len(line) <= 60 for line in shown)
        assert shown[1].startswith("  not proven: ")
        assert shown[2].startswith("    unseen")
        first = next(index for index, line in enumerate(shown) if line.startswith("  power-limited   capped"))
        assert shown[first + 1].startswith(" " * 18 + "capped")

    def test_text_names_the_command_for_unchecked_rules(self) -> None:
        assert text(verdict(unobserved("a", "no list")), more="`-v` lists them").endswith("(no list); `-v` lists them")

    def test_text_escapes_hostile_process_names(self) -> None:
        """A process name cannot steer the terminal or forge a line."""
        evil = Process(
            pid=7, name="x\n\x1b[2JVALID  gemm\r", user="\u202eroot", memory_bytes=10**10, utilization_ratio=0.5,
            ownership=Ownership.FOREIGN,
        )  # fmt: skip
        shown = text(judge(evidence(processes=[OWN, evil])), verbose=True)
        assert "\x1b" not in shown
        assert "\r" not in shown
        assert "\u202e" not in shown
        assert "x\\n\\x1b[2JVALID" in shown
        assert not any(line.startswith("VALID") for line in shown.splitlines())

    @given(st.text(), st.text(), st.text())
    @settings(max_examples=share_of(60))
    def test_user_text_adds_no_line_or_control_character(self, label: str, says: str, name: str) -> None:
        about = verdict(hazard(says=says, facts={name: name}), label=label, device_name=name)
        shown = text(about)
        assert shown.count("\n") == 1
        assert all(c == "\n" or unicodedata.category(c)[0] != "C" for c in text(about, verbose=True))


class TestMarkdown:
    def test_markdown_has_the_content_of_the_text(self) -> None:
        shown = markdown(verdict(hazard(), unobserved("stale-daemon", "no daemon"), why="no daemon"))
        assert shown.startswith("**FLAGGED** gemm\\-4096 on NVIDIA H200, 2.1 s\n")
        assert "| power\\-limited | flag | capped for 2.0 of 2.1 s | Quote the clock with the number. |" in shown
        assert "Not proven: no daemon" in shown
        assert "<summary>Not checked: 1 rule</summary>" in shown

    def test_accepted_hazard_is_marked_in_markdown(self) -> None:
        shared = evidence(length_s=4.0, processes=[OWN, replace(OWN, pid=7, ownership=Ownership.FOREIGN)])
        accepted = judge(shared, Policy(accept=frozenset({"contention-process"})))
        assert "| reject, accepted |" in markdown(accepted)

    @pytest.mark.parametrize(
        ("label", "shown"),
        [
            ("a|b", "a\\|b"),
            ("<img src=x>", "&lt;img src=x&gt;"),
            ("**VALID**", "\\*\\*VALID\\*\\*"),
            ("@octocat", "@\u200boctocat"),
            ("#12", "\\#\u200b12"),
            ("[x](y)", "\\[x\\]\\(y\\)"),
            ("see https://example.org", "see https:\u200b//example.org"),
            ("a\n# b", "a\\\\n\\# b"),
            ("`x`", "\\`x\\`"),
            ("&lt;b&gt;", "&amp;lt;b&amp;gt;"),
        ],
    )
    def test_markdown_renders_user_text_literally(self, label: str, shown: str) -> None:
        assert markdown(verdict(label=label)).startswith(f"**FLAGGED** {shown} on ")

    @given(st.text(), st.text())
    @settings(max_examples=share_of(60))
    def test_user_text_adds_no_tag_cell_or_line_to_markdown(self, label: str, says: str) -> None:
        plain_lines = markdown(verdict(hazard())).count("\n")
        shown = markdown(verdict(hazard(says=says), label=label or "x"))
        assert shown.count("\n") == plain_lines
        assert "<" not in shown
        row = next(line for line in shown.splitlines() if line.startswith("| power"))
        assert row.replace("\\\\", "").replace("\\|", "").count("|") == 5


@given(st.text())
def test_plain_is_idempotent(words: str) -> None:
    """Escaping twice equals escaping once, and text that stays the same has no control characters."""
    once = plain(words)
    assert plain(once) == once
    assert words != once or all(unicodedata.category(c)[0] != "C" for c in words)
