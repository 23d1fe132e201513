"""push.presence in two browsers with a real server: who is there, over tabs, reloads and pages that close."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest
from selenium import webdriver

from pushup.client import Client, ClientError
from tests.browser.tabs import in_tab, wait_in_tab, web_site
from tests.server.chromium import chromium
from tests.server.document_samples import sample
from tests.server.redis_server import free_port
from tests.server.server_process import Server, running, set_flags
from tests.server.token_issuer import SETTINGS, TokenIssuer

PAGE = """<!doctype html><title>page</title><script type=module>
import { PushUp } from "./pushup.js";
const query = new URLSearchParams(location.search);
window.changes = [];
window.push = new PushUp({ url: "http://%s", user: query.get("user"), token: query.get("token") });
const names = members => members.map(({ subject }) => subject).join();
window.presence = push.presence("room:1", {
  onChange({ joined, updated, left }) {
    const change = [["+", joined], ["=", updated], ["-", left]].filter(([, all]) => all.length);
    if (change.length) changes.push(change.map(([sign, all]) => sign + names(all)).join(" "));
  },
});
window.there = () => presence.members && [...presence.members.values()].map(({ data }) => data.name).join();
</script>"""

POLICY = sample("docs/guide/presence.md", "[[channels]]")

GRACE = 30.0
"""The setting; what the test waits for is much shorter."""


@pytest.fixture
def browsers() -> Iterator[tuple[webdriver.Chrome, webdriver.Chrome]]:
    with chromium() as first, chromium() as second:
        yield first, second


class Room:
    """A server with presence, and the site with the page."""

    def __init__(self, folder: Path, stack: ExitStack, **settings: str) -> None:
        (folder / "pushup.toml").write_text(POLICY)
        address = f"127.0.0.1:{free_port()}"
        self.site = stack.enter_context(web_site(folder / "site", PAGE % address))
        flags = set_flags({"cors_origins": self.site, **SETTINGS, **settings})
        given = ("--config", str(folder / "pushup.toml"), "--listen", address)
        self.server: Server = stack.enter_context(running(folder / "log", (*given, *flags)))

    def token(self, name: str) -> str:
        return TokenIssuer(600, name.lower(), poll=["room:*"], presence={"name": name}).token()

    def open(self, browser: webdriver.Chrome, name: str) -> str:
        """The page in a new tab; returns that."""
        browser.switch_to.new_window("tab")
        browser.get(f"{self.site}/page.html?user={name}&token={self.token(name)}")
        tab = browser.current_window_handle
        wait_in_tab(browser, tab, "presence.state.state", "live")
        return tab


def close(browser: webdriver.Chrome, tab: str) -> None:
    browser.switch_to.window(tab)
    browser.close()
    browser.switch_to.window(browser.window_handles[0])


def test_two_browsers(browsers: tuple[webdriver.Chrome, webdriver.Chrome], tmp_path: Path) -> None:
    """Two tabs of a user are one member; nobody leaves while one is reloaded, or the one that leads is closed. Who
    closes the last page, or its presence, leaves within seconds. A program sees what the pages see."""
    anns, bobs = browsers
    with ExitStack() as stack:
        room = Room(tmp_path, stack)
        first = room.open(anns, "Ann")
        wait_in_tab(anns, first, "there()", "Ann")
        bob = room.open(bobs, "Bob")
        second = room.open(anns, "Ann")
        for browser, tab in ((anns, first), (anns, second), (bobs, bob)):
            wait_in_tab(browser, tab, "there()", "Ann,Bob")
        assert room.server.metric("streams") == 2
        reader = stack.enter_context(Client(room.server.url, token=room.token("Eve")))
        members = reader.presence("room:1")
        assert members.members is not None
        assert [(each.subject, each.data) for each in members.members.values()] == [
            ("ann", {"name": "Ann"}),
            ("bob", {"name": "Bob"}),
        ]

        in_tab(bobs, bob, "changes.length = 0")
        in_tab(anns, second, "location.reload()")
        wait_in_tab(anns, second, "there()", "Ann,Bob")
        close(anns, first)
        time.sleep(4)  # a page that closes leaves in 3 s
        assert in_tab(bobs, bob, "there()") == "Ann,Bob"
        assert in_tab(bobs, bob, "changes") == []

        began = time.monotonic()
        close(anns, second)
        wait_in_tab(bobs, bob, "changes", ["-ann"])
        third = room.open(anns, "Ann")
        wait_in_tab(bobs, bob, "there()", "Bob,Ann")
        in_tab(bobs, bob, "presence.close()")
        wait_in_tab(anns, third, "there()", "Ann")
        assert time.monotonic() - began < GRACE / 2

        seen: list[Any] = []
        for item in reader.follow("room:1", members.cursor):
            assert members.update(item)
            seen.append(list(members.members))
            if seen[-1] == ["ann"]:
                break
        assert seen[:3] == [["bob"], ["bob", "ann"], ["ann"]]
        close(anns, third)


HIDDEN = """
const pass = window.fetch;
window.fetch = async (url, options) => {
  const answer = await pass(url, options);
  window.isHidden = Boolean(options.body) && JSON.parse(options.body).hidden === true;
  return answer;
};
"""
"""`isHidden`: whether the last request that was answered has said so."""


def test_a_hidden_page_has_the_longer_grace(
    browsers: tuple[webdriver.Chrome, webdriver.Chrome], tmp_path: Path
) -> None:
    """Two browsers are killed at the same moment. The one in view has left after the grace, the minimized one later."""
    with ExitStack() as stack:
        room = Room(tmp_path, stack, presence_grace_seconds="2s", presence_hidden_seconds="9s")
        reader = stack.enter_context(Client(room.server.url, token=room.token("Eve")))
        for browser, name, is_hidden in zip(browsers, ("Ann", "Bob"), (True, False), strict=True):
            tab = room.open(browser, name)
            browser.execute_script(HIDDEN)
            if is_hidden:
                browser.minimize_window()
                wait_in_tab(browser, tab, "window.isHidden", True)
            wait_in_tab(browser, tab, "document.visibilityState", "hidden" if is_hidden else "visible")
        for browser in browsers:
            for process in psutil.Process(browser.service.process.pid).children(recursive=True):
                process.kill()
        began = time.monotonic()
        left: dict[str, float] = {}
        while len(left) < 2:
            time.sleep(0.1)
            there = reader.presence("room:1").members or {}
            for user in {"ann", "bob"} - there.keys() - left.keys():
                left[user] = time.monotonic() - began
            assert time.monotonic() - began < 20
    assert 2 < left["bob"] < 2 + 6
    assert 9 < left["ann"] < 9 + 6


def test_the_sample_for_programs(tmp_path: Path) -> None:
    """It prints who comes, itself first."""
    with ExitStack() as stack:
        room = Room(tmp_path, stack)
        bob = stack.enter_context(Client(room.server.url, token=room.token("Bob")))
        told: list[tuple[int, list[str]]] = []

        def print_(count: int, names: list[str]) -> None:
            told.append((count, names))
            if count == 2:
                namespace["client"].stop()
            else:
                bob.poll("room:1", "now", 0)

        namespace: dict[str, Any] = {"token": room.token("Ann"), "print": print_}
        text = sample("docs/guide/presence.md", "from pushup.client").replace("http://127.0.0.1:8080", room.server.url)
        with pytest.raises(ClientError, match="the client was stopped"):  # by the next `presence`
            exec(text, namespace)
        namespace["client"].close()
        assert told == [(1, ["ann"]), (2, ["ann", "bob"])]
