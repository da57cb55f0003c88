"""What judging costs, warm: milliseconds a window by its length."""

from __future__ import annotations

import statistics
import time

from annotate.judge import judge
from gpuwatch.capsule import pack, unpack
from tests.annotate.builders import capped_ns, evidence


def main() -> None:
    judge(evidence())  # imports scipy
    print("judging, warm            unpack ms   judge ms   capsule kB")
    for length_s, period_s in ((1.0, 0.01), (6.0, 0.01), (60.0, 0.01), (600.0, 0.05)):
        packed = pack([evidence(length_s=length_s, period_s=period_s, signals={"power_cap_ns": capped_ns()})])
        unpacking, judging = [], []
        for _ in range(5):
            t0 = time.perf_counter()
            (each,) = unpack(packed)
            t1 = time.perf_counter()
            judge(each)
            unpacking.append(t1 - t0)
            judging.append(time.perf_counter() - t1)
        print(
            f"{length_s:6.0f} s at {1 / period_s:3.0f} Hz       {statistics.median(unpacking) * 1e3:8.1f} "
            f"{statistics.median(judging) * 1e3:10.1f} {len(packed) / 1e3:12.1f}"
        )


if __name__ == "__main__":
    main()
