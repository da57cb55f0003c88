"""The parts of a window without readings of the GPU: missed deadlines, silence, a lost GPU."""

import numpy as np

from annotate.evidence import HEARTBEAT_NS, STALE_NS, Evidence, Lane, Times, Trace


def lost_because(evidence: Evidence) -> str:
    """Return the reason why the GPU was lost for part of the window; an empty string if it was not."""
    gone = None
    for event in evidence.trace.events:
        if event.at_ns > evidence.window.end_ns:
            break
        if event.kind == "lost":
            gone = event
        elif event.kind == "back" and event.at_ns < evidence.window.begin_ns:
            gone = None
    return f"the GPU was lost: {gone.text or 'it stopped answering'}" if gone else ""


def dark_spans_ns(evidence: Evidence, seen: Times, blank: Times) -> list[tuple[int, int]]:
    """Return the intervals of the window without a current reading, disjoint and ascending."""
    begin_ns, end_ns = evidence.window.begin_ns, evidence.window.end_ns
    spans = [(gap.begin_ns, gap.end_ns) for gap in evidence.trace.gaps if gap.lane == Lane.FAST]
    spans.append((begin_ns, int(seen[0])))
    silent = np.flatnonzero(np.diff(seen) > STALE_NS)
    spans += zip((seen[silent] + HEARTBEAT_NS).tolist(), seen[silent + 1].tolist(), strict=True)
    spans += zip(blank.tolist(), np.append(seen, end_ns)[np.searchsorted(seen, blank)].tolist(), strict=True)
    last_ns = int(seen[-1])
    alive_ns = max(last_ns, _last_sign_of_life_ns(evidence.trace))
    if last_ns + STALE_NS < end_ns:
        spans.append((min(last_ns + HEARTBEAT_NS, max(alive_ns, last_ns)), end_ns))
    # The daemon reads an edge row when the window ends, one or two calls before or after the end.
    elif alive_ns < end_ns - 50_000_000:
        spans.append((alive_ns, end_ns))
    return _merged([(max(a, begin_ns), min(b, end_ns)) for a, b in spans])


def _last_sign_of_life_ns(trace: Trace) -> int:
    """Return the time of the last row of any kind: if rows of other signals follow, a silent signal did not change."""
    times = [int(column.at_ns[-1]) for column in trace.columns.values() if len(column)]
    times += [process_list.at_ns for process_list in trace.process_lists[-1:]]
    times += [int(at_ns) for at_ns in trace.dense_power.at_ns[-1:]]
    return max(times, default=0)


def _merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    out: list[tuple[int, int]] = []
    for begin_ns, end_ns in sorted(span for span in spans if span[0] < span[1]):
        if out and begin_ns <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], end_ns))
        else:
            out.append((begin_ns, end_ns))
    return out
