"""Somebody's words where other characters have a meaning: in Markdown, in a tag of HTML, and in the log of a CI runner."""

import html
import re

_MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+!|~^$-])")
# A zero-width space keeps a web page from making a mention, a reference or a link of somebody's label.
_LIVE = re.compile(r"(?<=[@#])(?=\w)|(?<=:)(?=//)|(?<=www)(?=\.)", re.IGNORECASE)
# GitHub's runner obeys ##[command] anywhere in a line, and ::command:: at its beginning.
_COMMANDS = re.compile(r"(?<=##)(?=\[)|(?<=^:)(?=:)|(?<=\s:)(?=:)", re.MULTILINE)


def marked(words: str) -> str:
    """Return plain words as Markdown that renders as just these words."""
    escaped = _MARKDOWN.sub(r"\\\1", words).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _LIVE.sub("\u200b", escaped)


def tagged(words: str) -> str:
    """Return plain words as the text of a tag inside Markdown, in which no Markdown is read."""
    return _LIVE.sub("\u200b", html.escape(words))


def logged(text: str) -> str:
    """Return text for a CI runner's log, in which no label is a command to the runner."""
    return _COMMANDS.sub("\\\\", text)


def fenced(lines: list[str], language: str) -> list[str]:
    """Return lines of code in a fence that none of them ends."""
    longest = max((len(run) for line in lines for run in re.findall(r"`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{language}", *lines, fence]
