"""docs/start/tutorial.md, step by step: its files, its commands, and what it says one sees."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from tests.server.chromium import chromium
from tests.server.document_programs import started
from tests.server.document_samples import sample
from tests.server.redis_server import free_port
from tests.server.server_process import wait_until

SERVE = sample("docs/start/tutorial.md", "python3 -m venv")
APPLICATION = sample("docs/start/tutorial.md", "import json")
RUN = sample("docs/start/tutorial.md", ". ~")


@pytest.fixture
def browser() -> Iterator[webdriver.Chrome]:
    with chromium() as driver:
        yield driver


def shown(browser: webdriver.Chrome) -> tuple[list[str], str]:
    """The notes, and the state that the page shows."""
    notes, state = browser.execute_script(
        "const text = element => element?.textContent ?? '';"
        "return [[...document.querySelectorAll('li')].map(text), text(document.getElementById('state'))]"
    )
    return notes, state


def add(browser: webdriver.Chrome, text: str) -> None:
    """Add a note."""
    browser.find_element(By.NAME, "text").send_keys(text)
    browser.find_element(By.TAG_NAME, "button").click()


def test_the_tutorial(browser: webdriver.Chrome, tmp_path: Path) -> None:
    """Two windows, a note, an outage: each does what the tutorial says."""
    port, page_port = free_port(), free_port()
    make, activate, install, serve = SERVE.splitlines()
    assert (make, activate) == ("python3 -m venv ~/live", ". ~/live/bin/activate")
    assert install == "pip install . flask"  # tests/server/test_wheel.py installs what this does
    serve_words = serve.replace("127.0.0.1:5000", f"127.0.0.1:{page_port}").split()
    assert serve_words[0] == "pushup"
    command = [*serve_words, "--listen", f"127.0.0.1:{port}"]
    (tmp_path / "app.py").write_text(APPLICATION.replace("127.0.0.1:8080", f"127.0.0.1:{port}"))
    assert RUN.splitlines() == [activate, "flask run"]
    with started(["flask", "run"], page_port, tmp_path, FLASK_RUN_PORT=str(page_port)):
        with started(command, port, tmp_path) as server:
            url = f"http://127.0.0.1:{page_port}"
            browser.get(url)
            first = browser.current_window_handle
            browser.switch_to.new_window("window")
            browser.get(url)
            second = browser.current_window_handle
            wait_until(lambda: shown(browser) == ([], "live"), "the second window")
            browser.switch_to.window(first)
            wait_until(lambda: shown(browser) == ([], "live"), "the first window")
            add(browser, "<b>one</b>")
            wait_until(lambda: shown(browser) == (["<b>one</b>"], "live"), "the first note, on the next page")
            add(browser, "two")
            wait_until(lambda: shown(browser) == (["<b>one</b>", "two"], "live"), "the notes")
            browser.switch_to.window(second)
            wait_until(lambda: shown(browser) == (["<b>one</b>", "two"], "live"), "the notes in the second window")
            server.send_signal(signal.SIGINT)
            server.wait(20)
            wait_until(lambda: shown(browser)[1] == "offline", "the page to say so", 30)
        with started(command, port, tmp_path):
            wait_until(lambda: shown(browser) == (["<b>one</b>", "two"], "live"), "the page to be live again", 60)
