"""Tests of gpuwatch run --untrusted."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from gpuwatch.cli.claimed_number import read_claim, work_facts
from gpuwatch.config.settings import Settings
from gpuwatch.errors import UsageError
from tests.gpuwatch.cli.test_run import run

CLAIMS = "import sys, time; time.sleep(1.3); open(sys.argv[1], 'w').write(sys.argv[2])"


def test_run_rejects_a_claim_below_the_busy_time(daemon: Settings, tmp_path: Path) -> None:
    """A claim of a hundredth of the busy time is rejected, and with --fail-on the exit code is 11."""
    claim, verdict = tmp_path / "claim.json", tmp_path / "verdict.json"
    told = json.dumps({"calls": 1000, "call_s": 13e-6})
    ended = run(
        "--untrusted", "--work", "bytes=1e6", "--claimed", str(claim), "--json", str(verdict), "--fail-on", "rejected",
        "--", sys.executable, "-c", CLAIMS, str(claim), told, settings=daemon,
    )  # fmt: skip
    assert ended.returncode == 11, ended.stderr
    assert "stated: untrusted code" in ended.stderr
    (finding,) = [each for each in json.loads(verdict.read_text())["verdicts"][0]["findings"] if each["rule"] == "claimed-work"]
    assert finding["severity"] == "reject"
    assert "1000 calls of 13 µs are claimed, and the GPU worked for at least 1." in finding["says"]


def test_run_without_the_claimed_file_is_unproven(daemon: Settings, tmp_path: Path) -> None:
    ended = run(
        "--untrusted", "--claimed", str(tmp_path / "no.json"), "--fail-on", "unproven,rejected", "--", "true", settings=daemon
    )
    assert ended.returncode in (11, 12)
    assert f"--claimed: {tmp_path}/no.json: expected a result file, found nothing to read: No such file" in ended.stderr
    assert "the claimed number is invalid" in ended.stderr


@pytest.mark.parametrize("options", [("--claimed", "f"), ("--work", "flops=1")])
def test_run_refuses_a_claim_of_trusted_code(options: tuple[str, str]) -> None:
    ended = run(*options, "--", "true")
    assert ended.returncode == 125
    assert f"{options[0]}: expected --untrusted with it" in ended.stderr


def test_read_claim_returns_the_claim_or_the_fault(tmp_path: Path) -> None:
    """An invalid file gives zeros and a message; a valid file gives the claim."""
    file = tmp_path / "claim"
    for text in (b"", b"[]", b"{}", b'{"calls": 1}', b'{"calls": true, "call_s": 1}', b'{"calls": 0, "call_s": 1}',
                 b'{"calls": 1, "call_s": -1}', b'{"calls": 1, "call_s": NaN}', b'{"calls": 1, "call_s": 1e999}', b"\xff",
                 b"[" * 100_000, b'{"calls": 100000000000000000000000, "call_s": 1}', b'{"calls": 1' + b" " * (1 << 20) + b"}"):  # fmt: skip
        file.write_bytes(text)
        facts, wrong = read_claim(str(file))
        assert facts == {"claimed_calls_count": 0, "claimed_call_s": 0.0}, text[:20]
        assert wrong.startswith(f"{file}: expected "), text[:20]
    file.unlink()
    os.mkfifo(file)
    assert "expected a regular file" in read_claim(str(file))[1]
    file.unlink()
    file.write_text('{"calls": 10, "call_s": 2e-4, "more": []}')
    assert read_claim(str(file)) == ({"claimed_calls_count": 10, "claimed_call_s": 2e-4}, "")


def test_work_facts_reads_the_work_or_refuses() -> None:
    assert work_facts("flops=1.4e11, dtype=bf16,bytes=2") == {"call_flops_count": 1.4e11, "dtype": "bf16", "call_bytes": 2.0}
    assert work_facts(None) == {}
    for text in ("x=1", "flops", "flops=", "flops=-1", "flops=nan", "bytes=1e30"):
        with pytest.raises(UsageError, match="--work: expected"):
            work_facts(text)
