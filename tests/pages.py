"""The generated pages except docs/DASHBOARDS.md: ``python -m tests.pages`` writes them, ``--check`` lists stale ones.

One process runs all writers, so each module is imported only once.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence

from dashboards import build
from tests import load_record, shown_output, verdict_pictures
from tests.annotate.output import page as rules
from tests.bench import render as bench
from tests.dashboards import long_run
from tests.gpuwatch.exporter import page as metrics
from tests.gpuwatch.fleet import page as columns
from tests.gpuwatch.libgpuwatch import ptx_header
from tests.hardware import harnesses_page, qualified
from tests.hardware import render as validation
from tests.proof import fooling_page, untrusted_page
from tests.reference import api_page, cli_page


def main(arguments: Sequence[str]) -> int:
    """Write every page, or with ``--check`` compare; return 0, 1 for a stale page, or 2 for a wrong argument."""
    if arguments not in ([], ["--check"]):
        sys.stderr.write("usage: python -m tests.pages [--check]\n")
        return 2
    given = list(arguments)
    gc.disable()  # scans of a million permanent objects take seconds
    codes = [
        rules.main(given, rules.WRITTEN),
        metrics.main(given),
        shown_output.main(given),
        columns.main(given),
        ptx_header.main(given),
        build.main(given),
        long_run.main(given or ["--render"]),
        validation.main(given),
        qualified.main(given),
        fooling_page.main(given),
        untrusted_page.main(given),
        harnesses_page.main(given),
        bench.main(given),
        api_page.main(given),
        cli_page.main(given),
        load_record.main(given or ["--render"]),
        verdict_pictures.main(given),
    ]
    return max(codes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
