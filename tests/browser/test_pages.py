"""The pages of docs/guide/pages.md in Chromium, with the libraries' releases, while all that can fails."""

from __future__ import annotations

import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from selenium import webdriver

from loadtest.beyond.browsers.webdriver import installed
from tests.browser import react_page
from tests.browser.npm_packages import Package
from tests.browser.site import Site, serving
from tests.server.chromium import chromium
from tests.server.redis_server import free_port
from tests.server.server_process import Server, running, wait_until

DOCUMENT = Path(__file__).parents[2] / "docs" / "guide" / "pages.md"

HTMX_2 = Package(
    "htmx.org",
    "2.0.11",
    "sha512-Thx/WtpeOQqSrqBCw/A1cwGJGg4UrVa3+sW0GmrM3p4gJgO89ecH4qtbnyzDDWFvBTqjnIMCgELTNt636dtamA==",
)
HTMX_2_SSE = Package(
    "htmx-ext-sse",
    "2.2.4",
    "sha512-LJmxVhykyflBWgh5PvbRidcyuqMHlgfajmmzumvKctv9puvsufeH6OaejSMZTNTnEI8O2wXXn4ZZtBdpEMqmEQ==",
)
HTMX_4 = Package(
    "htmx.org",
    "4.0.1",
    "sha512-oF7JgXhDW9UXCy/k1ZYFUQgzu/rm19ORWPSPNL91vPluB2PB9+MV55tyQdH/w7o2EAbTYUG5SDW1R60mdkdqGg==",
)
TURBO = Package(
    "@hotwired/turbo",
    "8.0.23",
    "sha512-GZ7cijxEZ6Ig71u7rD6LHaRv/wcE/hNsc+nEfiWOkLNqUgLOwo5MNGWOy5ZV9ZUDSiQx1no7YxjTNnT4O6//cQ==",
)

RETAINED = 300
"""Messages that PushUp keeps."""

COUNT = 1000

SECONDS = 60.0


class Page(NamedTuple):
    """What belongs to a page of the document.

    `lines`: of JavaScript. `files`: those of its libraries. `part`: how the part begins that `/list` returns. `html`:
    the page, if the sample is only a part of its JavaScript.
    """

    lines: int
    files: tuple[tuple[Package, str], ...] = ()
    part: str = "<!doctype"
    message: str = "<li>Hello</li>"
    html: str = ""


PAGES = {
    "htmx 2": Page(0, ((HTMX_2, "dist/htmx.min.js"), (HTMX_2_SSE, "dist/sse.min.js")), "<div"),
    "htmx 4": Page(0, ((HTMX_4, "dist/htmx.min.js"), (HTMX_4, "dist/ext/hx-sse.min.js")), "<div"),
    "EventSource": Page(3),
    "Turbo": Page(
        1,
        ((TURBO, "dist/turbo.es2017-esm.js"),),
        message='<turbo-stream action="append" target="list"><template><li>Hello</li></template></turbo-stream>',
    ),
    "React": Page(4, message="Hello", html=react_page.PAGE),
}
"""By their headings."""


