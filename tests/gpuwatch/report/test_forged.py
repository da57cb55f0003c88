"""Tests of forged signed reports: `verify` refuses each change, or names the changed part as unsigned."""

from __future__ import annotations

import base64
import datetime as dt
import gzip
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from jinja2 import TemplateError

from annotate.capsule import pack
from annotate.errors import AnnotateError
from annotate.evidence import Evidence
from annotate.judge import judge
from annotate.rule import Severity
from annotate.user_policy import Policy
from annotate.verdict import Answered, Status, Verdict
from gpuwatch.cli import main, times
from gpuwatch.errors import GpuwatchError
from gpuwatch.report import html_page, record, rejudge, signatures
from gpuwatch.report.record import Record, ReportedWindow
from gpuwatch.signing import pem, signer_of
from gpuwatch.sources.simulated.offline import simulate
from gpuwatch.sources.simulated.simulated_source import scenes_named
from gpuwatch.wire import run_ids
from tests.examples import SHARE
from tests.gpuwatch.cli.conftest import Gpuwatch, gpuwatch, home
from tests.gpuwatch.cli.test_schemas import check
from tests.gpuwatch.report.conftest import NONCE, Page, judged, rendered, scene

__all__ = ["gpuwatch", "home"]

OLD = Path(__file__).parent / "old"  # a page of the version before the field ``failure``, without Plotly
JsonPath: TypeAlias = tuple[str | int, ...]
SHORT_S = (4.0, 6.0)  # short, because hundreds of windows are drawn; the fault is in the second half
BEGUN_S = 1_795_000_000.25
_PARTS = 10  # number of tests that share the forged leaves


@pytest.fixture(scope="module", autouse=True)
def small_library() -> Iterator[None]:
    """Replace Plotly by a few bytes, in writing and in verifying hundreds of pages.

    ``test_verify.py`` verifies pages with the real library.
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(html_page, "packed_plotly", lambda: base64.b64encode(gzip.compress(b"var Plotly", mtime=0)).decode())
        yield


@pytest.fixture(scope="module", autouse=True)
def judged_once() -> Iterator[None]:
    """Unpack and judge the same evidence under the same policy once; most forgeries change neither."""
    verdicts: dict[tuple[int, str], tuple[Evidence, Verdict]] = {}

    def judge_once(evidence: Evidence, policy: Policy) -> Verdict:
        key = id(evidence), json.dumps(policy.to_dict(), sort_keys=True)
        if key not in verdicts:
            verdicts[key] = evidence, judge(evidence, policy)  # the evidence is kept, so that no other has its id
        return verdicts[key][1]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rejudge, "judge", judge_once)
        patched.setattr(pack, "unpack", cache(pack.unpack))
        yield


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Return a genuine report, and the file of the signer's key."""
    folder = tmp_path_factory.mktemp("signer")
    signer = signer_of(folder)
    assert signer is not None
    (found,) = scenes_named("mem-clock")
    (evidence,) = simulate(replace(found, bench=SHORT_S))
    genuine = judged(
        evidence, run_id=run_ids.new_id(BEGUN_S), begun=times.text(BEGUN_S, has_zone=True), user="ann", process="python",
        packed=pack.pack([evidence]),
    )  # fmt: skip
    genuine = replace(genuine, signature=signer.sign(signatures.signed_statement(genuine)))
    (folder / "lab7.pub").write_bytes(pem(signer.public_key))
    return rendered(genuine), folder / "lab7.pub"


@cache
def blocks(html: str) -> Mapping[str, str]:
    """Return a page's blocks of data, parsed once for all forgeries."""
    return Page(html).blocks


def leaves(data: object, path: JsonPath = ()) -> Iterator[JsonPath]:
    """Yield the path of every leaf of plain data; empty tables and lists are leaves."""
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    steps = list(inner)
    if not steps:
        yield path
    for step, each in steps:
        yield from leaves(each, (*path, step))


