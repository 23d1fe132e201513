"""Browsers to be driven: each offers the same small interface.

| browser | driven by | needs |
|---|---|---|
| Chromium | WebDriver, and Chrome's own protocol | `chromium`, `chromium-driver` |
| Firefox | WebDriver BiDi | `firefox-esr` |
| WebKitGTK | WebDriver | `webkit2gtk-driver`, `xvfb` |
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

from loadtest.beyond.browsers.firefox import Firefox
from loadtest.beyond.browsers.webdriver import Chromium, WebKit


class Browser(Protocol):
    """A browser without a window. Tabs are called by what `open` returns. One thread at a time may use it.

    name: for people
    can_freeze: has a command that freezes a page, as it does by itself with pages that nobody looks at
    can_disconnect: has a command that takes a page's network away
    survives_a_kill: can still be driven after the process of a page was killed
    ends_requests: over HTTP/2, a request that a page gives up before it is answered ends at the server, too
    """

    name: str
    can_freeze: bool
    can_disconnect: bool
    survives_a_kill: bool
    ends_requests: bool

    def open(self, url: str) -> str:
        """A new tab that loads this page; does not wait for it."""

    def run(self, tab: str, script: str, *arguments: object) -> Any:
        """Run the body of a function in a tab; what it returns must be JSON. `arguments` has its arguments."""

    def close(self, tab: str) -> None:
        """Close a tab."""

    def process(self, tab: str) -> int:
        """The id of the process that runs the tab's page."""

    def freeze(self, tab: str) -> None:
        """Freeze a page: it is told, and then runs no more. Only if `can_freeze`."""

    def thaw(self, tab: str) -> None:
        """Let a frozen page run again."""

    def disconnect(self, tab: str, *, off: bool) -> None:
        """Take away the network of a tab, or give it back. Only if `can_disconnect`."""

    @classmethod
    def started(cls) -> AbstractContextManager[Browser]:
        """Start a browser, until the end of the block."""


BROWSERS: dict[str, type[Browser]] = {"chromium": Chromium, "firefox": Firefox, "webkit": WebKit}
