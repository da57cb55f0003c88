"""A benchmark for CI: one window around timed iterations.  Without a GPU it sleeps beside a simulated one."""

import os
import time

import gpuwatch


def step() -> None:
    time.sleep(float(os.environ.get("STEP_S", "0.02")))


with gpuwatch.window("step", sync=False) as window:
    begins_ns, times_s = [], []
    end_s = time.monotonic() + float(os.environ.get("SECONDS_COUNT", "4"))
    while time.monotonic() < end_s:
        begins_ns.append(time.monotonic_ns())
        step()
        times_s.append((time.monotonic_ns() - begins_ns[-1]) / 1e9)
    window.record(times_s, at_ns=begins_ns)
