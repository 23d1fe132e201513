"""Chromium without a window, for tests that look at pages."""

from loadtest.beyond.browsers.webdriver import chromium

__all__ = ["chromium"]
