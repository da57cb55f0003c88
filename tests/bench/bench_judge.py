"""The cost of judging, warm: milliseconds of CPU time per window by its length, and the machine's time for a fixed loop."""

from __future__ import annotations

import gc
import statistics
import time
from dataclasses import replace

from annotate.capsule.pack import pack, unpack
from annotate.judge import judge
from tests.annotate.builders import capped_ns, evidence
from tests.campaign import clean
from tests.proof.pairs import pair
from tests.truth_windows import truth_windows

_SECONDS_PAIR, _ITERATIONS_PAIR = 2, 3  # 6.0 s with 1087 iterations; 31 823 iterations
_TRUTH = "nothing-gemm4k"  # 3 s with 14 000 stamped iterations
_FLOOR_COUNT = 20_000
_ROUNDS = 15


def floor_s() -> float:
    """Return the CPU time of a fixed loop of calls; other work on the machine's cores lengthens this time as well."""
    begun_s = time.process_time()
    sum(len((number,)) for number in range(_FLOOR_COUNT))
    return time.process_time() - begun_s


def main() -> dict[str, float]:
    figures = {}
    judge(evidence())  # imports scipy
    gc.freeze()  # as the judge's worker does
    print("judging, warm              unpack ms   judge ms   capsule kB")
    cases = {
        f"{length_s:6.0f} s at {1 / period_s:3.0f} Hz": evidence(
            length_s=length_s, period_s=period_s, signals={"power_cap_ns": capped_ns()}
        )
        for length_s, period_s in ((1.0, 0.01), (6.0, 0.01), (60.0, 0.01), (600.0, 0.05))
    }
    # As in the campaign's windows: dozens of declared facts, thousands of timed iterations, a baseline.
    for seed in (3, 5):
        about = clean.simulated(seed)
        assert about.timings is not None
        cases[f"{about.window.length_s:6.1f} s, {len(about.timings.at_ns)} timed"] = about
    cases["6 s, disturbed"] = pair(_SECONDS_PAIR).disturbed
    cases["30 000 timed, disturbed"] = pair(_ITERATIONS_PAIR).disturbed
    cases["14 000 timed, H200"] = truth_windows()[_TRUTH].before
    floors = []
    for name, about in cases.items():
        packed = pack([replace(about, baseline=None)])
        unpacking, judging = [], []
        for _ in range(_ROUNDS):
            floors.append(floor_s())
            t0 = time.process_time()
            (unpacked,) = unpack(packed)
            each = replace(unpacked, baseline=about.baseline)
            t1 = time.process_time()
            judge(each)
            unpacking.append(t1 - t0)
            judging.append(time.process_time() - t1)
        figures[f"{name.strip()}, ms"] = statistics.median(judging) * 1e3
        print(
            f"{name:24} {statistics.median(unpacking) * 1e3:8.1f} "
            f"{statistics.median(judging) * 1e3:10.1f} {len(packed) / 1e3:12.1f}"
        )
    figures["floor, ms"] = statistics.median(floors) * 1e3
    print(f"{'a loop of 20 000 calls':24} {'':8} {figures['floor, ms']:10.1f}")
    return figures


if __name__ == "__main__":
    main()
