"""Reader of report pages that runs no script: returns the record, and checks that this version renders the same page."""

import base64
import binascii
import json
import re
import zlib
from dataclasses import dataclass
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path

from jinja2 import TemplateError

from annotate.errors import AnnotateError, CapsuleError
from gpuwatch.errors import UsageError
from gpuwatch.report import html_page, record
from gpuwatch.utf8 import clean_tree

_MOST_BYTES = 50_000_000  # far above html_page.MOST_BYTES
_GZIP = 31  # zlib's code for a gzip header
_PARTS = ("gpuwatch-record", "gpuwatch-evidence", "gpuwatch-plotly")


@dataclass(frozen=True, slots=True)
class PageContent:
    """A page's record.  ``as_written`` is True if this version writes an identical page, None for another version's page."""

    record: record.Record
    as_written: bool | None


def load(path: Path) -> PageContent:
    """Read a page.

    Raises UsageError: for a file that is not a gpuwatch report, or a damaged one.
    """
    try:
        with path.open("rb") as file:
            blob = file.read(_MOST_BYTES + 1)  # a pipe or a device has no size
        html = StringIO(blob.decode(), newline=None).read()  # mailers may change line endings
    except OSError as error:
        raise UsageError(f"{path}: expected a gpuwatch report, could not read the file: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: expected a gpuwatch report, found a file that is not UTF-8 text") from error
    if not blob or len(blob) > _MOST_BYTES:
        found = f"more than {_MOST_BYTES / 1e6:.0f} MB" if blob else "an empty file"
        raise UsageError(f"{path}: expected a gpuwatch report, found {found}")
    parts = _Parts()
    try:
        parts.feed(html)
    except AssertionError as error:  # the library's error for invalid markup, such as "<![<"
        raise UsageError(f"{path}: expected a gpuwatch report, found invalid markup: {error}") from error
    for name in _PARTS:
        if (count := len(parts.found.get(name, []))) != 1:
            found = f"{count} parts named {name}" if count else f"another or a truncated file, without a part {name}"
            raise UsageError(f"{path}: expected a gpuwatch report, found {found}; write one with `gpuwatch report`")
    try:
        data = clean_tree(json.loads(parts.found["gpuwatch-record"][0]))
        evidence = parts.found["gpuwatch-evidence"][0]
        held = record.from_data(data, evidence)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: expected a gpuwatch report, found a damaged one ({error}); copy the file again") from error
    except CapsuleError as error:
        raise UsageError(f"{path}: {error}") from error
    if held.maker != record.maker():
        return PageContent(held, None)
    nonce = parts.nonce or ""
    # Reading drops unknown data, so the record must reproduce all embedded data.
    if data != record.to_data(held)[0] or not re.fullmatch(r"[A-Za-z0-9_-]{16,64}", nonce):
        return PageContent(held, as_written=False)
    try:
        return PageContent(held, _is_same(html_page.write_page(held, data, evidence, nonce), html))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, TemplateError, AnnotateError):
        return PageContent(held, as_written=False)  # this version did not write a page that it cannot render


class _Parts(HTMLParser):
    """A parser that collects the page's named blocks and the nonce of its scripts."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: dict[str, list[str]] = {}
        self.nonce: str | None = None
        self._inside: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.nonce = self.nonce or values.get("data-nonce")
        name = values.get("id") or ""
        self._inside = name if tag == "script" and name in _PARTS else None
        if self._inside is not None:
            self.found.setdefault(name, []).append("")

    def handle_data(self, data: str) -> None:
        if self._inside is not None:
            self.found[self._inside][-1] += data

    def handle_endtag(self, tag: str) -> None:  # noqa: ARG002 - the parser's signature
        self._inside = None


def _is_same(written: str, found: str) -> bool:
    """Return True if two pages are equal apart from the library's compression, which varies between machines.

    Line endings after the last element, which pipes and editors add, do not count.
    """
    (begin, library, end), (found_begin, found_library, found_end) = map(_in_parts, (written, found))
    if (begin, end) != (found_begin, found_end):
        return False
    return library == found_library or _unpacked(library) == _unpacked(found_library)


def _in_parts(html: str) -> tuple[str, str, str]:
    """Return the page before the packed library, the library, and the rest."""
    html = html.rstrip("\n")
    begin = html.find('id="gpuwatch-plotly">') + len('id="gpuwatch-plotly">')
    end = html.find("</script>", begin)
    return html[:begin], html[begin:end], html[end:]


def _unpacked(library: str) -> str:
    try:
        unpacking = zlib.decompressobj(wbits=_GZIP)
        unpacked = unpacking.decompress(base64.b64decode(library, validate=True), _MOST_BYTES).decode(errors="replace")
    except (ValueError, binascii.Error, zlib.error):
        return library
    return unpacked if unpacking.eof and not unpacking.unused_data else library
