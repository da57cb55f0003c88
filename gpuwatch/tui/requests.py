"""What a screen wants of the app: small messages, so that no screen knows the app or another screen."""

from __future__ import annotations

from dataclasses import dataclass

from textual.message import Message


@dataclass
class Redraw(Message):
    """Tell me again what there is to show."""


@dataclass
class GoToMoment(Message):
    """Go back to then; ``uuid``: and look at that GPU."""

    at_ns: int
    uuid: str | None = None


@dataclass
class OpenGpu(Message):
    """One GPU in detail."""

    uuid: str


@dataclass
class OpenWindow(Message):
    """One window with its findings."""

    run: str


@dataclass
class ExplainNames(Message):
    """The pages of these rules and reasons, in place."""

    names: tuple[str, ...]


@dataclass
class StoreSortOrder(Message):
    """Somebody chose an order, which is kept."""

    name: str
