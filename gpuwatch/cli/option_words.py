"""The words of verdicts on the command line: options in place of the parameters of Python."""

import re
from dataclasses import replace

from annotate.verdict import Verdict

_OPTIONS = tuple(
    (re.compile(parameter), option)
    for parameter, option in (
        (r"\bclaim='([a-z-]+)'", r"--claim \1"),
        (r"\bvaries=True\b", "--varies"),
        (r"\bevery=", "--every DURATION"),
        (r"\blocked_mhz=", "--locked-mhz MHZ"),
    )
)


def name_options(verdict: Verdict) -> Verdict:
    """Return the verdict with options in its reasons and remedies, such as ``--varies`` for ``varies=True``."""
    findings = tuple(
        replace(each, says=_named(each.says), remedy=_named(each.remedy)) if "=" in each.says + each.remedy else each
        for each in verdict.findings
    )
    return replace(verdict, why=_named(verdict.why), findings=findings)


def _named(words: str) -> str:
    for parameter, option in _OPTIONS:
        words = parameter.sub(option, words)
    return words
