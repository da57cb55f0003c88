"""gpuwatch show: one window's verdicts with the evidence."""

import shlex
import sys

import click

from gpuwatch.cli import open_store, options, output, rejudge, times
from gpuwatch.cli.checked_commands import CheckedCommand
from gpuwatch.cli.exit_codes import Exit, list_statuses, worst_code
from gpuwatch.cli.option_words import name_options
from gpuwatch.client.stated_claim import describe
from gpuwatch.errors import UsageError


@click.command(
    "show",
    cls=CheckedCommand,
    short_help="Print one window's verdict, with its evidence.",
    epilog="Example: gpuwatch show gemm --tolerance 2%",
)
@click.argument("run_id", metavar="[RUN]", required=False, shell_complete=options.completed_by("windows"))
@options.back_option
@click.option("--verbose", "-v", is_flag=True, help="Print every fact, and every rule that was clear or not checked.")
@click.option("--markdown", is_flag=True, help="Write Markdown, for a pull request or an issue.")
@options.policy_options
@options.fail_on_option
@options.json_option
@options.settings_options
def command(
    run_id: str | None,
    back: int | None,
    verbose: bool,
    markdown: bool,
    policy_options: options.PolicyOptions,
    fail_on: str | None,
    as_json: bool,
) -> Exit:
    """Print the verdict of RUN: an id, the start of an id, or a label.  Default: the latest window.

    With options of a policy, such as --claim or --tolerance, judge the stored evidence again and keep the stored verdict.
    """
    from annotate.output import report
    from annotate.output.report import plain

    if run_id is not None and back is not None:
        raise UsageError(f"expected a run or -{back}, found both: {run_id} -{back}; leave one out")
    failing = options.fail_on(fail_on)
    policy = policy_options.policy()
    with open_store.reader(options.settings()) as store:
        run = open_store.run(store, run_id, back=back or 1)
        verdicts = rejudge.stored(run) if policy is None else rejudge.again(store, run, policy)
    if as_json:
        data = {"run": run.id, "label": run.label, "begun_wall_s": run.begun_wall_s, "rejudged": policy is not None}
        output.emit_json({**data, "tags": dict(run.tags), "verdicts": [verdict.to_dict() for verdict in verdicts]})
    elif markdown:
        output.emit("\n".join(report.markdown(name_options(verdict)) for verdict in verdicts).rstrip())
    else:
        output.emit(output.lay_out(verdicts, sys.stdout, verbose=verbose, more="`-v` lists them"))
        if stated := describe(run.declared):
            output.say(f"  stated: {stated}")
        if run.tags:
            output.say(f"  tags: {' '.join(shlex.quote(plain(f'{name}={text}')) for name, text in sorted(run.tags.items()))}")
        who = f", by {run.user or run.uid}" if run.uid is not None else ""
        output.say(f"  run {run.id}, {times.text(run.begun_wall_s)}{who}{', judged again' if policy is not None else ''}")
    return worst_code(list_statuses(verdicts), failing)
