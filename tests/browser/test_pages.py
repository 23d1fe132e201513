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
from tests.browser.npm_packages import HTMX_2, HTMX_2_SSE, Package
from tests.browser.site import COOKIE, Page, Site, serving
from tests.server.chromium import chromium
from tests.server.proxies import nginx
from tests.server.redis_server import free_port
from tests.server.server_process import Server, running, set_flags, wait_until
from tests.server.token_issuer import SETTINGS, TokenIssuer

DOCUMENT = Path(__file__).parents[2] / "docs" / "guide" / "pages.md"

HTMX_4 = Package(
    "htmx.org",
    "4.0.1",
    "sha512-oF7JgXhDW9UXCy/k1ZYFUQgzu/rm19ORWPSPNL91vPluB2PB9+MV55tyQdH/w7o2EAbTYUG5SDW1R60mdkdqGg==",
)
DATASTAR = Package(
    "@starfederation/datastar",
    "1.0.0-beta.11",
    "sha512-62TtP/Rm8HVnWxZm1rqhZo+0F57V7A6bKE0FMFMP+1ZeRoDd3lBqYUEdcbSPtIYf9fjoPEUd4TU3bgWS0CGy9w==",
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

PRIVATE = {**SETTINGS, "token_cookie": COOKIE, "token_url_tickets": "true", "ticket_key": "a-key-of-the-tickets"}
"""Settings of a server whose channels need a token."""


class Expected(NamedTuple):
    """What belongs to a page of the document. `lines`: of JavaScript. `libraries`: the files of packages that it loads.
    `page`: what else its application serves. `reloads`: it reloads when a stream ends, not at a gap.
    """

    lines: int
    libraries: tuple[tuple[Package, str], ...]
    page: Page
    reloads: bool = False


PAGES = {
    "htmx 2": Expected(0, ((HTMX_2, "dist/htmx.min.js"), (HTMX_2_SSE, "dist/sse.min.js")), Page(part="<div")),
    "htmx 4": Expected(0, ((HTMX_4, "dist/htmx.min.js"), (HTMX_4, "dist/ext/hx-sse.min.js")), Page(part="<div")),
    "EventSource": Expected(3, (), Page()),
    "Turbo": Expected(
        1,
        ((TURBO, "dist/turbo.es2017-esm.js"),),
        Page(message='<turbo-stream action="append" target="list"><template><li>Hello</li></template></turbo-stream>'),
    ),
    "Datastar": Expected(
        2,
        ((DATASTAR, "dist/datastar.js"),),
        Page(message='fragments <ul id="list">{{ items }}</ul>', event="datastar-merge-fragments", newest=20),
        reloads=True,
    ),
    "React": Expected(4, (), Page(react_page.PAGE, message="Hello", policy=react_page.POLICY)),
}
"""By their headings."""


def sample(name: str) -> str:
    """The page, or the JavaScript, as the document has it."""
    found = re.search(rf"^## {name}\n.*?^```(?:html|js)\n(.*?)^```", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None, name
    return found[1]


def sample_with_ticket(name: str) -> str:
    """The same, as the document's table says for private channels."""
    row = re.search(rf"^\| .*\b{name.split()[0]}\b.* \| `(.*?)`", DOCUMENT.read_text(), re.MULTILINE)
    assert row is not None, name
    without, text = re.split('&ticket|, "token', row[1])[0], sample(name)
    assert text.count(without) == 1
    return text.replace(without, row[1]).replace("(channel, cursor, first)", "(channel, cursor, first, ticket)")


def page_of(name: str, by: str = "") -> Page:
    """The page with what it loads. `by`: how its user's token reaches PushUp, if it is private."""
    page, text = PAGES[name].page, sample_with_ticket(name) if by == "ticket" else sample(name)
    if page.html:
        return page._replace(files=react_page.files(text))
    files = {path.rpartition("/")[2]: package.file(path) for package, path in PAGES[name].libraries}
    return page._replace(html=text, files=files)


@pytest.mark.parametrize("name", PAGES)
def test_lines_of_javascript(name: str) -> None:
    """No page has more than five lines; those of htmx have none, and no expressions in attributes. With React, those of
    the effect count: what a hook is made of besides has nothing to do with PushUp."""
    text = sample(name)
    places = r"""<script[^>]*>(.*?)</script>|useEffect\(\(\) => {\n(.*?)\n  }|data-on-[a-z-]+="(.*?)\""""
    scripts = "\n".join("".join(found) for found in re.findall(places, text, re.DOTALL))
    lines = [line for line in scripts.splitlines() if line.strip()]
    assert len(lines) == PAGES[name].lines <= 5
    assert not re.search(r"\bhx-on|\bjs:|\bon\w+=|javascript:", text)


def test_react_on_the_server(tmp_path: Path) -> None:
    """Without a browser, the hook renders the messages that the page begins with, and opens no stream."""
    for file, content in page_of("React").files.items():
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

    def __init__(
        self, stack: ExitStack, browser: webdriver.Chrome, folder: Path, name: str, by: str = "", *, behind_nginx: bool
    ) -> None:
        """`by`: how the user's token reaches PushUp; empty: anybody may follow."""
        self._stack = stack
        self._folder = folder
        self._settings = PRIVATE if by else {}
        self._address = f"127.0.0.1:{free_port()}"
        self.server = self._started()
        self._expected = PAGES[name]
        token = TokenIssuer(600.0, poll=["news"]).token() if by else ""
        self.site = stack.enter_context(serving(Site(self._address, page_of(name, by), token, by)))
        self.browser = browser
        self._tab = browser.current_window_handle
        if behind_nginx:
            application = self.site.url.removeprefix("http://")
            self.site.url = f"http://{stack.enter_context(nginx(folder, self._address, application))}"
        browser.get(self.site.url)
        wait_until(lambda: self.server.metric("streams") > 0, "the stream")

    def _started(self) -> Server:
        flags = (
            "--listen", self._address, "--broadcast", f"journal:{self._folder}/journal.db",
            "--set", f"retention_messages={RETAINED}", "--set", "stream_heartbeat_seconds=1s",
            *set_flags(self._settings),
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
        """What should be shown."""
        return [item.removeprefix("<li>").removesuffix("</li>") for item in self.site.list[-self.site.page.newest :]]

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

    def expect_lists(self, count: int) -> None:
        """The application has rendered so many: one for the page, one for each gap."""
        assert self._expected.reloads or self.site.rendered == count

    def expect_all(self) -> None:
        """Each message is shown once, and in order."""
        wait_until(lambda: self.shown[-1:] == self.published[-1:], "the last message", SECONDS)
        assert self.shown == self.published


@contextmanager
def scene(name: str, folder: Path, by: str = "", *, behind_nginx: bool = False) -> Iterator[Scene]:
    """The page, in front of which the application passes streams on, or nginx as the documents configure it."""
    with ExitStack() as stack:
        browser = stack.enter_context(chromium(log="ALL"))
        yield Scene(stack, browser, folder, name, by, behind_nginx=behind_nginx)


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
        page.expect_lists(1)

        page.site.refuses = True
        page.site.cut()
        page.publish(RETAINED + 100)
        page.site.refuses = False
        page.expect_all()
        page.expect_lists(2)
        page.publish(10)
        page.expect_all()
        page.expect_lists(2)
        said = [str(entry["message"]) for entry in page.browser.get_log("browser")]  # type: ignore[no-untyped-call]
        assert not [text for text in said if re.search("hydrat|Content Security Policy|Uncaught", text)]


@pytest.mark.parametrize("by", ["cookie", "ticket"])
@pytest.mark.parametrize("name", PAGES)
def test_a_private_channel(name: str, by: str, tmp_path: Path) -> None:
    """With a token in a cookie the pages are the same; with a URL ticket, as the table says. They continue after
    cuts and kills, and a gap gets them the list, with the next ticket."""
    with scene(name, tmp_path, by) as page:
        with page.server.caller() as stranger:
            assert stranger.call("GET", "/v1/poll?channel=news&timeout=0").status == 401
        with page.publishing(100):
            page.site.cut()
        page.expect_all()
        page.kill()
        page.publish(20)
        page.expect_all()
        page.expect_lists(1)
        page.site.refuses = True
        page.site.cut()
        page.publish(RETAINED + 10)
        page.site.refuses = False
        page.expect_all()
        page.publish(10)
        page.expect_all()
        page.expect_lists(2)


@pytest.mark.parametrize("name", PAGES)
def test_behind_nginx(name: str, tmp_path: Path) -> None:
    """With the lines that the document adds to nginx, each page outlives PushUp twice."""
    with scene(name, tmp_path, behind_nginx=True) as page:
        for _ in range(2):
            with page.publishing(50):
                page.kill()
            page.expect_all()
        page.expect_lists(1)


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
        page.expect_lists(1)
