"""The screen and the palette entries for the page of any rule or clock event reason."""

import asyncio
from collections.abc import Iterable, Mapping
from functools import cache, partial
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.command import Hit, Hits, Provider
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Markdown

from gpuwatch.tui.requests import ExplainNames


@cache
def pages() -> Mapping[str, str]:
    """Return the Markdown pages by name, without the figures of a finding.  The first call slowly imports every rule."""
    from annotate.clock_reasons import REASONS
    from annotate.output.rule_pages import page, reason_page, without_facts
    from annotate.rules import RULES

    rules = {rule.name: without_facts(page(rule)) for rule in RULES}
    return rules | {explained.name: reason_page(bit) for bit, explained in REASONS.items()}


def page_of(names: Iterable[str]) -> str:
    """Join the pages of these rules, reasons or bits of reasons; an unknown name gets a notice."""
    from annotate.clock_reasons import REASONS

    known = pages()
    bits = {bit.name or "": explained.name for bit, explained in REASONS.items()}
    return "\n\n".join(
        known.get(bits.get(name, name), f"## {name}\n\nThis version has no such rule or reason.") for name in names
    )


class ExplainScreen(ModalScreen[None]):
    """A modal screen with pages of rules and reasons; Esc, q, e or Enter closes the screen."""

    CSS = """
    ExplainScreen { align: center middle; }
    ExplainScreen > VerticalScroll { width: 96; max-width: 100%; height: auto; max-height: 100%; border: round $primary; padding: 0 1; }
    ExplainScreen Markdown, ExplainScreen MarkdownH2 { padding: 0; margin: 0 0 1 0; }
    ExplainScreen > VerticalScroll { scrollbar-size-vertical: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,e,enter", "dismiss(None)", "close", key_display="Esc")]

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__()
        self._names = names

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Markdown(open_links=False)

    async def on_mount(self) -> None:
        await self.query_one(Markdown).update(await asyncio.to_thread(page_of, self._names))
        self.query_one(VerticalScroll).focus()


class ExplanationProvider(Provider):
    """The palette's `Explain: NAME` entries, one for each rule and reason."""

    async def startup(self) -> None:
        self._names = list(await asyncio.to_thread(pages))

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for name in self._names:
            text = f"Explain: {name}"
            score = matcher.match(text)
            if score > 0:
                request = partial(self.app.post_message, ExplainNames((name,)))
                yield Hit(score, matcher.highlight(text), request, text=text, help="show this page over the screen")
