"""Chromium and WebKitGTK, by WebDriver: their own drivers, and Selenium."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.service import Service as ChromeService
from selenium.webdriver.remote.client_config import ClientConfig
from selenium.webdriver.remote.remote_connection import RemoteConnection
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.webkitgtk.options import Options as WebKitOptions
from selenium.webdriver.webkitgtk.service import Service as WebKitService

from loadtest.beyond.browsers.processes import busiest

SECONDS = 20
"""The longest that a script in a page may take."""


@contextmanager
def chromium(*flags: str, log: str = "", page_load: str = "normal") -> Iterator[webdriver.Chrome]:
    """Chromium without a window, until the end of the block.

    log: which messages of its console are kept, such as ALL
    page_load: what navigating waits for, as in WebDriver's `pageLoadStrategy`
    """
    options = webdriver.ChromeOptions()
    options.binary_location = installed("chromium", "chromium")
    options.page_load_strategy = page_load
    if log:
        options.set_capability("goog:loggingPrefs", {"browser": log})
    for flag in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "disable-gpu", *flags):
        options.add_argument(f"--{flag}")
    browser = webdriver.Chrome(options=options, service=ChromeService(installed("chromedriver", "chromium-driver")))
    try:
        yield browser
    finally:
        browser.quit()


def installed(program: str, package: str) -> str:
    """The path of a program."""
    path = shutil.which(program)
    assert path, f"not installed: {program}. On Debian: apt-get install {package}"
    return path


class _Tabs:
    """The part of `Browser` that both have."""

    PROCESS: str
    """How an argument ends that only processes with pages are started with."""

    def __init__(self, driver: WebDriver, root: int) -> None:
        self._driver = driver
        self._root = root
        self._first = driver.current_window_handle  # is never closed: a command needs a tab
        driver.set_script_timeout(SECONDS)

    def open(self, url: str) -> str:
        self._driver.switch_to.window(self._first)
        self._driver.switch_to.new_window("tab")
        tab = self._driver.current_window_handle
        self._driver.get(url)
        return tab

    def run(self, tab: str, script: str, *arguments: object) -> Any:
        self._driver.switch_to.window(tab)
        return self._driver.execute_script(script, *arguments)

    def close(self, tab: str) -> None:
        self._driver.switch_to.window(tab)
        self._driver.close()

    def process(self, tab: str) -> int:
        return busiest(self._root, self.PROCESS, lambda work: self.run(tab, work))


class Chromium(_Tabs):
    PROCESS = "--type=renderer"
    name = "Chromium"
    can_freeze = True
    can_disconnect = True
    survives_a_kill = True
    ends_requests = True

    def freeze(self, tab: str) -> None:
        self._tell(tab, "Page.setWebLifecycleState", state="frozen")

    def thaw(self, tab: str) -> None:
        self._tell(tab, "Page.setWebLifecycleState", state="active")

    def disconnect(self, tab: str, *, off: bool) -> None:
        self._tell(tab, "Network.enable")  # or only the page is told, and its requests go on
        no_limit = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        self._tell(tab, "Network.emulateNetworkConditions", offline=off, **no_limit)

    def _tell(self, tab: str, command: str, **arguments: object) -> None:
        self._driver.switch_to.window(tab)
        self._driver.execute("executeCdpCommand", {"cmd": command, "params": arguments})

    @classmethod
    @contextmanager
    def started(cls) -> Iterator[Chromium]:
        with chromium("ignore-certificate-errors", page_load="none") as driver:
            yield cls(driver, driver.service.process.pid)


class WebKit(_Tabs):
    """WebKitGTK's MiniBrowser. Only WebDriver reaches it, which has no commands for the network and for freezing.

    Its driver ends the session when the process of a page dies.
    """

    PROCESS = "WebKitWebProcess"
    name = "WebKitGTK"
    can_freeze = False
    can_disconnect = False
    survives_a_kill = False
    ends_requests = False

    def freeze(self, tab: str) -> None:
        raise NotImplementedError("WebKitGTK has no command that freezes a page: `can_freeze`")

    def thaw(self, tab: str) -> None:
        raise NotImplementedError("WebKitGTK has no command that freezes a page: `can_freeze`")

    def disconnect(self, tab: str, *, off: bool) -> None:
        raise NotImplementedError("WebKitGTK has no command for the network: `can_disconnect`")

    @classmethod
    @contextmanager
    def started(cls) -> Iterator[WebKit]:
        options = WebKitOptions()
        options.page_load_strategy = "none"
        options.accept_insecure_certs = True
        options.add_argument("--automation")
        with _display() as display:
            environment = {**os.environ, "DISPLAY": display, "GDK_BACKEND": "x11"}
            service = WebKitService(installed("WebKitWebDriver", "webkit2gtk-driver"), env=environment)
            service.start()  # webdriver.WebKitGTK would, too, but not without a DeprecationWarning
            try:
                connection = RemoteConnection(client_config=ClientConfig(service.service_url))
                driver = webdriver.Remote(connection, options=options)
                try:
                    yield cls(driver, service.process.pid)
                finally:
                    driver.quit()
            finally:
                service.stop()


@contextmanager
def _display() -> Iterator[str]:
    """An X server in memory, until the end of the block; yields its name."""
    reading, writing = os.pipe()
    server = subprocess.Popen(  # noqa: S603
        [installed("Xvfb", "xvfb"), "-displayfd", str(writing), "-nolisten", "tcp"],
        pass_fds=[writing], stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(writing)
    try:
        with os.fdopen(reading) as answer:
            number = answer.readline().strip()
        assert number, "Xvfb did not start"
        yield f":{number}"
    finally:
        server.terminate()
        server.wait(SECONDS)
