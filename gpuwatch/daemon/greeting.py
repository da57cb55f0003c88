"""The daemon's answer to a client's greeting: its description, or the reason for a refusal."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from annotate import __version__
from gpuwatch.wire import messages

_BUDGETS_SINCE = 2


@dataclass(frozen=True, slots=True)
class Greeting:
    """The daemon's description of itself, the same for every client."""

    source: str
    simulated: bool
    state: Path
    boot_id: str

    def answer(self, hello: messages.Hello) -> messages.Welcome | messages.Refused:
        """Return a welcome, or a refusal for a protocol that is too old or another expected source or state folder."""
        return self._refusal(hello) or messages.Welcome(
            protocol=min(hello.protocol, messages.PROTOCOL),
            version=__version__,
            source=self.source,
            simulated=self.simulated,
            state=str(self.state),
            pid=os.getpid(),
            boot_id=self.boot_id,
            takes_spans=True,
            takes_tags=True,
            holds_marks=True,
            takes_reference_clock=True,
        )

    def _refusal(self, hello: messages.Hello) -> messages.Refused | None:
        if hello.protocol < messages.OLDEST_PROTOCOL:
            return messages.refused(
                "protocol", f"expected protocol {messages.OLDEST_PROTOCOL} or newer, found {hello.protocol}; upgrade the client"
            )
        if hello.source == "auto" and (self.simulated or self.source.startswith("replay:")):
            return messages.refused(
                "source-mismatch",
                f"expected a real GPU, found a daemon that watches {self.source}; accept it with --source {self.source}",
            )
        if hello.source not in (None, "auto", self.source):
            return messages.refused(
                "source-mismatch",
                f"expected source {hello.source}, found a daemon that watches {self.source}; choose another --socket too",
            )
        if hello.state is not None and hello.state != str(self.state):
            return messages.refused(
                "state-mismatch",
                f"expected state folder {hello.state}, found a daemon that keeps {self.state}; choose another --socket too",
            )
        return None


def in_protocol(protocol: int, verdicts: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return verdicts in the schema of a client's protocol; protocol 1 has no budgets."""
    if protocol >= _BUDGETS_SINCE:
        return [dict(each) for each in verdicts]
    from annotate.verdict import Verdict  # imported here: only an old client needs it

    return [Verdict.from_dict(each).as_schema_1() for each in verdicts]