def at(data: Any, path: JsonPath) -> Any:  # nested JSON along the path
    for step in path:
        data = data[step]
    return data


def forged(data: Mapping[str, Any], path: JsonPath, value: object) -> dict[str, Any]:
    out: dict[str, Any] = json.loads(json.dumps(data))  # faster than a deep copy
    at(out, path[:-1])[path[-1]] = value
    return out


CHOICES: Mapping[str, tuple[object, ...]] = {
    "status": tuple(Status), "answered": tuple(Answered), "severity": (*Severity, None), "basis": ("host", "told"),
    "claim": ("burst", "fixed-clock"), "span_ns": ([1, 2], None), "accept": (["noisy"],), "limits": ({"noisy": {"note_ratio": 1.0}},),
    "redacted": (["user"],), "schema": (1, 0, "2"), "facts": ({"other": 1.0},),
}  # fmt: skip


def lies(name: str | int, value: object) -> list[object]:
    """Return forged values for this place: plausible ones and, except for a bool, some of another type."""
    chosen: list[object] = [str(each) if isinstance(each, str) else each for each in CHOICES.get(str(name), ())]
    match value:
        case bool():
            chosen.append(not value)
        case int() | float():
            chosen += [value * 1.01 + 1, str(value)]
        case str():
            chosen += [f"{value} or so", 7]
        case None:
            chosen += ["anything", 0.5]
        case _:
            chosen += ["anything", None]
    return [each for each in chosen if each != value or type(each) is not type(value)]


def rewritten(html: str, data: dict[str, Any]) -> str:
    """Return a forger's page: rendered from the forged record if gpuwatch can, else with only the record replaced."""
    evidence = blocks(html)["gpuwatch-evidence"]
    try:
        return html_page.write_page(record.from_data(data, evidence), data, evidence, NONCE)
    except (GpuwatchError, AnnotateError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError, TemplateError):
        return html.replace(blocks(html)["gpuwatch-record"], record.as_json(data))


def verified(folder: Path, html: str, key: Path) -> int:
    (folder / "forged.html").write_text(html)
    return main(["verify", str(folder / "forged.html"), "--trust", str(key)])


def shape(data: object) -> object:
    """Return the structure of plain data, with types in place of values."""
    if isinstance(data, dict):
        return tuple((name, shape(each)) for name, each in data.items())
    return tuple(map(shape, data)) if isinstance(data, list) else type(data)


def chosen_leaves(data: Mapping[str, Any]) -> list[JsonPath]:
    """Return leaves to forge: those outside findings, and those of a finding with an effect, a clear and an unobserved one.

    Of the bounds of each shape, and of each other field of the numbers, only the first and the last are forged.  ``make bench``
    forges all of these.
    """
    findings = data["windows"][0]["verdict"]["findings"]
    chosen = [next(index for index, each in enumerate(findings) if each["effect_ratio"] is not None)]
    chosen += [
        next(index for index, each in enumerate(findings) if each["answered"] == kind) for kind in ("clear", "unobserved")
    ]
    paths = [path for path in leaves(data) if "findings" not in path or path[4] in chosen]
    if SHARE == 1.0:
        return paths
    bounds = list(dict.fromkeys(path[:8] for path in paths if "bounds" in path[:7]))
    ends = {path for order in (1, -1) for path in {shape(at(data, path)): path for path in bounds[::order]}.values()}
    beside = [path for path in paths if "numbers" in path and path[:8] not in bounds]
    ends |= {path for order in (1, -1) for path in {path[6:]: path for path in beside[::order]}.values()}
    left = {*bounds, *beside} - ends
    return [path for path in paths if path not in left and path[:8] not in left]


