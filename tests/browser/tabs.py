"""Tabs of real browsers: a site that serves their pages, and what they say."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from selenium import webdriver

from tests.server.server_process import wait_until

CLIENT = Path(__file__).parents[2] / "pushup" / "browser" / "pushup.js"


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def web_site(folder: Path, handler: type[QuietHandler] = QuietHandler) -> Iterator[str]:
    """Serves a folder; yields its origin. It is localhost, where browsers have locks without TLS."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://localhost:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def in_tab(browser: webdriver.Chrome, tab: str, script: str) -> Any:
    browser.switch_to.window(tab)
    return browser.execute_script(f"return {script}")


def wait_in_tab(browser: webdriver.Chrome, tab: str, script: str, value: object) -> None:
    wait_until(lambda: in_tab(browser, tab, script) == value, f"{script} to be {value}", 60)
