"""Tabs of real browsers: a site that serves their pages, and what they say."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

from selenium import webdriver

from tests.server.server_process import wait_until
from tests.server.web_server import web_server

CLIENT = Path(__file__).parents[2] / "pushup" / "browser" / "pushup.js"


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def web_site(folder: Path, page: str, handler: type[QuietHandler] = QuietHandler) -> Iterator[str]:
    """Serves `page.html` and pushup.js; yields the origin. It is localhost, where browsers have locks without TLS."""
    folder.mkdir()
    shutil.copy(CLIENT, folder)
    (folder / "page.html").write_text(page)
    with web_server(partial(handler, directory=str(folder))) as port:
        yield f"http://localhost:{port}"


def in_tab(browser: webdriver.Chrome, tab: str, script: str) -> Any:
    browser.switch_to.window(tab)
    return browser.execute_script(f"return {script}")


def wait_in_tab(browser: webdriver.Chrome, tab: str, script: str, value: object) -> None:
    wait_until(lambda: in_tab(browser, tab, script) == value, f"{script} to be {value}", 60)
