"""The example in a real browser behind a real HAProxy: what one reader asks, the others see at once."""

from __future__ import annotations

import http.client
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from urllib.parse import urlencode, urlsplit

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from deploy.cluster import Cluster
from tests.deploy.conversations import caller, publish, wait_for_message, wait_until
from tests.server.caller import Caller
from tests.server.chromium import chromium

ATTACK = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"

QUESTION = {"kind": "question", "id": 10**6, "author": "Wei", "title": "", "text": "x", "tags": ["a"], "time": 0.0}
"""What the example publishes."""

Post = Callable[..., str]


@pytest.fixture(scope="session")
def _browser() -> Iterator[webdriver.Chrome]:
    # Text that is still fading in would be read as empty.
    with chromium("ignore-certificate-errors", "force-prefers-reduced-motion", log="ALL") as driver:
        yield driver


@pytest.fixture
def browser(_browser: webdriver.Chrome) -> Iterator[webdriver.Chrome]:
    """A browser with one empty tab; a test may open more."""
    yield _browser
    for handle in _browser.window_handles[1:]:
        _browser.switch_to.window(handle)
        _browser.close()
    _browser.switch_to.window(_browser.window_handles[0])
    _browser.get("about:blank")
    _complaints(_browser)


@pytest.fixture
def post(cluster: Cluster) -> Post:
    """Submit a form to the example as a browser would; returns the redirect's target, or the error page."""

    return partial(_post, cluster.urls["plain"])


def _post(url: str, path: str, **form: str) -> str:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=20)
    connection.request("POST", path, urlencode(form), {"Content-Type": "application/x-www-form-urlencoded"})
    response = connection.getresponse()
    text = response.headers.get("Location") or response.read().decode()
    connection.close()
    return text


def test_john_asks_and_readers_of_java_see_it(cluster: Cluster, browser: webdriver.Chrome) -> None:
    """PushUp §3.3: asked in one tab, it appears without a reload in others, by its tags, its author, and everything."""
    url = cluster.urls["tls"]
    readers = []
    for path in ("/tag/java", "/tag/c%2B%2B", "/author/John", "/"):
        browser.switch_to.new_window("tab")
        browser.get(url + path)
        browser.execute_script("window.notReloaded = true")
        readers.append(browser.current_window_handle)
    wait_until(lambda: _state(browser) == "live", "the last page to be live")
    browser.switch_to.new_window("tab")
    browser.get(url + "/tag/python")
    fields = {"author": "John", "title": "What is a B-tree?", "text": "Every database has one.", "tags": "c++ java"}
    for name, value in fields.items():
        field = browser.find_element(By.NAME, name)
        field.clear()
        field.send_keys(value)
    browser.find_element(By.CSS_SELECTOR, "form button").click()
    wait_until(lambda: "/question/" in browser.current_url, "the question's own page")
    link = urlsplit(browser.current_url).path
    for reader in readers:
        browser.switch_to.window(reader)
        card = _card(browser, "What is a B-tree?")
        assert browser.execute_script("return window.notReloaded")
        assert "new" in (card.get_attribute("class") or "").split()
        assert [tag.text for tag in card.find_elements(By.CLASS_NAME, "tag")] == ["c++", "java"]
        assert card.find_element(By.CLASS_NAME, "name").text == "John"
        assert urlsplit(card.find_element(By.CLASS_NAME, "title").get_attribute("href") or "").path == link
    protocol = browser.execute_script("return performance.getEntriesByType('navigation')[0].nextHopProtocol")
    assert protocol == "h2"
    browser.get(url + "/tag/python")
    assert not _titles(browser)
    assert _complaints(browser) == []


def test_answers_appear_without_a_reload(cluster: Cluster, browser: webdriver.Chrome, post: Post) -> None:
    """It appears on the question's page, below earlier answers."""
    question = post("/questions", author="Ann", title="How long?", text="May a request be open?", tags="http")
    post(f"{question}/answers", author="Kim", text="It may.")
    browser.get(cluster.urls["plain"] + question)
    wait_until(lambda: _state(browser) == "live", "the page to be live")
    post(f"{question}/answers", author="Zoë", text="Proxies\ndiffer.")
    wait_until(lambda: len(browser.find_elements(By.CSS_SELECTOR, "#list > li")) == 2, "the second answer")
    answers = browser.find_elements(By.CSS_SELECTOR, "#list > li")
    assert [answer.find_element(By.CLASS_NAME, "text").text for answer in answers] == ["It may.", "Proxies\ndiffer."]
    assert answers[1].find_element(By.CLASS_NAME, "name").text == "Zoë"


