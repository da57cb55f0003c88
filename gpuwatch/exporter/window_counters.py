"""The counts of windows since the daemon started: made as they are judged, never read from the store."""

from __future__ import annotations

import threading
from collections import Counter

from annotate.rule import Severity
from annotate.rules import RULES
from annotate.verdict import Answered, Status
from gpuwatch.exporter.buckets import Buckets
from gpuwatch.exporter.metrics import JUDGING_BUCKETS, LENGTH_BUCKETS
from gpuwatch.interfaces import Run


class Outcomes:
    """Statuses, hazards found, rules that failed, lengths, and how long judging took.  ``lock`` is held by whoever writes or reads them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.statuses = dict.fromkeys((status.value for status in Status), 0)
        # All there can be, from zero: increase() sees only what it saw smaller before.
        self.findings = Counter({(rule.name, severity.value): 0 for rule in RULES for severity in Severity})
        self.failures = Counter({rule.name: 0 for rule in RULES})
        self.lengths = {status.value: Buckets(LENGTH_BUCKETS) for status in Status}
        self.judging = Buckets(JUDGING_BUCKETS)

    def judged(self, run: Run, judging_s: float | None) -> None:
        """A window came to its end; ``judging_s`` is None where it was not judged at all."""
        with self.lock:
            if run.status not in self.statuses:
                return
            self.statuses[run.status] += 1
            if run.end_ns is not None:
                self.lengths[run.status].note((run.end_ns - run.begin_ns) / 1e9)
            if judging_s is not None:
                self.judging.note(judging_s)
            for verdict in run.verdicts:
                for finding in verdict["findings"]:
                    if finding["answered"] == Answered.FOUND:
                        self.findings[finding["rule"], finding["severity"] or "note"] += 1
                    elif finding.get("failure") is not None:
                        self.failures[finding["rule"]] += 1
