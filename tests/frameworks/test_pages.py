"""The pages docs/guide/django.md, fastapi.md and flask.md in Chromium, with their applications and PushUp."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.cookiejar import CookieJar
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, OpenerDirector, Request, build_opener

import pytest
from selenium import webdriver

from tests.browser.npm_packages import HTMX_2, HTMX_2_SSE
from tests.frameworks.documented import KEY, PAGES, Scene, added_lines, scene
from tests.server.chromium import chromium
from tests.server.server_process import wait_until
from tests.server.webhook_receiver import KEY as WEBHOOK_KEY

ROWS = 200

TABS = 6
"""Pages that stay open while rows are inserted; the last one is loaded again and again."""

LISTEN = """
window.seen = [];
window.htmx = {process: element => seen.push(element.id)};
document.getElementById("notes").addEventListener("pushup", event => seen.push(event.detail));
"""

SECONDS = 30.0

WEBHOOK = ("--set", "webhook_url=http://127.0.0.1:9/", "--set", f"webhook_key={WEBHOOK_KEY}")
"""Nobody is called: all is seen."""

TEMPLATE = "notes/templates/notes.html"

HTMX_LIST = """
<ul id="notes" hx-ext="sse" sse-swap="html" hx-swap="beforeend"
    sse-connect="http://127.0.0.1:8080/v1/events?channel=notes&format=raw">
  {% for note in notes %}{% include "note.html" %}{% endfor %}
