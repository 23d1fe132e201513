"""pushup.js in Chromium, with a real server: tabs that share a request, and what is lost or shown twice: nothing."""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from selenium import webdriver

from pushup.client import Client
from tests.browser.tabs import QuietHandler, in_tab, wait_in_tab, web_site
from tests.server.chromium import chromium
from tests.server.document_samples import sample
from tests.server.redis_server import free_port
from tests.server.server_process import Server, running, set_flags, wait_until
from tests.server.token_issuer import SETTINGS, TokenIssuer, is_valid
from tests.server.webhook_receiver import PUBLISH_KEY, webhook_receiver

PAGE = """<!doctype html><title>page</title><script type=module>
import { PushUp } from "./pushup.js";
window.got = JSON.parse(sessionStorage.got ?? "[]");
window.push = new PushUp({ url: "http://%s" });
window.sub = push.subscribe(["news"], {
  onMessage(message) {
    got.push(message.data);
    sessionStorage.got = JSON.stringify(got);
  },
});
</script>"""
"""It follows a channel, and remembers what it got over a reload."""


@pytest.fixture
def browser() -> Iterator[webdriver.Chrome]:
    with chromium() as driver:
        yield driver


class Publisher:
    """Publishes 0, 1, 2 ... every 20 ms, each until it is accepted, to a server that may restart."""

    def __init__(self, server: Server) -> None:
        self.count = 0
        self._server = server
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.wait(0.02):
            try:
                with self._server.caller() as caller:
                    caller.publish(["news"], self.count, key=f"m{self.count}")
                self.count += 1
            except OSError:
                time.sleep(0.1)

    def stop(self) -> int:
        self._stopping.set()
        self._thread.join()
        return self.count


def test_eight_tabs(browser: webdriver.Chrome, tmp_path: Path) -> None:
    """Eight tabs hold one stream, over HTTP/1.1. In a burst the leader is closed, one is reloaded, one goes to another
    page and back, and the server restarts: every tab gets every message once, in order."""
    address = f"127.0.0.1:{free_port()}"
    with web_site(tmp_path / "site", PAGE % address) as site:
        flags = (
            "--listen", address, "--broadcast", f"journal:{tmp_path}/journal.db",
            "--set", f"cors_origins={site}", "--set", "drain_seconds=200ms",
        )  # fmt: skip
        with ExitStack() as stack:
            server = stack.enter_context(running(tmp_path / "log", flags))
            tabs = [browser.current_window_handle]
            for number in range(8):
                if number:
                    browser.switch_to.new_window("tab")
                    tabs.append(browser.current_window_handle)
                browser.get(f"{site}/page.html")
            for tab in tabs:
                wait_in_tab(browser, tab, "sub.state.state", "live")
            assert (server.metric("held_polls"), server.metric("streams")) == (1, 1)

            publisher = Publisher(server)
            stack.callback(publisher.stop)
            wait_until(lambda: publisher.count > 20, "messages")
            [leader] = [tab for tab in tabs if in_tab(browser, tab, "push.base.state") == "live"]
            browser.switch_to.window(leader)
            browser.close()
            tabs.remove(leader)
            in_tab(browser, tabs[0], "location.reload()")
            in_tab(browser, tabs[1], "location.assign('about:blank')")
            browser.back()
            in_tab(browser, tabs[2], "1")
            in_tab(browser, tabs[3], "location.reload()")
            before = publisher.count
            wait_until(lambda: publisher.count > before + 20, "messages after that")
            server.signal(signal.SIGTERM)
            assert server.wait() == 0
            server = stack.enter_context(running(tmp_path / "log", flags))
            before = publisher.count
            wait_until(lambda: publisher.count > before + 20, "messages after the restart")
            count = publisher.stop()
            for tab in tabs:
                wait_in_tab(browser, tab, "got.at(-1)", count - 1)
                assert in_tab(browser, tab, "got") == list(range(count)), in_tab(browser, tab, "push.report()")
            server.wait_for_held(1)  # a tab that polls after the restart has none for a moment after each answer
            browser.get("about:blank")


def test_the_page_first_and_the_server_later(tmp_path: Path) -> None:
    """A page with its own copy of pushup.js is loaded while the server is down: it is offline, the console says why,
    and it goes on by itself."""
    address = f"127.0.0.1:{free_port()}"
    with chromium(log="ALL") as browser, web_site(tmp_path / "site", PAGE % address) as site:
        tab = browser.current_window_handle
        browser.get(f"{site}/page.html")
        wait_in_tab(browser, tab, "sub.state.state", "offline")
        said = [entry["message"] for entry in browser.get_log("browser") if "PushUp:" in entry["message"]]  # type: ignore[no-untyped-call]
        assert len(said) == 1
        assert f"http://{address} cannot be reached" in said[0]
        with running(tmp_path / "log", ("--listen", address, "--set", f"cors_origins={site}")) as server:
            wait_in_tab(browser, tab, "sub.state.state", "live")
            with server.caller() as caller:
                caller.publish(["news"], "hello")
            wait_in_tab(browser, tab, "got.at(-1)", "hello")


