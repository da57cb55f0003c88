"""Debian's Chromium, headless and driven through the pipe of its DevTools protocol, without a port or a package."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.gpuwatch.programs import program
from tests.waiting import PATIENCE_S

ANSWER_S = 60.0
_FLAGS = (
    "--headless=new", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu", "--disable-dev-shm-usage",
    "--disable-extensions", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-breakpad", "--hide-scrollbars", "--force-color-profile=srgb", "--window-size=1280,900",
    # Without these pages of the browser's own window, which nobody sees, Chromium takes 5 s less of CPU.
    "--disable-features=PreloadTopChromeWebUI,WebUIOmniboxPopup,WebUIOmniboxAimPopup",
)  # fmt: skip

# The protocol's pipes have the numbers 3 and 4.
_PIPED = """import fcntl, os, sys
both = [fcntl.fcntl(int(each), fcntl.F_DUPFD, 10) for each in sys.argv[1:3]]
os.dup2(both[0], 3)
os.dup2(both[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


@dataclass
class Browser:
    """One Chromium; ``events`` collects every page's events during waits."""

    process: subprocess.Popen[bytes]
    to: int
    of: int
    events: list[dict[str, Any]] = field(default_factory=list)
    _number: int = 0
    _rest: bytes = b""

    def ask(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Return the answer to one command.  Raises AssertionError: for an error, a silence, or an end before the answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params} | ({"sessionId": session} if session else {})
        data = memoryview(json.dumps(message).encode() + b"\0")
        while data:
            data = data[os.write(self.to, data) :]
        while True:
            found = self._next(f"an answer to {method}")
            if found.get("id") == self._number:
                assert "error" not in found, found
                result: dict[str, Any] = found["result"]
                return result
            self.events.append(found)

    def wait(self, method: str, session: str) -> dict[str, Any]:
        """Return a session's next event of this kind."""
        while True:
            for place, event in enumerate(self.events):
                if event.get("method") == method and event.get("sessionId") == session:
                    return self.events.pop(place)
            self.events.append(self._next(method))

    def _next(self, awaited: str) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self.of], [], [], ANSWER_S)
            assert ready, f"expected {awaited} from Chromium within {ANSWER_S:g} s, found none"
            data = os.read(self.of, 1 << 20)
            assert data, f"Chromium ended; expected {awaited}"
            self._rest += data
        message, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def open(self, path: Path, *, width: int = 1280, height: int = 900) -> Page:
        """Open a file in a new page, and wait for the load event."""
        target = self.ask("Target.createTarget", url="about:blank", newWindow=True, width=width, height=height)["targetId"]
        page = Page(self, self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"], target)
        for domain in ("Page", "Runtime", "Network", "Log", "Security"):
            page.ask(f"{domain}.enable")
        page.ask("Page.navigate", url=path.resolve().as_uri())
        self.wait("Page.loadEventFired", page.session)
        return page


@dataclass
class Page:
    """One page of the browser."""

    browser: Browser
    session: str
    target: str

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        return self.browser.ask(method, self.session, **params)

    def run(self, script: str) -> Any:
        """Return the value of an expression, with promises awaited."""
        found = self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, condition: str) -> None:
        """Wait in the page until a condition holds."""
        self.run(
            f"new Promise((done, fail) => {{ let left = 600; const look = () => ({condition}) ? done(true) :"
            " --left ? setTimeout(look, 50) : fail(new Error('not within 30 s')); look(); })"
        )

    def press(self, key: str, *, shift: bool = False) -> None:
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, modifiers=8 * shift, **(text if kind == "keyDown" else {}),
                     windowsVirtualKeyCode={"Enter": 13, "Tab": 9, "ArrowLeft": 37, "ArrowRight": 39, "Home": 36}.get(key, 0))  # fmt: skip

    def drag(self, begin: tuple[float, float], end: tuple[float, float]) -> None:
        """Press the mouse at one place and release it at another."""
        middle = ((begin[0] + end[0]) / 2, (begin[1] + end[1]) / 2)
        self.ask("Input.dispatchMouseEvent", type="mouseMoved", x=begin[0], y=begin[1])
        self.ask("Input.dispatchMouseEvent", type="mousePressed", x=begin[0], y=begin[1], button="left", clickCount=1)
        for x, y in (middle, end):
            self.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y, button="left", buttons=1)
        self.ask("Input.dispatchMouseEvent", type="mouseReleased", x=end[0], y=end[1], button="left", clickCount=1)

    def complaints(self) -> list[str]:
        """Return uncaught exceptions, and the errors and warnings of the console and of the browser's log."""
        found = []
        for event in self._events():
            params = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                found.append(json.dumps(params["exceptionDetails"]))
            elif event["method"] == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                found.append(params["entry"]["text"])
            elif event["method"] == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
                found.append(json.dumps(params["args"]))
        return found

    def requests(self) -> list[str]:
        """Return every address that the page requested."""
        return [each["params"]["request"]["url"] for each in self._events() if each["method"] == "Network.requestWillBeSent"]

    def screenshot(self, target: Path, *, whole: bool = True) -> None:
        shot = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        target.write_bytes(base64.b64decode(shot["data"]))

    def _events(self) -> Iterator[dict[str, Any]]:
        self.run("0")  # a round trip, after which every earlier event has arrived
        return (event for event in self.browser.events if event.get("sessionId") == self.session)

    def close(self) -> None:
        self.browser.ask("Target.closeTarget", targetId=self.target)


@contextlib.contextmanager
def running() -> Iterator[Browser]:
    """Run a Chromium with an empty profile, and end all its processes after the block."""
    path = program("chromium")
    profile = tempfile.mkdtemp(prefix="gpuwatch-chromium-")
    sandbox = ("--no-sandbox",) if os.geteuid() == 0 else ()
    theirs_in, to = os.pipe()
    of, theirs_out = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", _PIPED, str(theirs_in), str(theirs_out), path, *_FLAGS, *sandbox, f"--user-data-dir={profile}", "about:blank"],
        pass_fds=(theirs_in, theirs_out), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True, env={**os.environ, "HOME": profile},
    )  # fmt: skip
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        yield Browser(process, to, of)
    finally:
        for end in (to, of):
            os.close(end)  # a browser exits when its pipe closes
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(PATIENCE_S)
        shutil.rmtree(profile, ignore_errors=True)