def sample(name: str) -> str:
    """The page, or the JavaScript, as the document has it."""
    found = re.search(rf"^## {name}\n.*?^```(?:html|js)\n(.*?)^```", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None, name
    return found[1]


def files(name: str) -> dict[str, bytes]:
    """What the page loads."""
    if PAGES[name].html:
        return {"react.js": react_page.library(), "app.js": react_page.APP.encode(), "hook.js": sample(name).encode()}
    return {path.rpartition("/")[2]: package.file(path) for package, path in PAGES[name].files}


@pytest.mark.parametrize("name", PAGES)
def test_lines_of_javascript(name: str) -> None:
    """No page has more than five lines; those of htmx have none, and no expressions in attributes. With React, those of
    the effect count: what a hook is made of besides has nothing to do with PushUp."""
    text = sample(name)
    found = re.findall(r"<script[^>]*>(.*?)</script>|useEffect\(\(\) => {\n(.*?)\n  }", text, re.DOTALL)
    scripts = "\n".join(code for pair in found for code in pair)
    lines = [line for line in scripts.splitlines() if line.strip()]
    assert len(lines) == PAGES[name].lines <= 5
    assert not re.search(r"\bhx-on|\bjs:|\bon\w+=|javascript:", text)


def test_react_on_the_server(tmp_path: Path) -> None:
    """Without a browser, the hook renders the messages that the page begins with, and opens no stream."""
    for file, content in files("React").items():
        text = content.decode().replace('"/hook.js"', '"./hook.js"').replace('from "react"', 'from "./react.js"')
        (tmp_path / file).write_text(text)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "render.js").write_text("""
        import { App } from "./app.js";
        import { createElement, renderToString } from "./react.js";
        globalThis.EventSource = class { constructor() { throw new Error("a stream on the server"); } };
        console.log(renderToString(createElement(App, { cursor: "e-1", first: ["0", "1"] })));
    """)
    done = subprocess.run([installed("node", "nodejs"), "render.js"], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "<ul><li>0</li><li>1</li></ul>\n", done.stderr


class Scene:
    """A page in a browser, its application, and PushUp with a journal; what is published is 0, 1, 2 ..."""

    def __init__(self, stack: ExitStack, browser: webdriver.Chrome, folder: Path, name: str) -> None:
        self._stack = stack
        self._folder = folder
        self._address = f"127.0.0.1:{free_port()}"
        self.server = self._started()
        page = PAGES[name]
        policy = react_page.POLICY if page.html else ""
        site = Site(self._address, page.html or sample(name), page.part, page.message, files(name), policy)
        self.site = stack.enter_context(serving(site))
        self.browser = browser
        self._tab = browser.current_window_handle
        browser.get(self.site.url)
        wait_until(lambda: self.site.streams > 0, "the stream")

    def _started(self) -> Server:
        flags = (
            "--listen", self._address, "--broadcast", f"journal:{self._folder}/journal.db",
            "--set", f"retention_messages={RETAINED}", "--set", "stream_heartbeat_seconds=1s",
        )  # fmt: skip
        return self._stack.enter_context(running(self._folder / "log", flags))

    def kill(self) -> None:
        """The server dies, and comes back after a while."""
        self.server.signal(signal.SIGKILL)
        self.server.wait()
        time.sleep(0.5)
        self.server = self._started()

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Another tab is in front."""
        self.browser.execute_script(
            "window.wasHidden = 0; document.onvisibilitychange = () => wasHidden += document.hidden"
        )
        self.browser.switch_to.new_window("tab")
        try:
            yield
        finally:
            self.browser.close()
            self.browser.switch_to.window(self._tab)
        assert self.browser.execute_script("return [wasHidden, document.hidden]") == [1, False]

    @property
    def shown(self) -> list[str]:
        script = "return [...document.querySelectorAll('li')].map(each => each.textContent)"
        return list(self.browser.execute_script(script))

    @property
    def published(self) -> list[str]:
        return [item.removeprefix("<li>").removesuffix("</li>") for item in self.site.list]

    def publish(self, count: int) -> None:
        for _ in range(count):
            self.site.publish(str(len(self.site.list)))

    @contextmanager
    def publishing(self, count: int) -> Iterator[None]:
        """Publish so many while the block runs; both are done at the end."""
        thread = threading.Thread(target=self.publish, args=(count,))
        thread.start()
        try:
            yield
        finally:
            thread.join()

    def expect_all(self) -> None:
        """Each message is shown once, and in order."""
        wait_until(lambda: self.shown[-1:] == self.published[-1:], "the last message", SECONDS)
        assert self.shown == self.published


@contextmanager
def scene(name: str, folder: Path) -> Iterator[Scene]:
    with ExitStack() as stack:
        yield Scene(stack, stack.enter_context(chromium(log="ALL")), folder, name)


@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_lost_or_doubled(name: str, tmp_path: Path) -> None:
    """While streams are cut, PushUp is killed, and the tab is hidden, 1,000 messages come once each, by the stream
    alone. When some are dropped that the page has not got, it gets the list."""
    with scene(name, tmp_path) as page:
        with page.publishing(200):
            for _ in range(3):
                wait_until(lambda: page.site.streams > 0, "the stream", SECONDS)
                page.site.cut()
        page.expect_all()
        with page.publishing(200):
            page.kill()
        page.expect_all()
        with page.hidden():
            wait_until(lambda: page.site.streams == (name != "htmx 4"), "htmx 4 to leave its stream", SECONDS)
            page.publish(200)
        page.expect_all()
        page.publish(COUNT - 600)
        page.expect_all()
        assert page.site.rendered == 1

        page.site.refuses = True
        page.site.cut()
        page.publish(RETAINED + 100)
        page.site.refuses = False
        page.expect_all()
        assert page.site.rendered == 2
        page.publish(10)
        page.expect_all()
        assert page.site.rendered == 2
        said = [str(entry["message"]) for entry in page.browser.get_log("browser")]  # type: ignore[no-untyped-call]
        assert not [text for text in said if re.search("hydrat|Content Security Policy|Uncaught", text)]


@pytest.mark.thorough
@pytest.mark.parametrize("name", PAGES)
def test_a_minute_in_the_background(name: str, tmp_path: Path) -> None:
    """Browsers slow the timers of hidden tabs down, and libraries close their streams."""
    with scene(name, tmp_path) as page:
        page.publish(10)
        page.expect_all()
        with page.hidden():
            for _ in range(60):
                page.publish(2)
                time.sleep(1.0)
        page.expect_all()
        assert page.site.rendered == 1
