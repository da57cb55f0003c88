"""The requests of screens to the app: small messages, so that no screen depends on the app or another screen."""

from dataclasses import dataclass

from textual.message import Message


@dataclass
class Redraw(Message):
    """A request for new content."""


@dataclass
class GoToMoment(Message):
    """A request to go to a moment; with ``uuid``, also to open that GPU."""

    at_ns: int
    uuid: str | None = None


@dataclass
class OpenGpu(Message):
    """A request for the screen of one GPU."""

    uuid: str


@dataclass
class OpenWindow(Message):
    """A request for the screen of one window."""

    run: str


@dataclass
class ExplainNames(Message):
    """A request for the pages of these rules and reasons."""

    names: tuple[str, ...]


@dataclass
class StoreSortOrder(Message):
    """A request to store the chosen sort order."""

    name: str
