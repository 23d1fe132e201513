"""A scene: tabs of one browser follow a channel while it is published to and something fails.

Several groups of tabs are there at the same time, so that one fault concerns them all: one for each client (`auto` and
`poll` are transports of pushup.js, `loop` is what most people write) and each front. The tabs of a group share a
request; those of `loop` cannot.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol, Self
from urllib.parse import urlencode

from deploy.cluster import Cluster
from loadtest.beyond.browsers.drivers import Browser
from loadtest.beyond.browsers.proxies import Gateway, Relay, edge
from loadtest.beyond.browsers.stage import held_polls
from loadtest.beyond.browsers.verdict import Verdict, judge

FRONTS = {"plain": "http/1.1", "tls": "h2"}
"""The protocol that a browser speaks with each of HAProxy's fronts."""

LOOP = "loop"
PUSHUP = ("auto", "poll")
CLIENTS = (*PUSHUP, LOOP)

BEGIN_SECONDS = 30.0
"""How long it may take until all tabs are live."""

SETTLE_SECONDS = 60.0
LOOP_SECONDS = 8.0
"""At the end: how long tabs may take to be current, and how long those of `loop` may make no progress."""


@dataclass(eq=False)
class Group:
    """Tabs with one client that use one front, at an origin of their own."""

    client: str
    front: str
    origin: str
    tabs: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.client} {self.front}"


class Plan(Protocol):
    """What a scene needs to know of its scenario."""

    @property
    def tabs(self) -> int: ...
    @property
    def loops(self) -> int: ...
    @property
    def own_channels(self) -> bool: ...


class Scene:
    """moments: for each tab, when it should be current (again), in seconds since the epoch"""

    def __init__(self, cluster: Cluster, browser: Browser, channel: str) -> None:
        self.cluster = cluster
        self.browser = browser
        self.channel = channel
        self.groups: list[Group] = []
        self.relays: list[Relay] = []
        self.moments: dict[str, list[float]] = {}
        self._proxies = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End what belongs to the scene, except for the browser."""
        self._proxies.close()

    # --- before the burst ---

    def origins(self, fronts: Iterable[str], proxy: str, prepare: Callable[[Any], None]) -> dict[str, str]:
        """The origin of each front, with a `relay` or a `gateway` before it if there is to be one."""
        cluster = self.cluster
        if not proxy:
            return {front: cluster.urls[front] for front in fronts}
        kind = Relay if proxy == "relay" else Gateway
        origins = {}
        for front in fronts:
            relay = self._proxies.enter_context(kind(cluster.ports[front if kind is Relay else "plain"]))
            prepare(relay)
            self.relays.append(relay)
            port = relay.port
            if kind is Gateway and front == "tls":
                certificate = cluster.folder / "localhost.pem"
                port = self._proxies.enter_context(edge(port, certificate, cluster.folder))
            origins[front] = f"http://127.0.0.1:{port}" if front == "plain" else f"https://localhost:{port}"
        return origins

    def open(self, clients: Sequence[str], origins: Mapping[str, str], plan: Plan) -> None:
        """Open tabs for each client and front, and wait until all are live."""
        for front, origin in origins.items():
            for client in clients:
                group = Group(client, front, origin)
                for number in range(plan.loops if client == LOOP else plan.tabs):
                    channels = [self.channel, *([f"{self.channel}-{number}"] if plan.own_channels else [])]
                    query = urlencode({"client": client, "channel": channels, "tab": number}, doseq=True)
                    group.tabs.append(self.browser.open(f"{origin}/page.html?{query}"))
                self.groups.append(group)
        for group in self.groups:
            self._await_live(group)

    def _await_live(self, group: Group) -> None:
        ready = (
            "return [window.count && (!window.push || sub.state.state),"
            " performance.getEntriesByType('navigation')[0]?.nextHopProtocol]"
        )
        is_loop = group.client == LOOP
        deadline = time.monotonic() + BEGIN_SECONDS
        expected = [True if is_loop else "live", FRONTS[group.front]]
        for tab in group.tabs:
            while (state := self.browser.run(tab, ready)) != expected:
                if is_loop and len(group.tabs) > 1 and time.monotonic() > deadline - BEGIN_SECONDS + LOOP_SECONDS:
                    break  # six connections for all tabs: the others do not even load
                assert time.monotonic() < deadline, f"{group}: {state}, {self._report(tab)}"
                time.sleep(0.1)

    # --- during the burst ---

    def moment(self, *tabs: str) -> None:
        """From now on these tabs, by default all, should be current."""
        for tab in tabs or [tab for group in self.groups for tab in group.tabs]:
            self.moments.setdefault(tab, []).append(time.time())

    def leader(self, group: Group) -> str:
        """The tab that has the request; of a loop, the first one."""
        if group.client == LOOP:
            return group.tabs[0]
        deadline = time.monotonic() + BEGIN_SECONDS
        while True:
            for tab in group.tabs:
                if self.browser.run(tab, "return push.lead.state") == "leading":
                    return tab
            assert time.monotonic() < deadline, f"{group}: no tab leads"

    def forget(self, group: Group, tab: str) -> None:
        """A tab is closed or dead: it is not judged."""
        group.tabs.remove(tab)
        self.moments.pop(tab, None)

    # --- after the burst ---

    def settle(self, messages: int) -> None:
        """Wait until all tabs have everything, or will not get it any more."""
        tabs = {tab: group.client == LOOP for group in self.groups for tab in group.tabs}
        shown = dict.fromkeys(tabs, -1)
        since = time.monotonic()
        deadline = since + SETTLE_SECONDS
        while time.monotonic() < deadline:
            for tab in [*tabs]:
                before, shown[tab] = shown[tab], self.browser.run(tab, "return window.count ? count() : 0")
                if shown[tab] != before:
                    since = time.monotonic()
                if shown[tab] >= messages:
                    del tabs[tab]
            if not tabs or (all(tabs.values()) and time.monotonic() > since + LOOP_SECONDS):
                return
            time.sleep(0.1)

    def judged(self, acknowledged: Sequence[float]) -> Iterator[tuple[Group, Verdict]]:
        """The verdict on each tab."""
        for group in self.groups:
            for tab in group.tabs:
                told = self.browser.run(tab, "return window.told ? told() : []")
                yield group, judge(acknowledged, told, self.moments.get(tab, []))

    def reports(self) -> Iterator[Any]:
        """For each tab, in the same order, what pushup.js noted last."""
        for group in self.groups:
            for tab in group.tabs:
                yield self._report(tab)

    def _report(self, tab: str) -> Any:
        return self.browser.run(tab, "return window.push ? push.report().slice(-12) : []")

    def held_one_each(self) -> str:
        """An error unless soon each group of pushup.js has one request, and each loop its own unless it repeats it."""
        least = sum(group.client != LOOP for group in self.groups)
        return self._held(least, self._most_held)

    def held_at_most(self) -> str:
        """An error unless soon there are no more. To be called after one more message.

        Over HTTP/2, WebKitGTK holds a poll that was given up until it is answered. And there may be fewer for half a
        minute, since it does not notice that a connection with a stream was cut.
        """
        return self._held(0, self._most_held)

    @property
    def _most_held(self) -> int:
        return sum(len(group.tabs) if group.client == LOOP else 1 for group in self.groups)

    def _held(self, least: int, most: int) -> str:
        deadline = time.monotonic() + LOOP_SECONDS
        while not least <= (held := held_polls(self.cluster)) <= most:
            if time.monotonic() > deadline:
                return f"{held} requests are held instead of {least} to {most}"
            time.sleep(0.1)
        return ""