def test_user_input_is_shown_as_text(cluster: Cluster, browser: webdriver.Chrome, post: Post) -> None:
    """Markup in a name, title, text or answer is shown literally, whether it arrives live or with the page."""
    name = '<b onclick="1">Eve</b>'
    browser.get(f"{cluster.urls['plain']}/")
    wait_until(lambda: _state(browser) == "live", "the page to be live")
    question = post("/questions", author=name, title=ATTACK, text=ATTACK, tags="attack")
    for come in ("live", "with the page"):
        if come == "with the page":
            browser.refresh()
        card = _card(browser, ATTACK)
        assert card.find_element(By.CLASS_NAME, "text").text == ATTACK
        assert card.find_element(By.CLASS_NAME, "name").text == name
        card.find_element(By.CLASS_NAME, "author").click()
        wait_until(lambda: "/author/" in browser.current_url, "the author's page")
        assert _card(browser, ATTACK)
        browser.back()
    browser.get(cluster.urls["plain"] + question)
    wait_until(lambda: _state(browser) == "live", "the page to be live")
    post(f"{question}/answers", author=name, text=ATTACK)
    wait_until(lambda: ATTACK in browser.find_element(By.ID, "list").text, "the answer")
    browser.refresh()
    assert ATTACK in browser.find_element(By.ID, "list").text
    assert not browser.find_elements(By.CSS_SELECTOR, "main img, main script, main b")
    assert "taken" not in browser.title.replace(ATTACK, "")
    assert _complaints(browser) == []


def test_nothing_but_its_own_scripts_runs(cluster: Cluster, browser: webdriver.Chrome) -> None:
    """Even if markup got into a page, the browser would not run it."""
    browser.get(f"{cluster.urls['plain']}/")
    browser.execute_script(
        "const image = new Image();"
        "image.setAttribute('onerror', 'document.title = \"taken\"');"
        "image.src = '/nowhere';"
        "document.body.append(image)"
    )
    wait_until(lambda: "Content Security Policy" in str(_complaints(browser)), "the browser to refuse it")
    assert browser.title != "taken"


@pytest.mark.parametrize("tags", ["<b>", "a/b", "a b c d e f", "", "x" * 31])
def test_tags_are_checked(post: Post, tags: str) -> None:
    """A tag is a single word; the page shows the error as text."""
    page = post("/questions", author="Eve", title="t", text="x", tags=tags)
    assert "Enter 1 to 5 tags" in page


def test_an_outage_of_pushup_loses_no_question(
    cluster: Cluster, stack: ExitStack, browser: webdriver.Chrome, post: Post
) -> None:
    """While Redis is away, a question is stored and its author told; readers see it when they load the page."""
    cluster.stop_part("redis")
    try:
        wait_until(lambda: cluster.server_states()["polls/node1"] == "NOLB", "the nodes to be not ready")
        question = post("/questions", author="Ann", title="Who hears me?", text="Nobody?", tags="redis")
        assert question.endswith("?told=no")
        browser.get(cluster.urls["plain"] + question)
        assert "Saved" in browser.find_element(By.CLASS_NAME, "notice").text
    finally:
        cluster.start_part("redis")
    browser.get(f"{cluster.urls['plain']}/tag/redis")
    assert _titles(browser) == ["Who hears me?"]


def test_a_page_reconnects(cluster: Cluster, browser: webdriver.Chrome) -> None:
    """Without HAProxy, a page says that it is offline and retries; then it shows what was published meanwhile."""
    browser.get(f"{cluster.urls['plain']}/tag/haskell")
    wait_until(lambda: _state(browser) == "live", "the page to be live")
    cluster.kill_part("haproxy")
    try:
        wait_until(lambda: _state(browser) == "away", "the page to notice")
        assert publish(cluster, ["tag:haskell"], QUESTION | {"title": "Why lazy?"}, at="node1").status == 201
    finally:
        cluster.start_part("haproxy")
    wait_until(lambda: _titles(browser) == ["Why lazy?"], "the question")
    assert _state(browser) == "live"