</ul>
"""


@pytest.mark.parametrize("name", PAGES)
def test_at_most_ten_lines_are_for_pushup(name: str) -> None:
    """They are marked, and no other line of the application is about PushUp."""
    count, rest = added_lines(name)
    assert count == {"django": 10, "fastapi": 10, "flask": 9}[name] <= 10
    assert not re.search("pushup|publish|channel|live", rest, re.IGNORECASE)


class User:
    """Somebody who is logged in, without a browser."""

    def __init__(self, scene: Scene, name: str) -> None:
        self._url = scene.url
        self._cookies = CookieJar()
        self._opener: OpenerDirector = build_opener(HTTPCookieProcessor(self._cookies))
        self._headers: dict[str, str] = {}
        if "/login/" in "".join(PAGES[scene.name].files.values()) or scene.name == "django":
            self._opener.open(f"{scene.url}/login/{name}").read()
        else:
            self._headers = {"Cookie": f"user={name}"}

    def add(self, text: str, private: bool = False) -> None:
        found = {each.name: each.value for each in self._cookies}
        form = {
            "text": text,
            "csrfmiddlewaretoken": found.get("csrftoken", ""),
            **({"private": "on"} if private else {}),
        }
        self._opener.open(Request(f"{self._url}/", urlencode(form).encode(), self._headers)).read()

    def page(self) -> str:
        return str(self._opener.open(Request(f"{self._url}/", headers=self._headers)).read().decode())

    @property
    def cookies(self) -> dict[str, str]:
        if self._headers:
            return dict([self._headers["Cookie"].split("=", 1)])
        return {each.name: str(each.value) for each in self._cookies}


@contextmanager
def browser_of(scene: Scene, user: User) -> Iterator[webdriver.Chrome]:
    with chromium(log="ALL") as browser:
        browser.get(f"{scene.url}/pushup/live.js")
        for name, value in user.cookies.items():
            browser.add_cookie({"name": name, "value": value})
        browser.get(scene.url)
        yield browser


def shown(browser: webdriver.Chrome) -> list[str]:
    script = "return [...document.querySelectorAll('#notes li')].map(each => each.textContent.split(': ')[1])"
    return list(browser.execute_script(script))


def state(browser: webdriver.Chrome) -> str:
    return str(browser.execute_script("return document.getElementById('notes').dataset.pushupState"))


def wait_for(browser: webdriver.Chrome, texts: list[str]) -> None:
    wait_until(lambda: set(shown(browser)) >= set(texts), f"{texts[-1]} to be shown", SECONDS)
    assert sorted(shown(browser)) == sorted(texts)


@pytest.mark.processes
@pytest.mark.parametrize("name", PAGES)
def test_a_private_live_list(name: str, tmp_path: Path) -> None:
    """A user sees all public rows and their own private ones, each once, whatever happens: the page is loaded
    again and again, PushUp is killed, it is down when the page is rendered, and it hangs. The page says what the user
    has seen.
    """
    with scene(name, tmp_path, flags=WEBHOOK) as site:
        anna, ben = User(site, "anna"), User(site, "ben")
        anna.page(), ben.page()
        texts: list[str] = []
        with browser_of(site, anna) as browser:
            wait_until(lambda: state(browser) == "live", "the list to be live", SECONDS)
            browser.execute_script(LISTEN)
            with site.server.caller() as caller:
                body = {"channels": ["notes"], "data": "<li id=x>not HTML</li>", "unread_after": 3600}
                body["for"] = ["1" if name == "django" else "anna"]
                caller.call("POST", "/v1/messages", body, headers={"Authorization": f"Bearer {KEY}"})
            ben.add("secret", private=True)
            ben.add("from <b>Ben</b>")
            anna.add("mine", private=True)
            texts += ["from <b>Ben</b>", "mine"]
            wait_for(browser, texts)
            assert browser.execute_script("return seen") == ["<li id=x>not HTML</li>", "note-2", "note-3"]
            wait_until(lambda: site.server.metric("webhooks_waiting") == 0, "the page to say what was seen", SECONDS)

            def insert() -> None:
                for number in range(ROWS):
                    ben.add(f"row {number}")

            with ThreadPoolExecutor(1) as pool:
                inserting = pool.submit(insert)
                loads = 0
                while not inserting.done():
                    if loads < TABS:
                        browser.switch_to.new_window("tab")
                    browser.get(site.url)
                    loads += 1
                inserting.result()
            texts += [f"row {number}" for number in range(ROWS)]
            tabs = browser.window_handles
            assert len(tabs) > 2
            for tab in reversed(tabs):
                browser.switch_to.window(tab)
                wait_for(browser, texts)
            assert "secret" not in anna.page()
            browser.save_screenshot(str(tmp_path / "page.png"))

            site.kill()
            anna.add("while it is down")
            browser.get(site.url)
            anna.add("after the page")
            site.add_unpublished("lost by its process")
            texts += ["while it is down", "after the page", "lost by its process"]
            site.start()
            wait_for(browser, texts)

            site.server.signal(signal.SIGSTOP)
            ben.add("while it hangs")
            ben.page()
            site.server.signal(signal.SIGCONT)
            texts += ["while it hangs"]
            wait_for(browser, texts)
            said = [str(entry["message"]) for entry in browser.get_log("browser")]  # type: ignore[no-untyped-call]
            assert not [text for text in said if "Uncaught" in text], said
        assert "Traceback" not in site.log.read_text()


def _with_htmx(template: str) -> str:
    """The page's template with this list, and htmx."""
    scripts = [HTMX_2.file("dist/htmx.min.js"), HTMX_2_SSE.file("dist/sse.min.js")]
    inlined = "".join(f"<script>{{% verbatim %}}{each.decode()}{{% endverbatim %}}</script>" for each in scripts)
    lines = [line for line in template.splitlines() if "<ul" not in line and "{% load pushup %}" not in line]
    return "\n".join([*lines, HTMX_LIST, inlined])


@pytest.mark.processes
def test_htmx_swaps_rows_in(tmp_path: Path) -> None:
    """Also one that was published while PushUp did not run; private ones are on another channel."""
    files = {TEMPLATE: _with_htmx(PAGES["django"].files[TEMPLATE])}
    (tmp_path / "pushup.toml").write_text('[[channels]]\nprefix = "notes"\npoll = "anyone"\n')
    with scene("django", tmp_path, files=files, flags=("--config", str(tmp_path / "pushup.toml"))) as site:
        anna, ben = User(site, "anna"), User(site, "ben")
        anna.page(), ben.page()
        with browser_of(site, anna) as browser:
            wait_until(lambda: site.server.metric("streams") == 1, "the page's stream", SECONDS)
            ben.add("secret", private=True)
            ben.add("from <b>Ben</b>")
            wait_for(browser, ["from <b>Ben</b>"])
            site.kill()
            ben.add("while it is down")
            site.start()
            wait_for(browser, ["from <b>Ben</b>", "while it is down"])
