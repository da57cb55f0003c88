"""Tests of a report's signature, which holds for the daemon's verdict and for no changed copy."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from annotate.capsule import pack
from annotate.verdict import Status
from gpuwatch.client.window import window
from gpuwatch.config.settings import Settings
from gpuwatch.report import html_page, read_page, record, signatures
from gpuwatch.report.record import ReportedWindow
from gpuwatch.report.redaction import redacted
from gpuwatch.report.signatures import Worth, check_signature
from gpuwatch.signing import Signature, Signer, fingerprint, pem, signer_of
from tests.gpuwatch.cli.conftest import Gpuwatch, daemon, gpuwatch, home
from tests.gpuwatch.cli.test_schemas import check
from tests.gpuwatch.report.conftest import NONCE, Page, judged, rendered, scene
from tests.waiting import sample_for

__all__ = ["daemon", "gpuwatch", "home"]


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Signer:
    made = signer_of(tmp_path_factory.mktemp("state"))
    assert made is not None
    return made


@pytest.fixture(scope="module")
def genuine(signer: Signer) -> ReportedWindow:
    evidence = scene("from-idle")
    kept = judged(evidence, run_id="0a", user="ann", process="python", packed=pack.pack([evidence]))
    return replace(kept, signature=signer.sign(signatures.signed_statement(kept)))


def read_back(folder: Path, html: str) -> ReportedWindow:
    (folder / "report.html").write_text(html)
    return read_page.load(folder / "report.html").record.windows[0]


def test_page_keeps_signature_and_evidence_byte_for_byte(tmp_path: Path, genuine: ReportedWindow, signer: Signer) -> None:
    html = rendered(genuine)
    again = read_back(tmp_path, html)
    assert (again.packed, again.signature) == (genuine.packed, genuine.signature)
    assert check_signature(again, {}).worth is Worth.UNKNOWN
    assert str(check_signature(again, {})) == f"signed by {fingerprint(signer.public_key)} (unknown signer)"
    assert str(check_signature(again, {signer.public_key: "lab7"})).startswith("signed by lab7 (trusted), SHA256:")
    assert fingerprint(signer.public_key) in Page(html).words


def other_evidence(genuine: ReportedWindow) -> ReportedWindow:
    evidence = scene("neighbour")
    return replace(genuine, evidence=evidence, packed=pack.pack([evidence]))


CHANGES: dict[str, Callable[[ReportedWindow], ReportedWindow]] = {
    "status": lambda each: replace(each, verdict=replace(each.verdict, status=Status.VALID)),
    "label": lambda each: replace(each, verdict=replace(each.verdict, label="another")),
    "claim": lambda each: replace(each, verdict=replace(each.verdict, claim="burst")),
    "policy": lambda each: replace(each, verdict=replace(each.verdict, policy={"accept": ["regime-change"]})),
    "GPU": lambda each: replace(each, verdict=replace(each.verdict, device_uuid="GPU-2")),
    "start": lambda each: replace(each, verdict=replace(each.verdict, begin_ns=1)),
    "judge": lambda each: replace(each, verdict=replace(each.verdict, judge_version="9")),
    "simulated": lambda each: replace(each, verdict=replace(each.verdict, simulated=False)),
    "run": lambda each: replace(each, run_id="0b"),
    "user": lambda each: replace(each, user="bob"),
    "process": lambda each: replace(each, process=None),
    "evidence": other_evidence,
    "packing": lambda each: replace(each, packed=None),  # the same evidence in other bytes was not signed
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_any_change_breaks_the_signature(genuine: ReportedWindow, change: Callable[[ReportedWindow], ReportedWindow]) -> None:
    assert check_signature(genuine, {}).worth is Worth.UNKNOWN
    assert check_signature(change(genuine), {}).worth is Worth.BROKEN


def test_redaction_removes_signature_with_a_reason(tmp_path: Path, gpuwatch: Gpuwatch, genuine: ReportedWindow) -> None:
    """Redacting removes the signature, and page and verify give the reason."""
    without = redacted([genuine], ("user",))
    assert (without[0].signature, without[0].packed) == (None, None)
    html = html_page.render(record.make_record(without, ("user",)), NONCE)
    assert "Not signed: names were redacted, and a signature covers only the original." in Page(html).words
    (tmp_path / "report.html").write_text(html)
    ended = gpuwatch("verify", str(tmp_path / "report.html"))
    assert ended.code == 0
    assert "redacted: user: a signature covers the original, which is not in this file" in ended.out
    assert "signature: unsigned" in ended.out


def test_report_of_first_schema_is_read_as_unsigned(tmp_path: Path) -> None:
    windows = (judged(scene("from-idle"), run_id="0a"), judged(scene("neighbour"), run_id="0b"))
    kept = [each.evidence for each in windows if each.evidence is not None]
    data, _ = record.to_data(record.Record(windows=windows, maker="older"))
    for each in data["windows"]:
        del each["signature"]
    evidence = base64.b64encode(pack.pack(kept, decimate=False)).decode()
    held = record.from_data({**data, "schema": 1}, evidence)
    assert [each.verdict for each in held.windows] == [each.verdict for each in windows]
    assert [check_signature(each, {}).worth for each in held.windows] == [Worth.UNSIGNED] * 2


def test_damaged_signature_is_not_unsigned(tmp_path: Path, gpuwatch: Gpuwatch, genuine: ReportedWindow) -> None:
    html = rendered(genuine)
    assert genuine.signature is not None
    there = base64.b64encode(genuine.signature.packed).decode()
    (tmp_path / "report.html").write_text(html.replace(there, there[:40]))
    ended = gpuwatch("verify", str(tmp_path / "report.html"))
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    forged = Signature(genuine.signature.public_key, bytes(64))
    (tmp_path / "report.html").write_text(rendered(replace(genuine, signature=forged)))
    ended = gpuwatch("verify", str(tmp_path / "report.html"))
    assert ended.code == 1
    assert "signature: BROKEN: SHA256:" in ended.out
    check(gpuwatch("verify", str(tmp_path / "report.html"), "--json").data, "urn:gpuwatch:cli:1#/$defs/verify")


@pytest.fixture(scope="module")
def report(daemon: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the report of a window judged and signed by a real daemon."""
    from gpuwatch.cli import main

    with window("signed", sync=False, settings=daemon) as watched:
        sample_for(0.2)
    assert watched.verdicts
    target = tmp_path_factory.mktemp("report") / "run.html"
    assert main([*daemon.flags(), "report", str(watched.run_id), "-o", str(target)]) == 0
    return target


