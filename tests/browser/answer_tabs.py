"""Tabs of a browser that show an answer: what the user does, and what each shows."""

from __future__ import annotations

from selenium import webdriver

from tests.server.server_process import wait_until

SECONDS = 20.0

CUT_OFF = "The answer was cut off."


class Tabs:
    """Pages of the site at `url`."""

    def __init__(self, browser: webdriver.Chrome, url: str) -> None:
        self.browser = browser
        self._url = url
        self.tabs: list[str] = []

    def open(self, *names: str) -> None:
        """A tab for each page; the first is the current one of the browser."""
        for name in names:
            if self.tabs:
                self.browser.switch_to.new_window("tab")
            self.browser.get(f"{self._url}/{name}")
            self.tabs.append(self.browser.current_window_handle)

    def _run(self, tab: int, script: str) -> str:
        self.browser.switch_to.window(self.tabs[tab])
        return str(self.browser.execute_script(script))

    def reload(self, tab: int) -> None:
        self.browser.switch_to.window(self.tabs[tab])
        self.browser.refresh()

    def click(self, tab: int, what: str) -> None:
        """What the user does: `send` or `stop`."""
        wait_until(lambda: self._run(tab, f"return typeof window.{what}") == "function", "the page")
        self._run(tab, f"{what}()")

    def text(self, tab: int) -> str:
        return self._run(tab, "return document.getElementById('text').textContent")

    def end(self, tab: int) -> str:
        return self._run(tab, "return document.getElementById('end').textContent")

    def expect(self, text: str) -> None:
        """All tabs soon show exactly this."""
        for tab in range(len(self.tabs)):
            wait_until(lambda tab=tab: len(self.text(tab)) >= len(text), f"the text in tab {tab}", SECONDS)  # type: ignore[misc]
            assert self.text(tab) == text

    def expect_end(self, text: str, end: str) -> None:
        """All tabs end so, with this text."""
        for tab in range(len(self.tabs)):
            assert (self.ended(tab), self.text(tab)) == (end, text)

    def ended(self, tab: int, seconds: float = SECONDS) -> str:
        """How the answer ended there; waits for that."""
        wait_until(lambda: self.end(tab) != "", f"the end in tab {tab}", seconds)
        return self.end(tab)
