"""Generator of the dashboards' JSON, the alerts with their page, the recording rules, and the rules under DCGM's names.

``python -m dashboards.build`` writes the files, ``--check`` reports stale files.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards import alerts, dcgm, recording
from dashboards.fleet_dashboard import fleet
from dashboards.gpu_dashboard import gpu
from dashboards.windows_dashboard import windows

ROOT = Path(__file__).parents[1]
BOARDS = {"fleet": fleet, "gpu": gpu, "windows": windows}


def generated() -> Mapping[str, str]:
    """Return every generated file's path and text."""
    return {
        **{f"dashboards/{name}.json": _json(made().build()) for name, made in BOARDS.items()},
        "dashboards/dcgm-names.yml": dcgm.rules(),
        "dashboards/recording.yml": recording.rules(),
        "dashboards/alerts.yml": alerts.rules(),
        "docs/ALERTS.md": alerts.page(),
    }


def _json(made: Dashboard) -> str:
    """Encode a dashboard, with a number for every panel, so that links to panels stay valid."""
    for number, panel in enumerate(made.panels or [], 1):
        panel.id_val = number
    return json.dumps(made, cls=JSONEncoder, indent=1, sort_keys=True) + "\n"


def main(arguments: Sequence[str], root: Path = ROOT) -> int:
    """Write, or with ``--check`` compare; return 0, 1 for a stale file, or 2 for any other argument."""
    if arguments not in ([], ["--check"]):
        sys.stderr.write("usage: python -m dashboards.build [--check]\n")
        return 2
    stale = [name for name, text in generated().items() if not _is(root / name, text)]
    if not arguments:
        for name in stale:
            (root / name).write_text(generated()[name], encoding="utf-8")
        return 0
    for name in stale:
        sys.stderr.write(f"{name} is stale; run python -m dashboards.build\n")
    return 1 if stale else 0


def _is(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
