"""What happens while pages follow a channel. Each scenario is a function on a running scene; it takes some seconds."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from loadtest.beyond.browsers.drivers import Browser
from loadtest.beyond.browsers.proxies import Gateway, Relay
from loadtest.beyond.browsers.scene import Group, Scene

AWAY_SECONDS = 2.0
OFFLINE_SECONDS = 4.0
REFUSED_SECONDS = 3.0
HANG_SECONDS = 12.0
"""Longer than it takes until another tab leads."""

SILENT_SECONDS = 45.0
"""Longer than it takes until a silent connection is noticed: 30 s for a stream, 40 s for a poll."""

ONE_WAY_SECONDS = 1.0
TIMES = 3
"""How often a page is reloaded, or left and returned to."""

NEXT_SECONDS = 1.5
"""From one fault of a scene to the next of the same kind."""

LOAD_SECONDS = 20.0


@dataclass(frozen=True)
class Scenario:
    """title: what happens, for people
    happen: returns when it is over; it notes the moments from which on pages should be current
    lasts: about how many seconds that takes
    tabs: of each group of pushup.js
    loops: tabs of the loop; 0 if there is nothing to compare
    proxy: what is between browser and HAProxy: nothing, a `relay` or a `gateway`
    prepare: what that does from the beginning on
    fits: whether this browser can take part
    own_channels: whether each tab has a channel of its own, beside the common one
    apart: whether each front, and the loop, has a scene of its own: with so many tabs
    """

    title: str
    happen: Callable[[Scene], None]
    lasts: float = 5.0
    tabs: int = 2
    loops: int = 1
    proxy: str = ""
    prepare: Callable[[Any], None] = lambda _: None
    fits: Callable[[type[Browser]], bool] = lambda _: True
    apart: bool = False
    own_channels: bool = False

    def proxy_for(self, browser: Browser) -> str:
        """What takes the network away from a browser that cannot do that itself is a proxy."""
        return "relay" if self.happen is disconnect and not browser.can_disconnect else self.proxy


# --- the service ---


def kill_nodes(scene: Scene) -> None:
    for node in scene.cluster.nodes:
        scene.cluster.kill_part(node)
        scene.moment()
        time.sleep(NEXT_SECONDS)
        scene.cluster.start_part(node)
        time.sleep(NEXT_SECONDS)


def drain_nodes(scene: Scene) -> None:
    for node in scene.cluster.nodes:
        scene.cluster.stop_part(node)
        scene.moment()
        scene.cluster.start_part(node)
        time.sleep(NEXT_SECONDS)


def take_redis_away(scene: Scene) -> None:
    scene.cluster.kill_part("redis")
    time.sleep(AWAY_SECONDS)
    scene.cluster.start_part("redis")
    scene.moment()


def reload_haproxy(scene: Scene) -> None:
    for _ in range(2):
        scene.cluster.reload_haproxy()
        scene.moment()
        time.sleep(NEXT_SECONDS)


def take_haproxy_away(scene: Scene) -> None:
    scene.cluster.kill_part("haproxy")
    time.sleep(AWAY_SECONDS)
    scene.cluster.start_part("haproxy")
    scene.moment()


# --- proxies ---


def cut_after(seconds: float) -> Callable[[Relay], None]:
    def prepare(relay: Relay) -> None:
        relay.cut_after = seconds

    return prepare


def stay(seconds: float) -> Callable[[Scene], None]:
    """The proxy is in the way all the time."""

    def happen(scene: Scene) -> None:
        for _ in range(4):
            scene.moment()
            time.sleep(seconds / 4)

    return happen


def delay(relay: Relay) -> None:
    relay.delay = ONE_WAY_SECONDS


def refuse_for_a_while(scene: Scene) -> None:
    for gateway in scene.relays:
        assert isinstance(gateway, Gateway)
        gateway.refuses = True
        gateway.cut()
    time.sleep(REFUSED_SECONDS)
    for gateway in scene.relays:
        assert isinstance(gateway, Gateway)
        gateway.refuses = False
    scene.moment()


def fall_silent(scene: Scene) -> None:
    for relay in scene.relays:
        relay.fall_silent()
    scene.moment()
    time.sleep(SILENT_SECONDS)


# --- the network of the browser ---


def disconnect(scene: Scene) -> None:
    """By the browser's own command if it has one, else at a relay."""
    browser = scene.browser
    tabs = [tab for group in scene.groups for tab in group.tabs]
    if browser.can_disconnect:
        for tab in tabs:
            browser.disconnect(tab, off=True)
    else:
        for relay in scene.relays:
            relay.go_away()
    time.sleep(OFFLINE_SECONDS)
    if browser.can_disconnect:
        for tab in tabs:
            browser.disconnect(tab, off=False)
    else:
        for relay in scene.relays:
            relay.come_back()
    scene.moment()


# --- tabs ---


def close_leaders(scene: Scene) -> None:
    for group in scene.groups:
        leader = scene.leader(group)
        scene.browser.close(leader)
        scene.forget(group, leader)
        scene.moment(*group.tabs)


