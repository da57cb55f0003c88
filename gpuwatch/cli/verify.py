"""gpuwatch verify: a check of a report's evidence, verdict, page and signature."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from annotate import __version__
from annotate.output.report import plain
from gpuwatch.cli import options, output
from gpuwatch.cli.checked_commands import CheckedCommand
from gpuwatch.cli.exit_codes import Exit
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.report.read_page import PageContent
    from gpuwatch.report.rejudge import Agreement
    from gpuwatch.report.signatures import CheckedSignature

_MOST_SHOWN = 5


@click.command(
    "verify",
    cls=CheckedCommand,
    short_help="Judge a report's evidence again, and check its signature.",
    epilog="Example: gpuwatch verify report.html --trust lab7.pub",
)
@click.argument("file", metavar="[FILE]", required=False)
@click.option(
    "--trust",
    metavar="KEY.pub",
    multiple=True,
    help="Require a signature of this key on the file. Repeatable: any of the keys.",
)
@click.option("--key", "shows_key", is_flag=True, help="Print the public key of this machine's daemon; verify nothing.")
@options.json_option
@options.settings_options
def command(file: str | None, trust: tuple[str, ...], shows_key: bool, as_json: bool) -> Exit:
    """Judge the evidence inside the report FILE again, offline, by the rules of this version.

    Exits 0 if verdicts, evidence, page and signature agree, else 1.  Contents of the page that no evidence covers are listed as
    "not signed".

    \b
    A signature names the key of the daemon that recorded the evidence.  Get this key from a source that you trust:
    gpuwatch verify --key > lab7.pub             print the public key, on the machine that measured
    gpuwatch verify FILE --trust lab7.pub        fail unless this key signed the report
    Without --trust, keys NAME.pub in ~/.config/gpuwatch/trusted/ and /etc/gpuwatch/trusted/ are trusted, shown as NAME.
    """
    if shows_key:
        if file is not None or trust:
            raise UsageError(f"--key: expected no FILE or --trust with it, found {file or '--trust'}")
        return _show_key(as_json=as_json)
    if file is None:
        raise UsageError("verify: expected a report FILE.html, or --key, found neither")
    from gpuwatch.report import read_page, signatures
    from gpuwatch.report.rejudge import agreement

    named = [Path(each) for each in trust]
    trusted = signatures.trusted_keys(named, () if named else signatures.key_folders(os.environ), output.say)
    held = read_page.load(Path(file))
    signers = [signatures.check_signature(window, trusted) for window in held.record.windows]
    answers = [
        agreement(window, is_trusted=signer.worth is signatures.Worth.TRUSTED)
        for window, signer in zip(held.record.windows, signers, strict=True)
    ]
    wanted = {signatures.Worth.TRUSTED} if trust else set(signatures.Worth) - {signatures.Worth.BROKEN}
    agrees = (
        bool(answers)
        and all(answer.agrees for answer in answers)
        and held.as_written is not False
        and all(signer.worth in wanted for signer in signers)
    )
    if as_json:
        windows = [_data(answer, signer) for answer, signer in zip(answers, signers, strict=True)]
        worst = max((signer.worth for signer in signers), key=list(signatures.Worth).index, default=signatures.Worth.UNSIGNED)
        said = {"agrees": agrees, "page_as_written": held.as_written, "signature": worst.value}
        output.emit_json(said | {"not_signed": list(_not_signed(held)), "windows": windows})
        return Exit.OK if agrees else Exit.FAILED
    for answer, signer in zip(answers, signers, strict=True):
        _say(answer, signer)
    output.emit(_page(held))
    if held.record.redacted:
        what = plain(", ".join(held.record.redacted))
        output.emit(f"redacted: {what}: a signature covers the original, which is not in this file")
    if trust and not all(signer.worth in wanted for signer in signers):
        output.emit(f"NOT SIGNED by {' or '.join(plain(path.name) for path in named)}")
    return Exit.OK if agrees else Exit.FAILED


def _say(answer: Agreement, signer: CheckedSignature) -> None:
    from gpuwatch.report import rejudge, signatures

    verdict = answer.window.verdict
    earlier = rejudge.earlier_judge(verdict)
    simulated = "  SIMULATED" if verdict.simulated else ""
    # The status is not first in the line: REJECTED is a result of the measurement, not of this check.
    name, status = plain(verdict.label or "unnamed window"), f"{verdict.status.value.upper()}{simulated}"
    if answer.again is None and answer.agrees:
        output.emit(f"{name}: the report holds no evidence, and the verdict needs none: {status}")
    elif answer.agrees:
        output.emit(f"{name}: verdict and evidence agree: {status}")
    else:
        output.emit(f"{name}: VERDICT AND EVIDENCE DISAGREE: the report's verdict is {status}")
        more = len(answer.differs) - _MOST_SHOWN
        for line in (*answer.differs[:_MOST_SHOWN], *([f"and {more} more"] if more > 0 else ())):
            output.emit(f"  {plain(line)}")
        if verdict.judge_version != __version__ and earlier is None:
            then = plain(verdict.judge_version)
            output.emit(f"  gpuwatch {then} judged then, {__version__} now: perhaps the rules changed, not the report")
    if earlier is not None:
        others = ", ".join(sorted(rejudge.REVISED_RULES))
        output.emit(f"  judged by an earlier version ({earlier}): not compared: wording, severities, retired rules, {others}")
        if answer.again is not None and answer.again.status is not verdict.status:
            output.emit(f"  by the rules of {__version__} the same evidence is {answer.again.status.value.upper()}")
    output.emit(f"  signature: {plain(str(signer))}")
    if without := signatures.unsigned_names(answer.window):
        output.emit(f"  not signed: {', '.join(without)}: anyone may have written this")


def _data(answer: Agreement, signer: CheckedSignature) -> dict[str, object]:
    from gpuwatch.report import signatures

    verdict = answer.window.verdict
    return {
        "run": answer.window.run_id,
        "label": verdict.label,
        "says": verdict.status.value,
        "evidence_says": answer.again.status.value if answer.again else None,
        "agrees": answer.agrees,
        "differs": list(answer.differs),
        "judge_version": verdict.judge_version,
        "signature": {"worth": signer.worth.value, "key": signer.key, "name": signer.name},
        "not_signed": list(signatures.unsigned_names(answer.window)),
    }


def _show_key(*, as_json: bool) -> Exit:
    from gpuwatch.signing import PUBLIC_KEY, fingerprint, pem, read_public

    path = options.settings().state / PUBLIC_KEY
    if path.is_fifo():  # opening a pipe would block
        raise UsageError(f"{path}: expected a public key, found a pipe; remove it, and a new daemon writes its key there")
    try:
        key = read_public(path)
    except UsageError as error:
        raise UsageError(f"{error}; the first daemon with this folder creates a key") from error
    if as_json:
        output.emit_json({"fingerprint": fingerprint(key), "public_key": pem(key).decode(), "path": str(path)})
    else:
        output.emit(pem(key).decode().strip())
        output.say(f"{fingerprint(key)}, of the daemon with the store {path.parent}")
    return Exit.OK


def _not_signed(held: PageContent) -> tuple[str, ...]:
    """Return the names of the page's contents that no evidence covers."""
    page = ("page", "maker") if held.as_written is None else ()
    return (*page, *(("redacted",) if held.record.redacted else ()))


def _page(held: PageContent) -> str:
    if held.as_written is None:
        maker = plain(held.record.maker)
        return (
            f"page: not signed: written by another version, or a forgery (maker {maker}), not compared;"
            " trust this output, not the page"
        )
    if held.as_written:
        return "page: agrees with its evidence, unchanged since it was written"
    return "page: CHANGED since it was written; trust this output, not the page"