def test_verify_accepts_fully_covered_report(signed: tuple[str, Path], gpuwatch: Gpuwatch, home: Path) -> None:
    """The genuine report passes, and signature or evidence covers every part of the page."""
    html, key = signed
    (home / "genuine.html").write_text(html)
    ended = gpuwatch("verify", str(home / "genuine.html"), "--trust", str(key))
    assert (ended.code, "not signed" in ended.out) == (0, False), ended.out
    told = gpuwatch("verify", str(home / "genuine.html"), "--trust", str(key), "--json").data
    check(told, "urn:gpuwatch:cli:1#/$defs/verify")
    assert (told["not_signed"], told["windows"][0]["not_signed"]) == ([], [])


def named_as_unsigned(name: str, out: str) -> bool:
    """Return True if one of the lines about unsigned parts has this name."""
    lines = [line.strip() for line in out.splitlines()]
    return any(name in line for line in lines if line.startswith(("not signed:", "page: not signed:")))


@pytest.mark.parametrize("part", range(_PARTS))
def test_verify_refuses_every_forged_leaf(
    signed: tuple[str, Path], tmp_path: Path, home: Path, capfd: pytest.CaptureFixture[str], part: int
) -> None:
    """``verify`` refuses each forged leaf of the record, or lists the leaf as unsigned, on a page rendered again.

    The suite tries one forgery per leaf, of varying kind; ``make bench`` tries all.
    """
    html, key = signed
    data = json.loads(blocks(html)["gpuwatch-record"])
    paths = chosen_leaves(data)
    names = {str(path[-1]) for path in paths}
    assert {"begun", "effect_ratio", "says", "run_id", "maker", "redacted", "why", "name", "judge_version", "basis"} <= names
    assert any("facts" in path for path in paths)
    passed = []
    for number, path in enumerate(paths[part::_PARTS]):
        told = lies(path[-1], at(data, path))
        for value in told if SHARE == 1.0 else told[number % len(told) :][:1]:
            code = verified(tmp_path, rewritten(html, forged(data, path, value)), key)
            said = capfd.readouterr()
            assert "Traceback" not in said.err, (path, value)
            if code == 0 and not named_as_unsigned(str(path[-1]), said.out):
                passed.append((path, value))
    assert passed == []


