"""The exit code of a command, and one line on standard error for each expected failure."""

import errno
import sys
from collections.abc import Callable
from typing import Any

import click

from annotate.errors import AnnotateError
from annotate.output.report import plain
from gpuwatch.cli import output
from gpuwatch.cli.exit_codes import Exit, ReaderLeft, Stop
from gpuwatch.cli.refusals import refusal_words
from gpuwatch.errors import DaemonError, GpuwatchError, UsageError

_MOST_CHARACTERS = 2000  # per line; a typed value may be a megabyte


def code_of(work: Callable[[], Any], *, as_json: bool) -> int:  # click's commands return a code or None
    """Run the command and return its exit code."""
    try:
        code = work()
        if sys.stdout is not None:
            sys.stdout.flush()
    except (BrokenPipeError, ReaderLeft, click.Abort, KeyboardInterrupt) as error:
        return _quiet(error)
    except click.exceptions.NoArgsIsHelpError as error:  # `gpuwatch config` alone prints its help
        output.say(error.format_message())
        return Exit.USAGE
    except (click.ClickException, GpuwatchError, AnnotateError, Stop) as error:
        return _report(error, as_json=as_json)
    except RecursionError:
        return _report(GpuwatchError("expected data nested at most 100 levels deep, found deeper"), as_json=as_json)
    except OSError as error:
        if error.errno == errno.ENOSPC and error.filename is None:  # click's own output, such as --help, on a full disk
            output.silence(sys.stdout)
            return _report(GpuwatchError(f"standard output: {error.strerror}"), as_json=False)
        if error.filename is None:
            raise  # not about a named file: a defect of gpuwatch, shown with its traceback
        kind = UsageError if error.errno in (errno.ENAMETOOLONG, errno.ELOOP) else GpuwatchError  # a path that cannot exist
        return _report(kind(f"{error.filename}: {error.strerror}"), as_json=as_json)
    return int(code or 0)


def _quiet(error: BaseException) -> Exit:
    if isinstance(error, click.Abort | KeyboardInterrupt):
        return Exit.INTERRUPTED
    output.silence(sys.stdout)
    return Exit.BROKEN_PIPE


def _report(error: Exception, *, as_json: bool) -> int:
    message = refusal_words(error) if isinstance(error, click.ClickException) else str(error)
    message = output.cut(plain(" ".join(message.split())), _MOST_CHARACTERS)
    code, name = _code_and_name(error)
    output.say(f"gpuwatch: {message}")
    if as_json and name != "output":
        output.emit_json({"error": {"code": name, "message": message}})
    return code


def _code_and_name(error: Exception) -> tuple[int, str]:
    if isinstance(error, Stop):
        return error.code, error.name
    if isinstance(error, UsageError | AnnotateError | click.UsageError):
        return Exit.USAGE, "usage"
    if isinstance(error, DaemonError):
        return Exit.FAILED, f"daemon-{error.code}"
    return Exit.FAILED, type(error).__name__.removesuffix("Error").lower()
