"""The first part of `make bench`: every benchmark of the repository, or the named benchmarks, in sequence.

    python -m tests.bench [--save] [NAME …]

``--save`` stores the results in results.json, and renders docs/BENCHMARKS.md and the README's cost figures.
"""

from __future__ import annotations

import sys

from tests.bench import render, saved


def main(arguments: list[str]) -> int:
    keeps = "--save" in arguments
    named = [each.removeprefix("bench_") for each in arguments if each != "--save"]
    if unknown := [each for each in named if each not in saved.names()]:
        print(f"expected names of benchmarks ({', '.join(saved.names())}), found {', '.join(unknown)}", file=sys.stderr)
        return 2
    for name in named or saved.names():
        print(f"\n== {name}", flush=True)
        found = saved.run(name)
        if keeps:  # save each result at once, because a later benchmark may fail
            saved.save({name: found})
            render.write()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