def test_the_page_first_and_pushup_later(browser: webdriver.Chrome) -> None:
    """A page that is loaded while no node runs says that it is offline, and becomes live by itself."""
    with Cluster(nodes=1, broadcast="memory:") as cluster:
        cluster.stop_part("node1")
        browser.get(f"{cluster.urls['plain']}/tag/later")
        wait_until(lambda: _state(browser) == "away", "the page to notice")
        cluster.start_part("node1")
        wait_until(lambda: _state(browser) == "live", "the page to be live")
        publish(cluster, ["tag:later"], QUESTION | {"title": "At last"})
        wait_until(lambda: _titles(browser) == ["At last"], "the question")
        browser.get("about:blank")


def test_after_a_gap_the_list_is_fetched_again(cluster: Cluster, browser: webdriver.Chrome) -> None:
    """A page that was offline while a message was published and its channel closed reloads from the application."""
    browser.get(f"{cluster.urls['plain']}/tag/gap")
    wait_until(lambda: _state(browser) == "live", "the page to be live")
    cluster.kill_part("haproxy")
    try:
        wait_until(lambda: _state(browser) == "away", "the page to notice")
        _post(cluster.urls["application"], "/questions", author="Wei", title="Missed", text="x", tags="gap")
        with Caller(cluster.address("node1")) as node:
            key = {"Authorization": f"Bearer {cluster.publish_key}"}
            node.call("POST", "/v1/messages", {"channels": ["tag:gap"], "data": QUESTION}, key)
            assert node.call("DELETE", "/v1/channels/tag%3Agap", headers=key).status == 204
            assert node.call("POST", "/v1/messages", {"channels": ["closed"], "data": 1}, key).status == 201
        wait_for_message(cluster, "closed")  # or the page may poll at a node that still has the other one
    finally:
        cluster.start_part("haproxy")
    wait_until(lambda: _titles(browser) == ["Missed"], "the list")
    publish(cluster, ["tag:gap"], QUESTION | {"title": "The next"})
    wait_until(lambda: _titles(browser) == ["The next", "Missed"], "it to be live again")


def test_a_message_is_shown_once(cluster: Cluster, browser: webdriver.Chrome, post: Post) -> None:
    """A poll does not add a question that the page already shows."""
    post("/questions", author="Wei", title="Only once", text="x", tags="once")
    with ExitStack() as stack:
        page = caller(cluster.urls["plain"], stack).call("GET", "/tag/once").text
    number = re.search(r'id="question-(\d+)"', page)
    assert number is not None
    browser.get(f"{cluster.urls['plain']}/tag/once")
    wait_until(lambda: _state(browser) == "live", "the page to be live")
    publish(cluster, ["tag:once"], QUESTION | {"id": int(number[1]), "title": "Only once"})
    publish(cluster, ["tag:once"], QUESTION | {"title": "Another"})
    wait_until(lambda: _titles(browser) == ["Another", "Only once"], "the other one")


def test_the_pages_fit_phones_and_dark_themes(cluster: Cluster, browser: webdriver.Chrome) -> None:
    """Nothing is wider than a phone, and a dark system theme gets dark pages."""
    for features, dark in (([{"name": "prefers-color-scheme", "value": "dark"}], True), ([], False)):
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        metrics = {"width": 360, "height": 800, "deviceScaleFactor": 1, "mobile": True}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        browser.get(f"{cluster.urls['plain']}/")
        ground = browser.find_element(By.TAG_NAME, "body").value_of_css_property("background-color")
        assert (sum(map(int, re.findall(r"\d+", ground)[:3])) < 200) == dark
        width = browser.execute_script("return document.documentElement.scrollWidth")
        assert width == 360
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def _state(browser: webdriver.Chrome) -> str | None:
    return browser.find_element(By.ID, "live").get_attribute("data-state")


def _titles(browser: webdriver.Chrome) -> list[str]:
    return [title.text for title in browser.find_elements(By.CSS_SELECTOR, "#list .title")]


def _card(browser: webdriver.Chrome, title: str) -> WebElement:
    """Wait until the newest question's card has this title, and return it."""
    wait_until(lambda: _titles(browser)[:1] == [title], f"a question {title!r}")
    return browser.find_element(By.CSS_SELECTOR, "#list > li")


def _complaints(browser: webdriver.Chrome) -> list[object]:
    """Errors logged by scripts and the content security policy."""
    entries: list[dict[str, object]] = browser.get_log("browser")  # type: ignore[no-untyped-call]
    return [entry for entry in entries if entry["level"] in ("WARNING", "SEVERE")]