def test_verify_refuses_another_start_time(
    signed: tuple[str, Path], tmp_path: Path, home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A start that differs from the signed run's id is refused in any zone; a start without a zone is listed as unsigned."""
    html, key = signed
    data = json.loads(blocks(html)["gpuwatch-record"])
    path = ("windows", 0, "begun")
    there = dt.datetime.fromtimestamp(int(BEGUN_S), tz=dt.timezone(dt.timedelta(hours=5, minutes=30)))
    assert verified(tmp_path, rewritten(html, forged(data, path, there.isoformat(sep=" "))), key) == 0
    for other in (there + dt.timedelta(hours=1), there - dt.timedelta(seconds=9)):
        assert verified(tmp_path, rewritten(html, forged(data, path, other.isoformat(sep=" "))), key) == 1
        assert "begun: the report shows" in capfd.readouterr().out
    assert verified(tmp_path, rewritten(html, forged(data, path, "2026-01-01 12:00:00")), key) == 0
    assert "not signed: begun" in capfd.readouterr().out


def test_verify_allows_last_bits_of_figures(signed: tuple[str, Path], tmp_path: Path, home: Path) -> None:
    """Only the last bits of a figure may differ, as between CPUs."""
    html, key = signed
    data = json.loads(blocks(html)["gpuwatch-record"])
    path = next(each for each in leaves(data) if "facts" in each and isinstance(at(data, each), float) and at(data, each))
    assert verified(tmp_path, rewritten(html, forged(data, path, at(data, path) * (1 + 1e-12))), key) == 0
    assert verified(tmp_path, rewritten(html, forged(data, path, at(data, path) * (1 + 1e-5))), key) == 1


def test_verify_refuses_changed_words_of_page(signed: tuple[str, Path], tmp_path: Path, home: Path) -> None:
    """A changed figure or an addition in the visible page alone is refused."""
    html, key = signed
    body = html.index("<main>")
    end = html.index('<script type="application/json"')
    words = [word for word in Page(html[body:end]).words.split() if any(map(str.isdigit, word)) and html.count(word, body, end)]
    assert len(words) > 50
    for word in words[:: len(words) // 8]:
        there = html.index(word, body, end)
        changed = (
            html[:there]
            + "".join("7" if each.isdigit() else each for each in word).replace("77", "78")
            + "1"
            + html[there + len(word) :]
        )
        assert verified(tmp_path, changed, key) == 1, word
    for more in ("<p>all is well</p>", "<style>.finding{display:none}</style>", "<!-- a note -->"):
        assert verified(tmp_path, html.replace("</main>", f"{more}</main>"), key) == 1


def test_verify_names_page_of_another_maker(
    signed: tuple[str, Path], tmp_path: Path, home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A page of another version cannot be compared and is listed as unsigned."""
    html, key = signed
    data = json.loads(blocks(html)["gpuwatch-record"])
    assert verified(tmp_path, rewritten(html, forged(data, ("maker",), "gpuwatch 9")).replace("REJECTED", "VALID"), key) == 0
    assert "page: not signed: written by another version, or a forgery (maker gpuwatch 9)" in capfd.readouterr().out


def test_verify_accepts_older_signed_report(gpuwatch: Gpuwatch, home: Path) -> None:
    """A report written and signed by an older version verifies; the parts outside the signature are listed."""
    arguments = ("verify", str(OLD / "signed.html"), "--trust", str(OLD / "signer.pub"))
    ended = gpuwatch(*arguments)
    assert ended.code == 0, ended.out
    assert "verdict and evidence agree: FLAGGED" in ended.out
    assert "not signed: begun" in ended.out
    told = gpuwatch(*arguments, "--json").data
    assert (told["not_signed"], told["windows"][0]["not_signed"]) == (
        ["page", "maker"],
        ["begun", "words of findings", "severities", "retired rules"],
    )


def test_verify_refuses_another_judge_on_signed_page(signed: tuple[str, Path], tmp_path: Path) -> None:
    """A changed judge version is refused: the signature covers the version."""
    html, key = signed
    data = json.loads(blocks(html)["gpuwatch-record"])
    changed = forged(data, ("windows", 0, "verdict", "judge_version"), "0.1.0")
    assert verified(tmp_path, rewritten(html, changed), key) == 1


def test_verify_lists_unproven_window_as_unsigned(gpuwatch: Gpuwatch, home: Path) -> None:
    """Without evidence and signature, the run's facts, the reason and the findings are listed as unsigned."""
    verdict = replace(judged(scene("from-idle")).verdict, status=Status.UNPROVEN)
    alone = ReportedWindow(verdict=verdict, evidence=None, run_id="0a", begun="now", user="ann", process="python")
    (home / "alone.html").write_text(html_page.render(Record(windows=(alone,), maker=record.maker()), NONCE))
    ended = gpuwatch("verify", str(home / "alone.html"))
    assert ended.code == 0, ended.out
    assert "not signed: run, user, process, begun, GPU's name, why, findings" in ended.out


def test_redacted_report_with_signature_is_refused(signed: tuple[str, Path], tmp_path: Path, home: Path) -> None:
    """A redacted report with a signature is refused, because redacting removes signatures."""
    html, key = signed
    data = json.loads(blocks(html)["gpuwatch-record"])
    assert verified(tmp_path, rewritten(html, {**data, "redacted": ["user"]}), key) == 2


def test_run_ids_hold_their_second() -> None:
    """A run's id holds the second of its opening; another form of id holds no time."""
    assert run_ids.begun_s(run_ids.new_id(time.time())) in range(int(time.time()) - 60, int(time.time()) + 1)
    assert [run_ids.begun_s(each) for each in ("", "0a", "g" * 18, "0" * 19)] == [None] * 4
