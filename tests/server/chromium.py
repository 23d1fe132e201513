"""Chromium without a window, for tests that look at pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from selenium import webdriver
from selenium.webdriver.chrome.service import Service


@contextmanager
def chromium(*flags: str, log: str = "") -> Iterator[webdriver.Chrome]:
    """A browser until the end of the block. `log`: which messages of its console are kept, such as ALL."""
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    assert program, "not installed: chromium. On Debian: apt-get install chromium"
    assert driver, "not installed: chromedriver. On Debian: apt-get install chromium-driver"
    options = webdriver.ChromeOptions()
    options.binary_location = program
    if log:
        options.set_capability("goog:loggingPrefs", {"browser": log})
    for flag in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "disable-gpu", *flags):
        options.add_argument(f"--{flag}")
    browser = webdriver.Chrome(options=options, service=Service(driver))
    try:
        yield browser
    finally:
        browser.quit()
