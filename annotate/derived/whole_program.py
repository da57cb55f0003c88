"""The part of a whole program's window in which the program worked on the GPU."""

import numpy as np

from annotate.amount_words import span_text
from annotate.claims import Claim
from annotate.derived.idle_gaps import SAMPLE_NS
from annotate.derived.power_dips import resting_power_w, work_quantile
from annotate.evidence import Evidence
from annotate.stats.robust import quantiles

FACT = "whole_program"
_LEAST_NS = 200_000_000
_WORK_RATIO = 0.25  # part of the range from rest to the power of the work: less may be the creation of a context


def working_part(evidence: Evidence, claim: Claim = Claim.SUSTAINED) -> Evidence:
    """Return the evidence from a whole program's first work on the GPU to its last.

    Imports, reading and writing before and after do not count as speed on the GPU; pauses in between do.  Work below a second
    has no books and stays unproven.  Under ``burst``, or with a declared period, work below 0.2 s keeps the whole window.
    Return the evidence unchanged without the declaration or if work and rest cannot be separated.
    """
    if evidence.declared.get(FACT) is not True:
        return evidence
    span_ns = _by_power(evidence) or _by_utilization(evidence)
    is_sparse = claim is Claim.BURST or "every_s" in evidence.declared
    if span_ns is None or span_ns[1] - span_ns[0] < (_LEAST_NS if is_sparse else 1):
        return evidence
    return evidence.part(*span_ns)


def describe_part(whole: Evidence, part: Evidence) -> str | None:
    """Return a description of the judged part, or None if it is the whole window."""
    if part is whole:
        return None
    begin_s, end_s = ((at_ns - whole.window.begin_ns) / 1e9 for at_ns in (part.window.begin_ns, part.window.end_ns))
    return f"judged from {span_text(begin_s, end_s)}, between the program's first work on the GPU and its last"


def _by_power(evidence: Evidence) -> tuple[int, int] | None:
    """Return the span from the first to the last pair of consecutive power readings that show work; None without one."""
    window, dense, work = evidence.window, evidence.trace.dense_power, work_quantile(evidence)
    low, high = np.searchsorted(dense.at_ns, (window.begin_ns, window.end_ns), side="right")
    if high - low < 2 or (rest_w := resting_power_w(dense, window, work=work)) is None:
        return None
    at_ns, power_w = dense.at_ns[low:high], dense.values[low:high]
    works = power_w > rest_w + _WORK_RATIO * (quantiles(power_w, work)[0] - rest_w)
    twice = np.flatnonzero(works[1:] & works[:-1])
    # A reading is the mean of the 20 ms before it, so the first and the last may include some rest.
    return (int(at_ns[twice[0]]), int(at_ns[twice[-1] + 1]) - SAMPLE_NS) if len(twice) else None


def _by_utilization(evidence: Evidence) -> tuple[int, int] | None:
    seen = evidence.trace.within("utilization_ratio", evidence.window.begin_ns, evidence.window.end_ns).observed
    busy = np.flatnonzero(seen.values > 0.0)
    return (int(seen.at_ns[busy[0]]), int(seen.at_ns[busy[-1]])) if len(busy) else None
