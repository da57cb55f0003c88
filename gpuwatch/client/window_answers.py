"""The answers of a closed window: verdicts, as objects, text and data."""

from __future__ import annotations

from typing import Any

from annotate.user_policy import Policy
from annotate.verdict import Status, Verdict
from gpuwatch.client.conversation import Connections, Conversation
from gpuwatch.client.window_tags import WindowTags
from gpuwatch.errors import RejectedError, UsageError

SCHEMA = 1


class WindowAnswers:
    """The part of a window that serves its caller after the block."""

    label: str | None
    policy: Policy
    run_id: str | None
    begin_ns: int | None
    end_ns: int | None
    tags: WindowTags
    _conversation: Conversation

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """Return one verdict per GPU, worst first.  Waits for the judge, usually less than a second after the block.

        Raises UsageError: when the block has not ended.
        """
        return self.wait_for_verdicts()

    def wait_for_verdicts(self, connections: Connections | None = None) -> tuple[Verdict, ...]:
        """Return the verdicts, over connections that windows can share, as in ``gpuwatch.verdicts``.

        Args:
            connections: Connections to share; None opens one.

        Returns:
            One verdict per GPU, worst first; a single unproven verdict if the daemon gave none.

        Raises UsageError: when the block has not ended.

        Example:
            >>> len(w.wait_for_verdicts())
            1
        """
        if self.begin_ns is None:
            raise UsageError(
                "expected a window that was entered, found one that was not; read the verdict after the `with` block"
            )
        if self.end_ns is None:
            raise UsageError(
                "expected a window whose `with` block has ended, found an open one; read the verdict after the block"
            )
        if found := self._conversation.verdicts(connections):
            return found
        unproven = Verdict(
            status=Status.UNPROVEN,
            findings=(),
            claim=self.policy.claim.value,
            label=self.label,
            why=self._conversation.absence or "no verdict came",
            begin_ns=self.begin_ns,
            end_ns=self.end_ns,
            policy=self.policy.to_dict(),
        )
        return (unproven,)

    @property
    def verdict(self) -> Verdict:
        """Return the verdict of the worst GPU.  Waits as ``verdicts`` does.

        Raises UsageError: when the block has not ended.
        """
        return self.verdicts[0]

    def raise_for_verdict(self) -> None:
        """Raise RejectedError if the verdict is rejected; do nothing otherwise.

        Raises RejectedError: when the verdict is rejected; ``error.verdict`` holds the verdict.
        Raises UsageError: when the block has not ended.

        Example:
            >>> try:
            ...     w.raise_for_verdict()
            ... except gpuwatch.RejectedError as error:
            ...     print(error.verdict.status.value)  # as on a busy machine
            ... else:
            ...     print("not rejected")  # varies
            not rejected
        """
        verdict = self.verdict
        if verdict.status is Status.REJECTED:
            raise RejectedError(verdict)

    def to_dict(self) -> dict[str, Any]:
        """Return run, label, tags and verdicts as plain data for JSON; the schema is ``docs/schemas/window.json``.

        Raises UsageError: when the block has not ended.

        Example:
            >>> data = w.to_dict()
            >>> data["label"], data["verdicts"][0]["claim"]
            ('sum', 'sustained')
        """
        verdicts = self.verdicts
        return {
            "schema": SCHEMA,
            "run": self.run_id,
            "label": self.label,
            "tags": self.tags.all(),
            "status": verdicts[0].status.value,
            "why": verdicts[0].why,
            "verdicts": [verdict.to_dict() for verdict in verdicts],
        }

    def __repr__(self) -> str:
        state = "open" if self.end_ns is None else "closed"
        from annotate.output.report import plain  # escapes control characters in the label

        return f"<gpuwatch.window {plain(self.label or self.run_id or '')} {state if self.begin_ns else 'not entered'}>"

    def _repr_html_(self) -> str:
        import html

        from annotate.output import report

        return report.html(self.verdicts) if self.end_ns is not None else html.escape(repr(self))

    def _repr_pretty_(self, printer: Any, _is_cycle: bool) -> None:  # noqa: FBT001 - IPython's printer, by position
        """Print the verdict in IPython's terminal, where HTML is not shown."""
        from annotate.output import report

        printer.text(report.texts(self.verdicts) if self.end_ns is not None else repr(self))
