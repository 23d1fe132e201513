"""The fixtures for pytest, in the test-suites of small applications, each run by a pytest of its own."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import psutil
import pytest

from pushup import __version__
from pushup.testing.server_process import running
from pushup.testing.versions import check_versions
from tests.server.document_samples import sample
from tests.server.server_process import clean_environment

ROOT = Path(__file__).parents[2]
PLUGIN = "pushup.testing.pytest_plugin"

SECONDS = 150.0

processes = pytest.mark.processes

FLASK = """
from flask import Flask, current_app, request
from pushup.client import Client

import pytest


def make_app(url):
    app = Flask(__name__)
    app.config["PUSHUP_URL"] = url

    @app.post("/orders/<number>/ship")
    def ship(number):
        with Client(current_app.config["PUSHUP_URL"]) as client:
            client.publish([f"order:{number}", "orders"], {"shipped": number}, idempotency_key=f"ship {number}")
        return ""

    return app


@pytest.mark.parametrize("run", range(6))
def test_shipping(pushup, run):
    app = make_app(pushup.url).test_client()
    app.post("/orders/7/ship")
    app.post("/orders/7/ship")
    app.post("/orders/8/ship")
    assert [message.data for message in pushup.published()] == [{"shipped": "7"}, {"shipped": "8"}]
    pushup.assert_published(["orders", "order:7"], {"shipped": "7"})


def test_of_the_address(pushup_url, pushup):
    assert pushup.url == pushup_url
"""

DJANGO = """
import django
import pytest
from django.conf import settings
from django.db import connection
from django.http import HttpResponse
from django.test import TestCase
from django.urls import path
from pushup.frameworks.django import publish_on_commit
from pushup.frameworks.django.settings import site
from pushup.frameworks.site import Site


def ship(request, number):
    publish_on_commit(f"order:{number}", "shipped")
    return HttpResponse()


urlpatterns = [path("orders/<int:number>/ship", ship)]

settings.configure(
    ROOT_URLCONF=__name__, ALLOWED_HOSTS=["testserver"],
    INSTALLED_APPS=["pushup.frameworks.django"], PUSHUP={"URL": "http://127.0.0.1:9"},
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
)
django.setup()
connection.creation.create_test_db(verbosity=0)


SHIPPING

    def test_each_once_and_nothing_before_the_commit(self):
        with self.captureOnCommitCallbacks(execute=True):
            for number in range(120):
                self.client.post(f"/orders/{number}/ship")
            assert self.pushup.published() == []
        assert len(self.pushup.published()) == 120

    def test_a_rollback(self):
        with self.captureOnCommitCallbacks(execute=False):
            self.client.post("/orders/7/ship")
        assert self.pushup.published() == []


def test_the_first_settings_are_back():
    assert site().live_page("", [], {}, None, "/token").config["url"] == "http://127.0.0.1:9"


def test_that_is_still_publishing_when_it_ends(pushup):
    site = Site(pushup.url)
    for number in range(200):
        site.publish("orders", number)


def test_after_it(pushup):
    assert pushup.published() == []
""".replace("SHIPPING", sample("docs/guide/testing.md", "class Shipping"))

FAILING = """
import pytest


@pytest.fixture(scope="session")
def pushup_settings():
    return {"retention_messages": 2}


def test_it(pushup):
    pushup.client.publish("a", "paid")
    pushup.assert_published("a", "shipped", within=0.1)


def test_settings(pushup):
    for number in range(3):
        pushup.client.publish("a", number)
    pushup.published()
"""


@processes
@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_a_flask_application(tmp_path: Path, workers: tuple[str, ...]) -> None:
    """Each test sees its own messages, though all use the same keys; so does each worker of pytest-xdist."""
    assert "7 passed" in run_tests(tmp_path, FLASK, *workers)


@processes
def test_a_django_application(tmp_path: Path) -> None:
    """What is published on commit, in the background, is in the record after `captureOnCommitCallbacks` calls it.

    The application publishes to the server of `self.settings`, and to its own one afterwards. What a test still
    publishes at its end is not in the record of the next one.
    """
    assert "6 passed" in run_tests(tmp_path, DJANGO)


@processes
def test_a_failure_says_what_was_published(tmp_path: Path) -> None:
    """And the server has the settings of the test-suite."""
    said = run_tests(tmp_path, FAILING, failures=True)
    assert re.search(r'E +AssertionError: "shipped" on a was not published, but\nE +"paid" on a\n', said)
    assert "the server has dropped messages" in said
    assert "2 failed" in said


@processes
def test_settings_of_a_module(tmp_path: Path) -> None:
    """They hold for its tests, and not for those of modules that run before or after it."""
    (tmp_path / "test_settings.py").write_text(FAILING)
    said = run_tests(tmp_path, FLASK, "test_settings.py", failures=True)
    assert "the server has dropped messages" in said
    assert "2 failed, 7 passed" in said


@processes
def test_a_setting_that_cannot_be(tmp_path: Path) -> None:
    said = run_tests(tmp_path, FAILING.replace("retention_messages", "retention_mesages"), failures=True)
    assert "RuntimeError: PushUp did not start, or has ended; it says why on standard error" in said
    assert "unknown setting 'retention_mesages' (did you mean 'retention_messages'?)" in said


@processes
def test_a_server_ends_with_its_tests() -> None:
    with running({}) as server:
        pass
    with pytest.raises((RuntimeError, ValueError)):
        server.restart({})


@processes
def test_a_server_that_was_killed() -> None:
    """Each test from then on says so."""
    before = psutil.Process().children()
    with running({}) as server:
        (process,) = {*psutil.Process().children()} - {*before}
        process.kill()
        for _ in range(2):
            with pytest.raises(RuntimeError, match="has ended"):
                server.restart({})


@processes
def test_an_application_that_does_not_use_it_loads_nothing() -> None:
    """Nor does one that does, before its first test: neither Twisted nor the client."""
    script = (
        f"import sys, pytest; before = {{*sys.modules}}; import {PLUGIN}; print(*sorted({{*sys.modules}} - before))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", script], env=environment(), capture_output=True, text=True, check=True
    ).stdout.split()
    assert loaded == ["pushup", "pushup.testing", PLUGIN]


def test_pytest_finds_the_plugin() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {PLUGIN: PLUGIN}
    assert {"pushup", "pushup_url", "pushup_settings"} <= vars(import_module(PLUGIN)).keys()


def test_a_client_of_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_versions()
    metadata = tmp_path / "pushup_client.dist-info" / "METADATA"
    metadata.parent.mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    metadata.write_text(f"Metadata-Version: 2.1\nName: pushup-client\nVersion: {__version__}\n")
    check_versions()
    metadata.write_text("Metadata-Version: 2.1\nName: pushup-client\nVersion: 99.0\n")
    with pytest.raises(RuntimeError, match=r"install pushup-client\[testing\]==99\.0, or pushup-client=="):
        check_versions()


def run_tests(folder: Path, text: str, *options: str, failures: bool = False) -> str:
    """What pytest prints for a test module."""
    (folder / "test_app.py").write_text(text)
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", PLUGIN, "-p", "no:cacheprovider", "test_app.py", *options],
        cwd=folder, env=environment(), capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    assert ended.returncode == failures, ended.stdout + ended.stderr
    return ended.stdout


def environment() -> dict[str, str]:
    return {**clean_environment(), "PYTHONPATH": str(ROOT)}
