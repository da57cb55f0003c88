"""gpuwatch dashboards: the shipped dashboards, alerts, rules and samples, written to a folder."""

from collections.abc import Iterator
from pathlib import Path

import click

from gpuwatch import atomic_write
from gpuwatch.cli import options, output
from gpuwatch.cli.checked_commands import CheckedCommand
from gpuwatch.config.shipped_files import shipped_folder
from gpuwatch.errors import UsageError

_SUFFIXES = (".json", ".yml", ".yaml", ".sh")
_FOLDERS = ("kubernetes", "provisioning", "slurm")
_OF_A_CHECKOUT = ("compose.yml", "up.sh")  # files that run gpuwatch from a checkout
_SCRIPT_MODE, _FILE_MODE = 0o755, 0o644


@click.command(
    "dashboards",
    cls=CheckedCommand,
    short_help="Write dashboards, alerts, rules and samples.",
    epilog="Example: gpuwatch dashboards --to /etc/grafana/gpuwatch",
)
@click.option("--to", "folder", metavar="DIR", type=click.Path(path_type=Path), help="Write the files to this folder.")
@click.option("--overwrite", is_flag=True, help="Replace files in DIR that differ.")
@options.json_option
@options.settings_options
def command(folder: Path | None, overwrite: bool, as_json: bool) -> None:
    """List the files for Grafana, Prometheus, Slurm and Kubernetes, or write them to a folder.

    If a file exists already and differs, name it and write nothing, unless --overwrite is given.
    """
    shipped = read_shipped()
    if folder is None:
        if overwrite:
            raise UsageError("--overwrite: expected --to DIR with it, found none")
        output.emit_either({"files": [{"path": name} for name in shipped]}, "\n".join(shipped), as_json=as_json)
        return
    output.check_folder(folder, "--to")
    states = {name: _state(folder / name, text) for name, text in shipped.items()}
    differing = [name for name, state in states.items() if state == "replaced"]
    if differing and not overwrite:
        raise UsageError(
            f"--to: expected no file in {folder} that differs from gpuwatch's, found {', '.join(differing)}; "
            "name another folder, or replace them with --overwrite"
        )
    for name, state in states.items():
        if state != "unchanged":
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic_write.replace(path, shipped[name], mode=_SCRIPT_MODE if path.suffix == ".sh" else _FILE_MODE)
    rows = [{"path": str(folder / name), "state": state} for name, state in states.items()]
    output.emit_either({"files": rows}, "\n".join(f"{row['state']:<10} {row['path']}" for row in rows), as_json=as_json)
    output.say("prometheus.yml shows how rules are loaded; import *.json into Grafana 11.6 or newer")


def _state(path: Path, text: bytes) -> str:
    """Return the state of a file: written, unchanged or replaced.  Raises OSError: when the file cannot be read."""
    if not path.exists():
        return "written"
    return "unchanged" if path.is_file() and path.read_bytes() == text else "replaced"


def read_shipped() -> dict[str, bytes]:
    """Return the contents of the shipped files by relative path.

    Raises UsageError: for an installation without the files.
    """
    root = shipped_folder("dashboards", ("fleet.json", "alerts.yml"))
    return {str(path.relative_to(root)): path.read_bytes() for path in _files(root)}


def _files(root: Path) -> Iterator[Path]:
    for place in (root, *(root / name for name in _FOLDERS)):
        found = place.rglob("*") if place != root else place.iterdir()
        yield from sorted(
            path for path in found if path.is_file() and path.suffix in _SUFFIXES and path.name not in _OF_A_CHECKOUT
        )