def test_daemon_key_is_unknown_until_trusted(gpuwatch: Gpuwatch, daemon: Settings, report: Path, home: Path) -> None:
    """A daemon's report has an unknown signer until the user trusts the daemon's key."""
    ended = gpuwatch("verify", str(report))
    assert ended.code == 0
    assert "signature: signed by SHA256:" in ended.out
    assert "(unknown signer)" in ended.out
    shown = gpuwatch(*daemon.flags(), "verify", "--key")
    assert (shown.code, shown.out.splitlines()[0]) == (0, "-----BEGIN PUBLIC KEY-----")
    assert shown.err.startswith("SHA256:")
    key = gpuwatch(*daemon.flags(), "verify", "--key", "--json").data
    check(key, "urn:gpuwatch:cli:1#/$defs/key")
    assert key["fingerprint"] in ended.out
    (home / "lab7.pub").write_text(shown.out)
    trusting = gpuwatch("verify", str(report), "--trust", str(home / "lab7.pub"))
    assert trusting.code == 0
    assert "signature: signed by lab7 (trusted), SHA256:" in trusting.out
    folder = home / ".config" / "gpuwatch" / "trusted"
    folder.mkdir(parents=True)
    (folder / "cluster.pub").write_text(shown.out)
    (folder / "broken.pub").write_text("nothing")
    known = gpuwatch("verify", str(report), "--json")
    check(known.data, "urn:gpuwatch:cli:1#/$defs/verify")
    assert (known.data["signature"], known.data["windows"][0]["signature"]["name"]) == ("trusted", "cluster")
    assert "not trusted: " in known.err


def test_report_must_be_signed_by_the_trusted_key(gpuwatch: Gpuwatch, report: Path, home: Path, signer: Signer) -> None:
    (home / "other.pub").write_bytes(pem(signer.public_key))
    ended = gpuwatch("verify", str(report), "--trust", str(home / "other.pub"))
    assert ended.code == 1
    assert "NOT SIGNED by other.pub" in ended.out
    (home / "plain.html").write_text(rendered(judged(scene("from-idle"))))
    assert gpuwatch("verify", str(home / "plain.html"), "--trust", str(home / "other.pub")).code == 1
    assert gpuwatch("verify", str(home / "plain.html")).code == 0


def test_verify_names_version_of_another_judge(gpuwatch: Gpuwatch, home: Path) -> None:
    """``verify`` names the version of an earlier judge, and compares the unsigned status."""
    window = judged(scene("from-idle"))
    older = replace(window, verdict=replace(window.verdict, status=Status.VALID, findings=(), judge_version="0.0.9"))
    (home / "older.html").write_text(rendered(older))
    ended = gpuwatch("verify", str(home / "older.html"))
    assert ended.code == 1
    assert "judged by an earlier version (0.0): not compared: wording, severities" in ended.out
    assert "status: the report shows 'valid', the evidence" in ended.out


def test_verify_ignores_the_wording_of_an_earlier_judge(gpuwatch: Gpuwatch, home: Path) -> None:
    """Sentences in the facts of an earlier version's findings may differ; the figures may not."""
    window = judged(scene("from-idle"))
    for name, changed, code in (("words", "in other words", 0), ("figure", 1e9, 1)):
        findings = tuple(
            replace(each, facts={key: changed if isinstance(old, type(changed)) and (name == "figure" or " " in str(old)) else old
                                 for key, old in each.facts.items()})
            for each in window.verdict.findings
        )  # fmt: skip
        assert findings != window.verdict.findings
        older = replace(window, verdict=replace(window.verdict, findings=findings, judge_version="0.0.9"))
        (home / f"{name}.html").write_text(rendered(older))
        ended = gpuwatch("verify", str(home / f"{name}.html"))
        assert ended.code == code, ended.out


def test_impossible_verify_request_is_refused_in_one_line(gpuwatch: Gpuwatch, report: Path, home: Path) -> None:
    state = ("--state", str(home / "empty"))
    for arguments, says in (
        ((), "expected a report FILE.html, or --key"),
        ((str(report), "--key"), "--key: expected no FILE or --trust with it"),
        ((*state, "--key"), "the first daemon with this folder creates a key"),
        ((str(report), "--trust", str(home / "none.pub")), "expected a public key"),
        ((str(report), "--trust", str(report)), "expected a public key"),
    ):
        ended = gpuwatch("verify", *arguments)
        assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1), arguments
        assert says in ended.err