def freeze_leaders(scene: Scene) -> None:
    """By the browser's command: the page is told."""
    leaders = [(group, scene.leader(group)) for group in scene.groups]
    for group, leader in leaders:
        scene.browser.freeze(leader)
        _followers_should_be_current(scene, group, leader)
    time.sleep(OFFLINE_SECONDS)
    for _, leader in leaders:
        scene.browser.thaw(leader)
        scene.moment(leader)


def hang_leaders(scene: Scene) -> None:
    """The process of each page is stopped: the page is told nothing, and neither are the other tabs."""
    leaders = _leaders(scene)
    for group, leader, process in leaders:
        os.kill(process, signal.SIGSTOP)
        _followers_should_be_current(scene, group, leader)
    time.sleep(HANG_SECONDS)
    for _, leader, process in leaders:
        os.kill(process, signal.SIGCONT)
        scene.moment(leader)


def kill_leaders(scene: Scene) -> None:
    for group, leader, process in _leaders(scene):
        os.kill(process, signal.SIGKILL)
        scene.forget(group, leader)
        scene.moment(*group.tabs)


def reload_pages(scene: Scene) -> None:
    for _ in range(TIMES):
        _leave(scene, "location.reload()")
        time.sleep(NEXT_SECONDS)


def go_away_and_back(scene: Scene) -> None:
    for _ in range(TIMES):
        _leave(scene, "location.assign(`/other.html?${Math.random()}`)")
        _leave(scene, "history.back()")
        time.sleep(NEXT_SECONDS)


def _leaders(scene: Scene) -> list[tuple[Group, str, int]]:
    """Each group, the tab that leads in it, and the process of that."""
    leaders = [(group, scene.leader(group)) for group in scene.groups]
    return [(group, leader, scene.browser.process(leader)) for group, leader in leaders]


def _followers_should_be_current(scene: Scene, group: Group, leader: str) -> None:
    followers = [tab for tab in group.tabs if tab != leader]
    if followers:
        scene.moment(*followers)


def _leave(scene: Scene, how: str) -> None:
    """Make all pages leave, and wait until they have: until other documents are there."""
    tabs = [tab for group in scene.groups for tab in group.tabs]
    mark = f"{how} {time.monotonic()}"
    leave = f"const {{port1, port2}} = new MessageChannel(); port1.onmessage = () => {how}; port2.postMessage(0)"
    for tab in tabs:
        scene.moment(tab)
        scene.browser.run(tab, f"window.mark = arguments[0]; {leave}", mark)  # a timer of a hidden tab would be late
    deadline = time.monotonic() + LOAD_SECONDS
    stays = "return window.mark === arguments[0] || document.readyState === 'loading'"
    for tab in tabs:
        while scene.browser.run(tab, stays, mark):
            assert time.monotonic() < deadline, f"a page does not leave: {how}"
            time.sleep(0.01)


SCENARIOS = {
    "node-killed": Scenario("a node is killed, then the other", kill_nodes, lasts=8),
    "node-drained": Scenario("a node is drained and restarted, then the other", drain_nodes, lasts=8),
    "redis-away": Scenario("Redis away for 2 s", take_redis_away, lasts=3),
    "haproxy-reloaded": Scenario("HAProxy reloaded, twice", reload_haproxy, lasts=4),
    "haproxy-away": Scenario("HAProxy away for 2 s", take_haproxy_away, lasts=3),
    "buffering": Scenario("a proxy that buffers whole responses", stay(4.0), lasts=4, proxy="gateway"),
    "cutting": Scenario("a proxy that cuts every 20 s", stay(20.0), lasts=20, proxy="relay", prepare=cut_after(20.0)),
    "cutting-often": Scenario("a proxy that cuts every 4 s", stay(8.0), lasts=8, proxy="relay", prepare=cut_after(4.0)),
    "slow": Scenario("a proxy that adds 2 s", stay(10.0), lasts=20, proxy="relay", prepare=delay),
    "bad-gateway": Scenario("a proxy that answers 502 for 3 s", refuse_for_a_while, lasts=3, proxy="gateway"),
    "silent": Scenario("connections silently dead", fall_silent, lasts=SILENT_SECONDS, proxy="relay"),
    "offline": Scenario("network off for 4 s", disconnect),
    "eight-tabs": Scenario(
        "eight tabs of one channel, the leader closed", close_leaders, lasts=1, tabs=8, loops=8, apart=True
    ),
    "eight-channels": Scenario(
        "eight tabs of different channels", stay(4.0), tabs=8, loops=8, apart=True, own_channels=True
    ),
    "leader-frozen": Scenario(
        "the leader frozen for 4 s", freeze_leaders, tabs=3, fits=lambda browser: browser.can_freeze
    ),
    "leader-hangs": Scenario("the leader hangs for 12 s", hang_leaders, lasts=15, tabs=3),
    "leader-killed": Scenario(
        "the leader killed", kill_leaders, lasts=3, tabs=3, loops=0, fits=lambda browser: browser.survives_a_kill
    ),
    "reload": Scenario("reloaded three times", reload_pages, lasts=8),
    "back": Scenario("left and back, three times", go_away_and_back, lasts=8),
}
