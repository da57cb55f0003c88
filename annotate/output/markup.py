"""Escaping of outside text for Markdown, HTML elements and the logs of CI runners."""

import html
import re

_MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+!|~^$-])")
# A zero-width space prevents a web page from turning a label into a mention, a reference or a link.
_LIVE = re.compile(r"(?<=[@#])(?=\w)|(?<=:)(?=//)|(?<=www)(?=\.)", re.IGNORECASE)
# Commands to GitHub's runner: ##[command] anywhere in a line, and ::command:: at the start of a line or after white space.
_COMMANDS = re.compile(r"(?<=##)(?=\[)|(?<=^:)(?=:)|(?<=\s:)(?=:)", re.MULTILINE)


def marked(words: str) -> str:
    """Escape text for Markdown; zero-width spaces disable mentions and links."""
    escaped = _MARKDOWN.sub(r"\\\1", words).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _LIVE.sub("\u200b", escaped)


def tagged(words: str) -> str:
    """Escape text for the content of an HTML element, in which Markdown has no effect."""
    return _LIVE.sub("\u200b", html.escape(words))


def logged(text: str) -> str:
    """Escape text for a CI runner's log, so that the runner finds no command in the text."""
    return _COMMANDS.sub("\\\\", text)


def fenced(lines: list[str], language: str) -> list[str]:
    """Return lines of code in a fence that is longer than any fence in the code."""
    longest = max((len(run) for line in lines for run in re.findall(r"`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{language}", *lines, fence]