PAGE_WITH_TOKEN = """<!doctype html><title>page</title><script type=module>
import { PushUp } from "./pushup.js";
window.got = [];
window.states = [];
window.push = new PushUp({
  url: "http://%s",
  user: "mei",
  transport: new URLSearchParams(location.search).get("transport"),
  token: async () => (await fetch("/token", { cache: "no-store" })).text(),
});
window.sub = push.subscribe(["news"], {
  cursor: "earliest",
  onMessage: message => got.push(message.data),
  onState: ({ state }) => states.push(state),
});
</script>"""


def application(issuer: TokenIssuer) -> type[QuietHandler]:
    """Serves `/token` to pages, and `/authorize` to PushUp, which allows polls with a token that has not ended."""

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            if self.path == "/token":
                self._respond(200, issuer.token())
            elif self.path.startswith("/authorize"):
                self._respond(204 if is_valid(self.headers["Authorization"]) else 401, "")
            else:
                super().do_GET()

        def _respond(self, status: int, text: str) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

    return Handler


@pytest.mark.parametrize("transport", ["auto", "poll"])
@pytest.mark.parametrize("by", ["token", "application"])
def test_tokens_that_end(browser: webdriver.Chrome, tmp_path: Path, transport: str, by: str) -> None:
    """Two tabs outlive tokens of 6 s, and tickets of 4 s, without a message lost or the state offline; also a token
    that is revoked. They stop when new ones are of a time that was revoked."""
    address = f"127.0.0.1:{free_port()}"
    issuer = TokenIssuer(6.0, poll=["news"])
    with ExitStack() as stack:
        site = stack.enter_context(web_site(tmp_path / "site", PAGE_WITH_TOKEN % address, application(issuer)))
        asking = {"authorize_url": f"{site}/authorize", "ticket_seconds": "4s"}
        settings = {"cors_origins": site, **(SETTINGS if by == "token" else asking)}
        server = stack.enter_context(running(tmp_path / "log", ("--listen", address, *set_flags(settings))))
        tabs = [browser.current_window_handle]
        browser.switch_to.new_window("tab")
        tabs.append(browser.current_window_handle)
        for tab in tabs:
            browser.switch_to.window(tab)
            browser.get(f"{site}/page.html?transport={transport}")
            wait_in_tab(browser, tab, "sub.state.state", "live")
        publisher = Publisher(server)
        stack.callback(publisher.stop)
        wait_until(lambda: issuer.count >= 4, "tokens", 60)
        if by == "token":
            with server.caller() as caller:
                assert caller.call("POST", "/v1/revoke", {"sub": "7"}).status == 200
            wait_until(lambda: issuer.count >= 7, "tokens", 60)
        count = publisher.stop()
        for tab in tabs:
            wait_in_tab(browser, tab, "got.at(-1)", count - 1)
            report = in_tab(browser, tab, "push.report()")
            assert in_tab(browser, tab, "got") == list(range(count)), report
            assert set(in_tab(browser, tab, "states")) <= {"live", "catching-up"}, report
        if by == "token":
            issuer.issued_at = int(time.time()) - 1
            with server.caller() as caller:
                caller.call("POST", "/v1/revoke", {"sub": "7"})
            for tab in tabs:
                wait_in_tab(browser, tab, "sub.state.reason?.type", "urn:pushup:revoked")
                assert "offline" not in in_tab(browser, tab, "states")


PAGE_OF_USER = """<!doctype html><title>page</title><script type=module>
import { PushUp } from "./pushup.js";
const query = new URLSearchParams(location.search);
window.got = [];
const push = new PushUp({ url: "http://%s", user: query.get("user"), transport: "stream", token: query.get("token") });
window.sub = push.subscribe([query.get("channel")], { onMessage: message => got.push(message.data) });
</script>"""


