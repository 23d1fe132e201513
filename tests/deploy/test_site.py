"""The documentation as a site: each link leads somewhere, nothing comes from other hosts, and Chromium can use it.

That it is built without a warning is part of making it; that links in the Markdown files are right is checked by
tests/test_documents.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote, urlsplit

import pytest
from PIL import Image
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.wait import WebDriverWait

from deploy.cluster import free_ports
from deploy.site.build import build, publish
from deploy.site.demo.recording import record
from deploy.site.pages import FORGE, ROOT
from tests.server.chromium import chromium

DEMO_LIMIT_BYTES = 500_000


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all versions: the pages of this checkout, as the releases 0.9.0 and 0.10.0 and as main."""
    folder = tmp_path_factory.mktemp("site")
    build(folder / "built", "0.10.0")
    for version in ("0.9.0", "0.10.0", "main"):
        publish(folder / "built", folder / "published", version)
    return folder / "published"


def test_every_link_leads_somewhere(shared: Path) -> None:
    """Each reference within the site names an existing file, and an existing element of it."""
    pages = {page: _parsed(page) for page in (shared / "0.10.0").rglob("*.html")}
    assert len(pages) > 75
    broken = []
    for page, found in pages.items():
        for reference in found.references:
            link = urlsplit(reference)
            if not link.scheme:
                there = (page.parent / unquote(link.path)).resolve() if link.path else page
                if not there.is_file() or (there in pages and unquote(link.fragment) not in pages[there].ids):
                    broken.append(f"{page.relative_to(shared)}: {reference}")
    assert not broken


def test_a_link_to_what_is_not_on_the_site_leads_to_the_forge(shared: Path) -> None:
    """To the same version there, if it is a file of the repository."""
    run = _parsed(shared / "0.10.0" / "operate" / "run.html").references
    assert f"{FORGE}/blob/v0.10.0/deploy/pushup.service" in run


def test_every_page_is_in_the_navigation(shared: Path) -> None:
    """By reader, in the order of the list of questions; on the first page as on each other."""
    text = (shared / "0.10.0" / "operate" / "journal.html").read_text()
    parts = re.findall(r'class="caption".*?>([^<]+)</span>', text)
    assert parts == re.findall(r"^## (.*)$", (ROOT / "docs" / "README.md").read_text(), re.MULTILINE)


def test_nothing_comes_from_another_host(shared: Path) -> None:
    """No script, style, font or image of a page."""
    for page in (shared / "0.10.0").rglob("*.html"):
        assert not [url for url in _parsed(page).loads if urlsplit(url).netloc], page
    for style in (shared / "0.10.0").rglob("*.css"):
        assert not re.search(r"@import|url\([\"']?(https?:)?//", style.read_text()), style


def test_the_versions_are_listed_from_the_newest(shared: Path) -> None:
    """And whoever names none is led to the newest."""
    assert json.loads((shared / "versions.json").read_text()) == ["0.10.0", "0.9.0", "main"]
    assert 'url=0.10.0/"' in (shared / "index.html").read_text()


def test_a_reader_can_search_and_choose_a_version(shared: Path) -> None:
    """In Chromium, without a network: search finds pages for users first, a version leads to the same page of it."""
    with _served(shared) as url, chromium("window-size=1280,900") as browser:
        browser.get(f"{url}/0.10.0/search.html?q=cursor")
        first = _find(browser, "#search-results li a")
        assert "/guide/" in str(first.get_attribute("href"))
        browser.get(f"{url}/0.10.0/guide/http.html")
        _find(browser, '.versions option[value="main"]')
        versions = Select(_find(browser, ".versions select"))
        assert [option.text for option in versions.options] == ["0.10.0", "0.9.0", "main"]
        versions.select_by_visible_text("0.9.0")
        _wait(browser).until(lambda _: browser.current_url == f"{url}/0.9.0/guide/http.html")
        loaded = browser.execute_script("return performance.getEntriesByType('resource').map(entry => entry.name)")
        assert loaded
        assert all(entry.startswith(url) for entry in loaded)


def test_a_page_fits_on_a_phone(shared: Path) -> None:
    """Nothing but a table or a sample is wider than the screen, and these scroll by themselves."""
    phone = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    with chromium() as browser:
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
        for page in (shared / "0.10.0" / "index.html", *(shared / "0.10.0" / "operate").glob("*.html")):
            browser.get(page.as_uri())
            width = browser.execute_script("return document.querySelector('.content').scrollWidth")
            assert width <= phone["width"], page


def test_the_animation_can_be_recorded_anew(tmp_path: Path) -> None:
    """It moves, and is no larger than that of the repository may be."""
    record(tmp_path, *free_ports(1))
    for folder in (tmp_path, ROOT / "docs"):
        with Image.open(folder / "demo.webp") as demo, Image.open(folder / "demo-still.webp") as still:
            assert getattr(demo, "n_frames", 1) > 20
            assert demo.size == still.size
        assert (folder / "demo.webp").stat().st_size < DEMO_LIMIT_BYTES


class _Parsed(HTMLParser):
    """What a page refers to, what of this the browser loads by itself, and its anchors."""

    def __init__(self) -> None:
        super().__init__()
        self.references: list[str] = []
        self.loads: list[str] = []
        self.ids = {"", "top"}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id":
                self.ids.add(value or "")
            elif name in ("href", "src", "srcset") and value is not None:
                self.references.append(value)
                if tag != "a":
                    self.loads.append(value)


def _parsed(page: Path) -> _Parsed:
    parsed = _Parsed()
    parsed.feed(page.read_text())
    return parsed


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=folder)) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


def _wait(browser: WebDriver) -> WebDriverWait[WebDriver]:
    return WebDriverWait(browser, 20, poll_frequency=0.05)


def _find(browser: WebDriver, selector: str) -> WebElement:
    """The first such element, as soon as there is one."""
    return _wait(browser).until(lambda _: browser.find_element(By.CSS_SELECTOR, selector))
