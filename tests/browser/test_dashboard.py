"""The dashboard in Chromium, with real servers: what it shows is true, and hostile text stays text."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver

from tests.server.caller import Caller
from tests.server.chromium import chromium
from tests.server.redis_cluster import RedisCluster
from tests.server.redis_server import RedisServer, free_port
from tests.server.server_process import running, wait_until

KEY = "a-publish-key-of-27-letters"
OTHER_KEY = "another-key-of-25-letters"
AUTHORIZED = {"Authorization": f"Bearer {KEY}"}

HOSTILE = '<img src=x onerror="window.hacked = 1"><script>window.hacked = 1</script>'

SIZE = len(json.dumps(HOSTILE))
"""In bytes, as data."""

VIOLATIONS = """
window.violations = [];
document.addEventListener("securitypolicyviolation", event => violations.push(event.violatedDirective));
"""

HOLD = """
const call = fetch;
window.fetch = async (url, init) => {
  const answer = await call(url, init);
  if (`${url} ${init.method}`.includes(window.held)) await new Promise(release => window.release = release);
  return answer;
};
"""
"""Answers to calls whose address and method contain `held` wait for `release()`."""

PHONE = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}


class Page:
    """The dashboard, as an operator uses it."""

    def __init__(self, browser: webdriver.Chrome) -> None:
        self._browser = browser
        browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": VIOLATIONS})

    def open(self, origin: str) -> None:
        self._browser.get(f"{origin}/dashboard")

    def do(self, script: str, *arguments: object) -> Any:
        """What a script in the page returns, in which `$` finds an element by its id."""
        return self._browser.execute_script(f"const $ = id => document.getElementById(id); {script}", *arguments)

    def text(self, place: str) -> str:
        """The visible text of an element with this id."""
        return str(self.do("return $(arguments[0]).innerText", place))

    def rows(self, table: str) -> list[list[str]]:
        """The texts of the cells of a table."""
        cells = "[...$(arguments[0]).rows].map(row => [...row.cells].map(cell => cell.textContent))"
        return list(self.do(f"return {cells}", table))

    def submit(self, form: str, /, **fields: str) -> None:
        """Fill in a form, and send it."""
        fill = "for (const [id, value] of Object.entries(arguments[1])) $(id).value = value;"
        self.do(f"{fill} $(arguments[0]).requestSubmit()", form, fields)

    def wait(self, place: str, words: str) -> None:
        """Wait for these words in the visible text of an element."""
        wait_until(lambda: words in self.text(place), f"{words!r} in {place}")

    def set_size(self, size: dict[str, int]) -> None:
        self._browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


@pytest.fixture
def page() -> Iterator[Page]:
    with chromium() as browser:
        yield Page(browser)


def test_an_operator_with_a_key(page: Page, tmp_path: Path) -> None:
    """At `operator_listen`: no key, a wrong one, the right one; then every panel, with hostile names and data."""
    theirs = f"127.0.0.1:{free_port()}"
    flags = ("--set", f"operator_listen={theirs}", "--set", "node_name=one", "--set", "retention_messages=3")
    environment = {"PUSHUP_PUBLISH_KEYS": f"ops {KEY}"}
    with running(tmp_path / "log", flags, environment) as server, server.caller() as caller, Caller(theirs) as operator:

        def publish(channel: str, data: object) -> str:
            body = {"channels": [channel], "data": data}
            return str(caller.call("POST", "/v1/messages", body, AUTHORIZED).value["id"])

        evicted, *_kept = [publish("old", n) for n in range(4)]
        publish(HOSTILE, HOSTILE)
        publish("news", {"n": 1})
        publish("news", {"n": 2})
        assert caller.call("POST", "/v1/messages", {"channels": ["a"], "data": 1}).status == 401

        page.open(f"http://{theirs}")
        page.wait("key-error", "401: this server needs a publish key")
        page.submit("key-form", key=OTHER_KEY)
        page.wait("key-error", "403: this publish key is unknown")
        assert page.text("health") == "asks for a key"
        assert page.rows("nodes") == []
        page.submit("key-form", key=KEY)
        wait_until(lambda: len(page.rows("channels")) == 3, "the channels")
        assert not page.do("return $('key-form').checkVisibility()")
        assert page.text("health") == "ready"

        [node] = operator.call("GET", "/v1/nodes", headers=AUTHORIZED).value["nodes"]
        assert page.rows("nodes") == [["one", node["version"], "0", "0", server.address]]
        assert page.rows("channels") == [
            ["news", "0", "2", "16 B"], [HOSTILE, "0", "1", f"{SIZE} B"], ["old", "0", "3", "3 B"],
        ]  # fmt: skip
        refused = [row for row in page.rows("refusals") if row[1] == "unauthorized"]
        assert refused == [["request refused", "unauthorized", "0", refused[0][3]]]
        assert page.do("return $('refusals').innerText.includes('forbidden')")

        # A channel: what is kept, what comes, and what is published here.
        page.submit("open", name=HOSTILE)
        page.wait("live", "live")
        page.wait("messages", "window.hacked = 1")
        page.wait("about", f"Subscribers: 1, with this page; messages kept: 1, {SIZE} B.")
        publish(HOSTILE, "later")
        page.wait("messages", '"later"')
        page.submit("publish", data='{"a": ', form="json")
        page.wait("published", "This is not JSON")
        page.submit("publish", data=HOSTILE, form="text", event="tick")
        page.wait("published", "Published: ")
        page.wait("messages", "event tick")
        assert page.do("return $('messages').childElementCount") == 3

        # What became of a message.
        page.do("$('published').querySelector('button').click()")
        page.wait("trace", f"with key ops, {SIZE} bytes")
        assert "kept" in page.text("trace").split()
        page.submit("why", id=evicted, cursor=evicted)
        page.wait("trace", "evicted because of retention_messages")
        page.wait("trace", "at the message or after it")
        page.submit("why", id="other-7", cursor="")
        page.wait("why-card", "404: no message has this id")

        # Answers that come late change nothing of what is shown meanwhile.
        page.do(f"window.held = 'v1/messages POST'; {HOLD}")
        page.submit("publish", data="late", form="text", event="")
        wait_until(lambda: page.do("return Boolean(window.release)"), "the answer")
        page.do("[...$('channels').querySelectorAll('button')].find(each => each.textContent === 'news').click()")
        page.do("$('data').value = 'for news'; release(); window.release = undefined")
        page.do("window.held = arguments[0]", evicted)
        page.submit("why", id=evicted, cursor="")
        wait_until(lambda: page.do("return Boolean(window.release)"), "the answer")
        page.submit("why", id="other-7", cursor="")
        page.wait("why-card", "404: no message has this id")
        page.do("release()")

        page.wait("messages", '{"n":1}')
        assert page.do("return $('messages').childElementCount") == 2
        assert page.text("channel") == "news"
        assert page.do("return [$('data').value, $('published').innerText]") == ["for news", ""]
        assert page.text("trace") == ""

        assert page.do("return [window.hacked, document.images.length, document.scripts.length]") == [None, 0, 1]
        assert page.do("return violations") == []
        page.set_size(PHONE)
        places = "[...document.querySelectorAll('html, .card, .scroll, #messages')]"
        assert page.do(f"return {places}.filter(each => each.scrollWidth > each.clientWidth).length") == 0
        assert page.do("return document.documentElement.scrollWidth") == 360
        page.do("document.body.setAttribute('style', 'color: red')")
        wait_until(lambda: page.do("return violations") == ["style-src-attr"], "the policy to be kept")
        assert operator.call("POST", "/v1/drain", headers=AUTHORIZED).status == 200
        page.wait("nodes", "one (draining)")
        page.do("$('forget-key').click()")
        page.wait("key-error", "401: this server needs a publish key")
        page.do("$('name').value = 'n'; $('name').dispatchEvent(new Event('input'))")
        assert page.rows("nodes") + page.rows("channels") == []


def test_a_server_without_keys(page: Page, tmp_path: Path) -> None:
    """No key is asked for. Of a channel with much, only what is new is loaded; of many channels, some are shown."""
    with running(tmp_path / "log", ()) as server, server.caller() as caller:
        for n in range(20):
            caller.publish(["much"], f"{n} " + 60_000 * "x")
        for n in range(0, 1_100, 100):
            caller.publish([f"user:{m}" for m in range(n, n + 100)], "hello")
        page.open(server.url)
        page.wait("shown", "100 of 1,000 channels")
        assert not page.do("return $('key-form').checkVisibility()")
        page.do("$('name').value = 'user:77'; $('name').dispatchEvent(new Event('input'))")
        page.wait("shown", "11 channels")
        page.do("$('name').value = ''; $('next').click()")
        page.wait("shown", "101 channels")
        page.submit("open", name="much")
        page.wait("live", "live")
        page.wait("messages", "20 older messages are not loaded")
        page.do("$('pause').click()")
        last = caller.publish(["much"], "y" * 60_000)["id"]
        wait_until(lambda: server.metric("deliveries_total") == 1, "the delivery")
        assert last not in page.text("messages")
        page.do("$('pause').click()")
        page.wait("messages", f'{last}\n"{"y" * 1999} … (60,002 characters)')
        page.do("$('close').click()")
        server.wait_for_held(0)


def test_nodes_with_other_keys_and_a_node_that_dies(page: Page, tmp_path: Path) -> None:
    """Both nodes, and the setting in which they differ; then the page says that its node does not answer."""
    with RedisServer(tmp_path / "redis") as redis, ExitStack() as stack:
        cluster = RedisCluster(redis, tmp_path, stack)
        first = cluster.start(environment={"PUSHUP_PUBLISH_KEYS": KEY})
        second = cluster.start(environment={"PUSHUP_PUBLISH_KEYS": OTHER_KEY})
        for server in (first, second):
            server.expect_log("has other settings than this node: publish_keys")
        page.open(first.url)
        page.submit("key-form", key=KEY)
        wait_until(lambda: [row[0] for row in page.rows("nodes")] == ["node0", "node1"], "both nodes")
        wait_until(lambda: len(page.rows("settings")) == 2, "the setting")
        assert [row[:2] for row in page.rows("settings")] == [["publish_keys", "node0"], ["publish_keys", "node1"]]
        assert "letters" not in page.text("differing")
        first.signal(signal.SIGKILL)
        page.wait("away", "The server has not answered since")
        assert page.text("health") == "away"
