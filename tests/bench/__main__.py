"""`make bench`: every benchmark of the repository, one table after the other."""

from __future__ import annotations

from tests.bench import (
    bench_compare,
    bench_fleet,
    bench_judge,
    bench_rejudge,
    bench_scrape,
    bench_store,
    bench_top,
    bench_window,
)

if __name__ == "__main__":
    bench_store.main()
    bench_judge.main()
    bench_compare.main()
    bench_rejudge.main()
    bench_window.main()
    bench_scrape.main()
    bench_fleet.main()
    bench_top.main()
