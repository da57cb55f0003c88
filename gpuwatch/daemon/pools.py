"""Pools of threads that all run before the first request."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from gpuwatch.errors import DaemonError

_START_S = 10.0


def running_pool(count: int, name: str) -> ThreadPoolExecutor:
    """Make a pool whose threads run already.

    A thread that is started for a request may fail to start; where memory is short, starting it may never return.

    Raises DaemonError: when the machine gives fewer threads.
    """
    pool = ThreadPoolExecutor(max_workers=count, thread_name_prefix=name)
    met = threading.Barrier(count + 1)  # no thread is idle before all are there, so each submission starts one
    try:
        for _ in range(count):
            pool.submit(met.wait, _START_S)
        met.wait(_START_S)
    except RuntimeError as error:  # a broken barrier is one, too
        met.abort()
        pool.shutdown(wait=False, cancel_futures=True)
        raise DaemonError(
            f"expected to start {count} threads, found: {error or 'not all of them began'}; "
            "raise the limit of tasks (ulimit -u, TasksMax, pids.max) or of memory"
        ) from error
    return pool
