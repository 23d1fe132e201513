"""pushup.js in Chromium behind HAProxy: tabs with one request, and reloads and failures in the middle of a burst."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
from selenium import webdriver

from deploy.cluster import Cluster
from tests.deploy.conversations import caller, held, publish, wait_until
from tests.server.chromium import chromium

TABS = 8
MESSAGES = 100
SECONDS = 30.0
"""Until a page must have everything."""

SUBSCRIBE = """
const [channel, cursor, options] = arguments;
window.states = [];
import("/v1/pushup.js").then(({ PushUp }) => {
  window.push = new PushUp(options);
  const add = (kind, value) => {
    const told = JSON.parse(localStorage[window.name] ?? '{"got": [], "gaps": []}');
    told[kind].push(value);
    localStorage[window.name] = JSON.stringify(told);
  };
  push.subscribe([channel], {
    ...(cursor && {cursor}),
    onMessage: message => add("got", message.data),
    onGap: gap => add("gaps", gap.reason),
    onState: ({state}) => states.push(state),
  });
});
"""
"""Keeps what a tab was told in localStorage under its name, where a reload leaves it and any tab can read it."""


@pytest.fixture(scope="session")
def _driver() -> Iterator[webdriver.Chrome]:
    with chromium("ignore-certificate-errors") as driver:
        yield driver


class Tabs:
    """Tabs of one origin that subscribe to one channel."""

    def __init__(self, driver: webdriver.Chrome, url: str, channel: str) -> None:
        self.driver = driver
        self._url = url
        self._channel = channel
        self.names: dict[str, str] = {}
        driver.get(f"{url}/v1/cursor")
        driver.execute_script("localStorage.clear(); sessionStorage.clear()")
        self._first = driver.current_window_handle

    def open(self, cursor: str, **options: object) -> str:
        """Open a tab; returns its handle."""
        self.driver.switch_to.new_window("tab")
        handle = self.driver.current_window_handle
        self.names[handle] = f"tab {len(self.names)}"
        self.driver.get(f"{self._url}/v1/cursor")
        self.driver.execute_script("window.name = arguments[0]", self.names[handle])
        self.subscribe(cursor, **options)
        return handle

    def subscribe(self, cursor: str, **options: object) -> None:
        """Subscribe in the current tab; without a cursor, where it stopped."""
        self.driver.execute_script(SUBSCRIBE, self._channel, cursor, options)
        wait_until(lambda: self.states()[-1:] == ["live"], "the page to be live")

    def states(self) -> list[str]:
        states: list[str] = self.driver.execute_script("return states")
        return states

    def told(self) -> dict[str, dict[str, list[object]]]:
        """What each tab was told, by its name."""
        texts: dict[str, str] = self.driver.execute_script("return {...localStorage}")
        return {name: json.loads(text) for name, text in texts.items() if name in self.names.values()}

    def check(self, expected: list[object], names: list[str] | None = None) -> None:
        """Each of these tabs gets these messages, once and in order, and no gap."""
        names = list(self.names.values()) if names is None else names
        deadline = time.monotonic() + SECONDS
        while any(len(self.told().get(name, {"got": []})["got"]) < len(expected) for name in names):
            if time.monotonic() > deadline:
                break
            time.sleep(0.1)
        told = self.told()
        assert {name: told[name]["got"] for name in names} == dict.fromkeys(names, expected)
        assert {name: told[name]["gaps"] for name in names} == {name: [] for name in names}

    def close(self) -> None:
        for handle in self.driver.window_handles:
            if handle != self._first:
                self.driver.switch_to.window(handle)
                self.driver.close()
        self.driver.switch_to.window(self._first)
        self.driver.get("about:blank")


@pytest.fixture
def open_tabs(_driver: webdriver.Chrome, cluster: Cluster, stack: ExitStack, channel: str) -> Callable[[str], Tabs]:
    def open_tabs(front: str) -> Tabs:
        tabs = Tabs(_driver, cluster.urls[front], channel)
        stack.callback(tabs.close)
        return tabs

    return open_tabs


@contextmanager
def burst(cluster: Cluster, channel: str, count: int, pause: float) -> Iterator[None]:
    """Publish these many messages, one after the other, from the beginning of the block to its end at the latest."""

    def run() -> None:
        for number in range(count):
            assert publish(cluster, [channel], number, f"{channel}-{number}").status == 201
            time.sleep(pause)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _cursor(cluster: Cluster, stack: ExitStack) -> str:
    return caller(cluster.urls["plain"], stack).cursor()


def _wait_for_one(cluster: Cluster) -> None:
    wait_until(lambda: sum(held(cluster).values()) == 1, "a single request")


@pytest.mark.parametrize("front", ["plain", "tls"])
def test_tabs_share_one_request(
    cluster: Cluster, stack: ExitStack, channel: str, open_tabs: Callable[[str], Tabs], front: str
) -> None:
    """Eight tabs get everything over one request; also when the tab that has it is closed."""
    tabs, cursor = open_tabs(front), _cursor(cluster, stack)
    handles = [tabs.open(cursor) for _ in range(TABS)]
    _wait_for_one(cluster)
    with burst(cluster, channel, MESSAGES, 0.01):
        time.sleep(MESSAGES * 0.005)
        tabs.driver.switch_to.window(handles[0])
        tabs.driver.close()
        tabs.driver.switch_to.window(handles[1])
    tabs.check(list(range(MESSAGES)), [tabs.names[handle] for handle in handles[1:]])
    _wait_for_one(cluster)  # the request of the tab that was closed may end a moment later


@pytest.mark.parametrize("transport", ["stream", "poll"])
def test_a_reload_loses_nothing(
    cluster: Cluster, stack: ExitStack, channel: str, open_tabs: Callable[[str], Tabs], transport: str
) -> None:
    """A page that is reloaded in a burst goes on where it stopped."""
    tabs = open_tabs("plain")
    tabs.open(_cursor(cluster, stack), transport=transport)
    with burst(cluster, channel, MESSAGES, 0.02):
        for _ in range(3):
            time.sleep(0.3)
            tabs.driver.refresh()
            tabs.subscribe("", transport=transport)
    tabs.check(list(range(MESSAGES)))


@pytest.mark.parametrize("transport", ["stream", "poll"])
def test_a_node_that_is_killed(
    cluster: Cluster, stack: ExitStack, channel: str, open_tabs: Callable[[str], Tabs], transport: str
) -> None:
    """Whichever node had the request: the page goes on at another one."""
    tabs = open_tabs("plain")
    tabs.open(_cursor(cluster, stack), transport=transport)
    _wait_for_one(cluster)  # a page that polls is live before its first poll that is held
    (node,) = [name for name, count in held(cluster).items() if count]
    with burst(cluster, channel, MESSAGES, 0.01):
        time.sleep(0.4)
        cluster.kill_part(node)
        time.sleep(0.4)
        cluster.start_part(node)
    tabs.check(list(range(MESSAGES)))


def test_haproxy_is_away_for_a_while(
    cluster: Cluster, stack: ExitStack, channel: str, open_tabs: Callable[[str], Tabs]
) -> None:
    """Tabs say that they are offline, and are current soon after; what was published meanwhile comes first."""
    tabs, cursor = open_tabs("plain"), _cursor(cluster, stack)
    for _ in range(3):
        tabs.open(cursor)
    publish(cluster, [channel], 0)
    tabs.check([0])
    cluster.kill_part("haproxy")
    try:
        wait_until(lambda: tabs.states()[-1] == "offline", "the page to notice")
        for number in range(1, 20):
            assert publish(cluster, [channel], number, at="node1").status == 201
    finally:
        cluster.start_part("haproxy")
    tabs.check(list(range(20)))
    wait_until(lambda: tabs.states()[-1] == "live", "the page to be live again")