def test_what_pages_have_seen(browser: webdriver.Chrome, tmp_path: Path) -> None:
    """Messages wait until the pages of their users have them, also in a tab that another one leads. When a user has
    closed the last page with the channel, and only then, the application is told who has not seen it."""
    address = f"127.0.0.1:{free_port()}"
    with ExitStack() as stack:
        site = stack.enter_context(web_site(tmp_path / "site", PAGE_OF_USER % address))
        application = stack.enter_context(webhook_receiver())
        settings = {"cors_origins": site, **SETTINGS, **application.settings}
        server = stack.enter_context(running(tmp_path / "log", ("--listen", address, *set_flags(settings))))
        publisher = stack.enter_context(Client(server.url, PUBLISH_KEY))

        def open_tab(user: str, channel: str) -> str:
            browser.switch_to.new_window("tab")
            token = TokenIssuer(600, user, poll=["chat", "news"]).token()
            browser.get(f"{site}/page.html?user={user}&channel={channel}&token={token}")
            tab = browser.current_window_handle
            wait_in_tab(browser, tab, "sub.state.state", "live")
            return tab

        empty = browser.current_window_handle
        tabs = [open_tab("ann", "news"), open_tab("ann", "chat"), open_tab("bob", "chat")]
        assert server.metric("streams") == 2  # the tabs of a user share one
        for number in range(3):
            publisher.publish("chat", number, unread_after=60, unread_for=["ann", "bob"])
            wait_until(lambda: server.metric("webhooks_waiting") == 0, "that both have seen it")
        assert [in_tab(browser, tab, "got") for tab in tabs] == [[], [0, 1, 2], [0, 1, 2]]
        for count, (tab, seconds) in enumerate(zip(tabs[1:], (4, 0.5), strict=True), 1):
            browser.switch_to.window(tab)
            browser.close()
            publisher.publish("chat", count, unread_after=seconds, unread_for=["bob", "ann"])
            wait_until(lambda count=count: len(application.calls) == count, "a call")  # type: ignore[misc]
        assert application.unread == [(1, ["ann"]), (2, ["bob", "ann"])]
        browser.switch_to.window(empty)


EVENT_SOURCE = """
const push = arguments[0], tokens = arguments[1];
window.got = [];
window.opened = [];
window.EventSource = class extends EventSource {
  constructor(url) {
    super(url);
    opened.push(this);
  }
};
const getToken = async () => tokens.shift() ?? Promise.reject("not now");
const show = message => got.push(message.data);
%s
follow(arguments[2]);
"""
"""What a page does that has no pushup.js: the sample of the page, which is told of each `EventSource` it makes."""


@pytest.mark.parametrize("is_same_origin", [True, False])
def test_event_source_with_a_url_ticket(browser: webdriver.Chrome, tmp_path: Path, is_same_origin: bool) -> None:
    """A page of PushUp's own origin, or of another: the stream ends with its token, and the `EventSource` for good, by
    204. With the next ticket the page continues where it was, also if nothing had come, or there was none at first.
    After a gap it is loaded again. The log shows no ticket.
    """
    issuers = TokenIssuer(3.0, poll=["user:7"]), TokenIssuer(60.0, poll=["user:7"])
    with ExitStack() as stack:
        site = stack.enter_context(web_site(tmp_path / "site", "<!doctype html><title>page</title>"))
        settings = {**SETTINGS, "cors_origins": site, "token_url_tickets": "true", "ticket_key": "a-key-of-the-tickets"}
        server = stack.enter_context(running(tmp_path / "log", (*set_flags(settings), "--log-level", "debug")))
        caller = stack.enter_context(server.caller())
        browser.get(f"{server.url}/healthz" if is_same_origin else f"{site}/page.html")
        script = EVENT_SOURCE % sample("docs/guide/tokens.md", "async function follow")
        first, second = (issuer.token() for issuer in issuers)
        browser.execute_script(script, server.url, [first, None, second], caller.cursor())
        tab = browser.current_window_handle
        wait_until(lambda: server.metric("streams") == 1, "a stream")
        if not is_same_origin:
            caller.publish(["user:7"], 1)
            wait_in_tab(browser, tab, "got", [1])
        wait_in_tab(browser, tab, "opened[0].readyState", 2)
        caller.publish(["user:7"], 2)  # to nobody yet
        wait_in_tab(browser, tab, "got", [2] if is_same_origin else [1, 2])
        assert in_tab(browser, tab, "opened.map(each => each.readyState)") == [2, 1]
        ticket = in_tab(browser, tab, "new URL(opened[1].url).searchParams.get('ticket')")
        log = "\n".join(server.log_lines())
        assert re.findall(r"GET /v1/events\?\S* (\d+)", log) == ["200", "204", "200"]
        assert ticket.rpartition(".")[2] not in log
        assert "ticket=" not in log
        browser.execute_script(script, server.url, [second], "lost-1")
        wait_in_tab(browser, tab, "window.got", None)
        browser.get("about:blank")
