"""pushup.js in Chromium, with a real server: tabs that share a request, and what is lost or shown twice: nothing."""

from __future__ import annotations

import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver

from tests.server.chromium import chromium
from tests.server.redis_server import free_port
from tests.server.server_process import Server, running, wait_until

CLIENT = Path(__file__).parents[2] / "pushup" / "browser" / "pushup.js"

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


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def web_site(folder: Path) -> Iterator[str]:
    """Serves a folder; yields its origin. It is localhost, where browsers have locks without TLS."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://localhost:{server.server_port}"
        server.shutdown()
        thread.join()


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


def in_tab(browser: webdriver.Chrome, tab: str, script: str) -> Any:
    browser.switch_to.window(tab)
    return browser.execute_script(f"return {script}")


def wait_in_tab(browser: webdriver.Chrome, tab: str, script: str, value: object) -> None:
    wait_until(lambda: in_tab(browser, tab, script) == value, f"{script} to be {value}", 60)


def test_eight_tabs(browser: webdriver.Chrome, tmp_path: Path) -> None:
    """Eight tabs hold one stream, over HTTP/1.1. In a burst the leader is closed, one is reloaded, one goes to another
    page and back, and the server restarts: every tab gets every message once, in order."""
    (tmp_path / "site").mkdir()
    address = f"127.0.0.1:{free_port()}"
    shutil.copy(CLIENT, tmp_path / "site")
    (tmp_path / "site" / "page.html").write_text(PAGE % address)
    with web_site(tmp_path / "site") as site:
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
