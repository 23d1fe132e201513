"""Run a server, two pages and curl, and photograph what happens."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from PIL import Image
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.support.wait import WebDriverWait

from loadtest.beyond.browsers.webdriver import chromium

HERE = Path(__file__).parent
SIZE = {"width": 820, "height": 430}
PIXELS = 1.5
"""Of the image, for each of the page: sharp on most screens."""

SECONDS = 20
"""No step takes longer."""

CHANNEL = "order:17"
Frame = tuple[bytes, int]
"""A PNG, and for how many milliseconds it is shown."""


def record(folder: Path, port: int) -> None:
    """Write demo.webp and demo-still.webp. Raises: TimeoutException and others, if something does not happen."""
    url = f"http://127.0.0.1:{port}"
    with _pages() as pages, _server(url, pages), chromium() as browser:
        browser.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride", {**SIZE, "deviceScaleFactor": PIXELS, "mobile": False}
        )
        browser.get(f"{pages}/stage.html?server={url}")
        frames = list(_story(browser, url))
    images = [Image.open(io.BytesIO(png)).convert("RGB") for png, _shown in frames]
    durations = [shown for _png, shown in frames]
    images[0].save(
        folder / "demo.webp", save_all=True, append_images=images[1:], duration=durations, loop=0, quality=80, method=6
    )
    images[-1].save(folder / "demo-still.webp", quality=80, method=6)


def _story(browser: WebDriver, url: str) -> Iterator[Frame]:
    _do(browser, "open('customer')")
    _do(browser, "open('kitchen')")
    _do(browser, "say('One HTTP request, and each page that waits for it has it at once.')")
    _until(browser, "isLive('customer') && isLive('kitchen')")
    yield _frame(browser, 1200)
    yield from _publish(browser, url, "in the oven")
    _until(browser, "shown('customer').length == 1 && shown('kitchen').length == 1")
    yield _frame(browser, 2500)

    _do(browser, "close('kitchen')")
    _do(browser, "say('A page that is closed, or sleeps ...')")
    yield _frame(browser, 1500)
    yield from _publish(browser, url, "on its way")
    _until(browser, "shown('customer').length == 2")
    yield _frame(browser, 2000)

    _do(browser, "open('kitchen')")
    _do(browser, "say('... misses nothing when it returns.')")
    _until(browser, "shown('kitchen').length == 2 && isLive('kitchen')")
    yield _frame(browser, 4000)


def _publish(browser: WebDriver, url: str, state: str) -> Iterator[Frame]:
    """Type a call of curl, and make it."""
    body = json.dumps({"channels": [CHANNEL], "data": state})
    line = f"curl {url}/v1/messages -d '{body}'"
    for end in range(0, len(line), 6):
        _do(browser, "type(arguments[0])", line[:end])
        yield _frame(browser, 70)
    _do(browser, "type(arguments[0])", line)
    yield _frame(browser, 600)
    command = ("curl", "--silent", "--show-error", "--fail", f"{url}/v1/messages", "-d", body)
    _do(browser, "answer(arguments[0])", subprocess.check_output(command, text=True, timeout=SECONDS))


def _do(browser: WebDriver, script: str, *arguments: str) -> None:
    """Call a function of stage.html."""
    browser.execute_script(f"stage.{script}", *arguments)


def _until(browser: WebDriver, condition: str) -> None:
    """Wait until this is so in stage.html."""
    wait = WebDriverWait(browser, SECONDS, poll_frequency=0.05)
    wait.until(lambda _browser: browser.execute_script(f"with (stage) return {condition}"), condition)


def _frame(browser: WebDriver, milliseconds: int) -> Frame:
    return browser.get_screenshot_as_png(), milliseconds


@contextmanager
def _server(url: str, pages: str) -> Iterator[None]:
    """PushUp, which pages of this origin may poll, and which listens on this URL."""
    listen = url.removeprefix("http://")
    settings = ("--set", f"cors_origins={pages}", "--set", "drain_seconds=0.1")
    command = [sys.executable, "-m", "pushup", "serve", "--listen", listen, *settings]
    with subprocess.Popen(command) as process:
        try:
            ready = ("curl", "--silent", "--fail", "--retry", "50", "--retry-delay", "1", "--retry-connrefused")
            subprocess.run([*ready, "--output", "/dev/null", f"{url}/readyz"], check=True, timeout=60)
            yield
        finally:
            process.terminate()


@contextmanager
def _pages() -> Iterator[str]:
    """A server of the files beside this one; its origin."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=HERE)) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""
