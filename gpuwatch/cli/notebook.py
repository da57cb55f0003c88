"""The notebook magic ``%%gpuwatch``: run a cell in a window, with options of `gpuwatch run`, and show the verdict."""

from __future__ import annotations

import contextlib
import shlex
from typing import Any, Protocol

import click

from annotate.errors import AnnotateError
from gpuwatch.cli import chosen_gpus, options
from gpuwatch.cli.checked_commands import CheckedCommand
from gpuwatch.cli.refusals import refusal_words
from gpuwatch.client.window import Window, window
from gpuwatch.errors import GpuwatchError, UsageError


class CellResult(Protocol):
    """The result of a cell."""

    def raise_error(self) -> None:
        """Raise the error that ended the cell, if one did."""


class Shell(Protocol):
    """The part of IPython that a magic needs."""

    def register_magic_function(self, func: Any, magic_kind: str, magic_name: str) -> None: ...

    def run_cell(self, raw_cell: str) -> CellResult: ...


class CellError(UsageError):
    """A wrong line ``%%gpuwatch``, which IPython shows without a traceback."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


def load_ipython_extension(shell: Shell) -> None:
    """Add the magic ``%%gpuwatch``; `%load_ext gpuwatch` calls this function."""

    def watch_cell(line: str, cell: str) -> Window | None:
        """Run the cell in a window and show the verdict: %%gpuwatch [LABEL] [OPTIONS]."""
        try:
            watched = _open.main(shlex.split(line), prog_name="%%gpuwatch", standalone_mode=False)
        except click.ClickException as error:
            raise CellError(f"%%gpuwatch: {refusal_words(error)}") from None
        except (GpuwatchError, AnnotateError, ValueError) as error:  # ValueError: a quotation without its end
            raise CellError(f"%%gpuwatch: {error}") from None
        if not isinstance(watched, Window):  # --help was given
            return None
        # IPython has shown the cell's error already; the window must record that the cell failed.
        with contextlib.suppress(Exception, KeyboardInterrupt), watched:
            shell.run_cell(cell).raise_error()
        return watched  # IPython displays the window, as HTML if possible

    shell.register_magic_function(watch_cell, "cell", "gpuwatch")


@click.command("gpuwatch", cls=CheckedCommand, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("label", required=False)
@options.gpu_option("Judge this GPU: index, UUID or part of it, PCI address. Repeatable.")
@options.policy_options
@options.stated_options
@options.settings_options
def _open(
    label: str | None, gpus: tuple[str, ...], policy_options: options.PolicyOptions, stated_options: options.StatedOptions
) -> Window:
    """Run the cell in a window named LABEL, and show the verdict."""
    settings = options.settings()
    chosen = chosen_gpus.choose_of_daemon(gpus, settings) if gpus else ()
    return window(
        label or "cell",
        policy=policy_options.policy(),
        gpus=list(chosen) or None,
        settings=settings,
        **stated_options.arguments(),
    )
