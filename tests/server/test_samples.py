"""The samples in the documents do what the text says, against a real server, and withstand an attacker.

The session of requests and responses that runs through some pages is in test_documented_examples.py.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

import flask
import flask_login  # type: ignore[import-untyped]  # it has no types
import pytest
from selenium import webdriver
from werkzeug.serving import make_server

from pushup.backends.tickets import Tickets
from tests.server.blocking_backend import Question, Verdict, web_backend
from tests.server.caller import Caller, Reply, poll_path
from tests.server.chromium import chromium
from tests.server.command_line import run
from tests.server.conftest import Serve
from tests.server.document_samples import ROOT, SESSION, TAKEN, flags, sample, samples
from tests.server.raw_client import WAIT_SECONDS
from tests.server.redis_server import RedisServer, free_port
from tests.server.server_process import Server, clean_environment, running, set_flags, wait_until
from tests.server.token_issuer import SETTINGS, TokenIssuer

NOT_RUN = {
    "docs/operate/workers.md: pushup serve --workers auto": "tests/server/test_workers.py has several workers",
    "docs/lab/group.md: python -m loadtest group": "minutes; tests/loadtest/test_group.py runs it in small",
    "docs/lab/echo.md: python -m loadtest echo-native": "40 minutes; tests/loadtest has a small one",
    "docs/start/tutorial.md: ": "tests/server/test_tutorial.py goes through it",
    "docs/guide/presence.md: const presence": "tests/browser/presence.test.js runs it",
    "docs/guide/presence.md: from pushup": "tests/browser/test_presence.py runs it",
    "docs/guide/python.md: from ": "tests/server/test_client.py runs each",
    "docs/start/recipes/": "tests/server/test_recipes.py goes through each",
    "docs/guide/testing.md: class Shipping": "tests/testing/test_pytest_plugin.py runs it",
    "docs/guide/frameworks.md: @app.get": "tests/frameworks/test_order.py runs it",
    "docs/guide/outbox.md: ": "tests/outbox/test_postgres.py runs each",
    "docs/guide/pages.md: ": "tests/browser/test_pages.py runs each page, also behind nginx with its lines",
    "docs/guide/answers.md: ": "tests/browser/test_answers.py and tests/server/test_answers.py run each",
    "docs/guide/streams.md: $ curl -N": "it has no end; test_streaming.py and test_cli.py read such streams",
    "docs/operate/journal.md: pushup backup": "tests/server/test_backup.py runs it",
    "docs/operate/journal.md: pushup restore": "tests/server/test_backup.py runs it",
    "docs/operate/redis.md: redis-cli bgsave": "tests/server/test_backup.py runs it",
    "docs/operate/redis.md: systemctl stop pushup": "tests/server/test_backup.py runs it",
    "docs/operate/redis.md: pushup new-cluster": "tests/server/test_redis.py and test_cli.py run it",
    "README.md: docker run": "tests/deploy/test_containers.py runs it",
    "docs/operate/run.md: make deb": "tests/deploy/test_debian.py builds and installs the package",
    "docs/operate/run.md: docker build": "tests/deploy/test_containers.py runs the image in such ways",
    "README.md: make run": "it is how one gets here: CI begins with it",
    "README.md: make cluster": "tests/deploy/test_local.py runs what it runs",
    "docs/internals/architecture.md: pushup/": "a list of folders",
    "CONTRIBUTING.md: make check": "it runs this test",
    'docs/guide/browser.md: import { PushUp } from "/v1': "tests/browser/api.test.js runs it",
    "docs/guide/tokens.md: async function follow": "tests/browser/test_chromium.py runs it",
    "docs/internals/browser-client.md: PUSHUP_SEEDS": "minutes; tests/browser/test_browser.py runs 150 seeds",
    "docs/guide/browser.md: const sub = push.subscribe": "tests/browser/api.test.js runs it",
    "docs/internals/histories.md: cd tests/history/porcupine": "tests/history/test_porcupine.py builds it and runs it",
    "docs/internals/histories.md: python -m tests.simulation": "tests/history/test_simulated.py and test_file.py",
    'docs/internals/histories.md: {"event"': "tests/history/test_document.py judges it",
    "docs/lab/incidents.md: ": "what was seen and done on one day",
    "docs/lab/museum.md: .venv/bin/pytest": "it runs tests",
    "docs/internals/conformance.md: PYTHONPATH=. python": "minutes; needs Nchan; tests/conformance runs the suite",
    "docs/internals/conformance.md: GET /sub/1/L": "what Nchan answered, by hand",
    "docs/internals/conformance.md: the chain, four channels": "what Nchan answered, by hand",
    "docs/internals/conformance.md: GET /sub/0/A,B": "what Nchan answered, by hand",
    "docs/lab/planted-bugs.md: python -m tests.planted_bugs": "hours; test_planted_bugs.py runs some",
    "docs/internals/simulation.md: python -m tests.simulation": "an hour; test_simulation.py runs 200 seeds",
    "docs/internals/simulation.md: The cluster": "a part of a story",
    "docs/internals/simulation.md: What was seen": "a part of a story",
    "docs/lab/designs.md: python -m loadtest designs": "tests/loadtest/test_designs.py runs it in small",
    "docs/lab/evaluation.md: python -m venv": "half an hour; tests/loadtest runs each experiment in small",
    "docs/lab/evaluation.md: .venv/bin/pushup serve": "locust's page waits for somebody to press a button",
    "docs/operate/capacity.md: ": "formulas; tests/loadtest/test_capacity.py calculates with them",
    "docs/operate/proxy.md: upstream pushup": "tests/server/test_streams_behind_proxies.py runs it, without TLS",
    "docs/operate/proxy.md: www.example.org": "run by hand, with the version that the page names",
}
"""First lines of samples that no test runs, and why."""

FIRST_POLL = sample("README.md", "curl 'http://127.0.0.1:8080/v1/poll?channel=news&timeout=60'")
FIRST_MESSAGE = sample("README.md", "curl http://127.0.0.1:8080/v1/messages")
FIRST_ANSWER = sample("README.md", '{"cursor":"k3f9-1"')
NEXT_POLL = sample("README.md", "curl 'http://127.0.0.1:8080/v1/poll?channel=news&cursor=k3f9-1")
COMMAND_LINE = sample("README.md", ".venv/bin/pushup poll news")
IN_THE_CONSOLE = sample("README.md", "const { PushUp }")
PUBLISH = sample("README.md", "import http.client")
TICKET_EXPIRED = sample("docs/guide/authorization.md", '{"type": "urn:pushup:ticket-expired"')
FOLLOW = sample("docs/guide/browser.md", 'import { PushUp } from "http')
SERVE_BY_FILE = sample("docs/operate/run.md", "pushup serve --config /etc/pushup.toml")
CONFIGURATION = sample("docs/operate/settings.md", 'listen = ["127.0.0.1:8080"')
POLICIES = sample("docs/operate/retention.md", "[[channels]]")
QUOTAS = sample("docs/operate/quotas.md", "trusted_proxies")
LOG_LINE = sample("docs/operate/logs.md", '{"time": ')
SECRETS = sample("docs/operate/secrets.md", 'publish_keys_file = "/etc/pushup/publish_keys"')
MAKE_A_KEY = sample("docs/operate/secrets.md", "(umask 077; openssl rand -hex 24")
HANG_UP = sample("docs/operate/secrets.md", "kill -HUP")
MY_MESSAGE = sample("docs/operate/troubleshooting.md", "pushup poll news --cursor now")
WHY = sample("docs/operate/troubleshooting.md", "pushup why k3f9-41")
SERVE_A_JOURNAL = sample("docs/operate/journal.md", "pushup serve --broadcast journal:")
SERVE_WITH_REDIS = sample("docs/operate/redis.md", "pushup serve --broadcast redis://127.0.0.1:6379")
STABLE = sample("docs/operate/guarantees.md", "curl http://127.0.0.1:8080/v1/messages")
NODES = sample("docs/operate/redis.md", "curl http://127.0.0.1:8080/v1/nodes")
IN_REDIS = sample("docs/operate/redis.md", "redis-cli hgetall")
TESTS = sample("docs/guide/testing.md", "def test_a_shipped_order")
TESTS_SETTINGS = sample("docs/guide/testing.md", "import pytest")
TESTS_IN_PROCESS = sample("docs/guide/testing.md", "from pushup.testing import")
SERVE_PRIVATE = sample("docs/guide/security.md", "pushup serve --set publish_keys_file=")
PUBLISH_PRIVATE = sample("docs/guide/security.md", "curl http://127.0.0.1:8080/v1/messages -H")
FOLLOW_PRIVATE = sample("docs/guide/security.md", "import { PushUp }")
SERVE_WEBHOOKS = sample("docs/guide/unread.md", "(umask 077")
PUBLISH_UNREAD = sample("docs/guide/unread.md", "curl http://127.0.0.1:8080/v1/messages")
WEBHOOK = sample("docs/guide/unread.md", '{"type": "message.unread"')
TAKE_WEBHOOKS = sample("docs/guide/unread.md", "from pathlib import Path")
PRESENCE = sample("docs/guide/presence.md", "[[channels]]")
PRESENCE_CLAIMS = sample("docs/guide/presence.md", '{"sub"')
WHO_IS_THERE = sample("docs/guide/presence.md", "curl 'http://127.0.0.1:8080/v1/presence")
THESE_ARE_THERE = sample("docs/guide/presence.md", '{"channel": "room:1"')
WHO_CAME = sample("docs/guide/presence.md", '{"count"')
OCCUPIED = sample("docs/guide/presence.md", '{"type"')
SERVE_WITH_URL = sample("docs/guide/authorization.md", "pushup serve --set authorize_url=")
QUESTION = sample("docs/guide/authorization.md", "GET /may-poll?")
WITH_FLASK = sample("docs/guide/authorization.md", "from flask import request")
SERVE_WITH_FUNCTION = sample("docs/guide/authorization.md", "pushup serve --set authorizer=")
WITH_SQLITE = sample("docs/guide/authorization.md", "import sqlite3")
TICKET = sample("docs/guide/authorization.md", '{"cursor": "k3f9-41"')
POLL_WITH_TICKET = sample("docs/guide/authorization.md", "GET /v1/poll?channel=author:John&cursor=k3f9-41")


def test_every_sample_is_run_or_says_why_not() -> None:
    """Every code block in a document is used by a test, or listed in NOT_RUN with a reason."""
    for file in (ROOT / "tests").rglob("*.py"):
        if "from tests.server.document_samples import" in file.read_text():
            importlib.import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))
    found = [each.start for each in samples() if not (each.document in SESSION and each.kind.startswith("http"))]
    assert len(found) == len(set(found)), "two samples of a document begin with the same line"
    new = [each for each in found if each not in TAKEN and not each.startswith(tuple(NOT_RUN))]
    assert not new, "run these samples in a test, or say in NOT_RUN why none can:\n" + "\n".join(new)
    for start in NOT_RUN:
        assert [each for each in found if each.startswith(start)], f"NOT_RUN names no sample: {start}"


# Shell.


@pytest.fixture
def shell(tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """Runs shell commands with `pushup` on the path, in this test's directory."""
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "pushup").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m pushup "$@"\n')
    (programs / "pushup").chmod(0o755)
    assert shutil.which("curl"), "not installed: curl. On Debian: apt-get install curl"

    def start(server: Server, lines: str, **variables: str) -> subprocess.Popen[str]:
        path = f"{programs}:{os.environ['PATH']}"
        return subprocess.Popen(
            ["sh", "-e", "-c", lines.replace("http://127.0.0.1:8080", server.url)],
            env=clean_environment({"PATH": path, "PUSHUP_URL": server.url, **variables}), cwd=tmp_path,
            text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    return start


Shell = Callable[..., "subprocess.Popen[str]"]


def output(process: subprocess.Popen[str]) -> str:
    """All of its output; it must succeed."""
    out, error = process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == 0, error
    return out


def same_shape(value: Any, documented: Any) -> bool:
    """Whether two JSON values have the same structure: the same fields, and lists of the same length."""
    if isinstance(documented, dict):
        return (
            isinstance(value, dict)
            and list(value) == list(documented)
            and all(same_shape(value[name], each) for name, each in documented.items())
        )
    if isinstance(documented, list):
        return len(value) == len(documented) and all(map(same_shape, value, documented))
    return type(value) is type(documented)


def test_a_first_conversation(serve: Serve, shell: Shell) -> None:
    """The poll waits, the publication answers it as the page says, and the next poll resumes at its cursor."""
    with serve() as server:
        polling = shell(server, FIRST_POLL)
        server.wait_for_held(1)
        output(shell(server, FIRST_MESSAGE))
        answer = json.loads(output(polling))
        assert same_shape(answer, json.loads(FIRST_ANSWER))
        assert answer["messages"][0]["data"] == json.loads(FIRST_ANSWER)["messages"][0]["data"]
        assert "cursor=k3f9-1" in NEXT_POLL
        polling = shell(server, NEXT_POLL.replace("k3f9-1", answer["cursor"]))
        server.wait_for_held(1)
        output(shell(server, FIRST_MESSAGE))
        assert len(json.loads(output(polling))["messages"]) == 1


def test_the_command_line_follows(serve: Serve, shell: Shell) -> None:
    """The first line follows the channel that the second publishes to."""
    follow, publish = COMMAND_LINE.splitlines()
    with serve() as server, shell(server, f"exec {follow}") as following:
        server.wait_for_held(1)
        output(shell(server, publish))
        assert following.stdout is not None
        assert json.loads(following.stdout.readline())["data"] == {"text": "hello again"}
        following.terminate()


def test_a_message_that_does_not_arrive(serve: Serve, shell: Shell) -> None:
    """The first line prints what the second publishes; the third shows one message and one poll."""
    follow, publish, show = MY_MESSAGE.splitlines()
    with serve() as server, shell(server, f"exec {follow}") as following:
        try:
            server.wait_for_held(1)
            assert json.loads(output(shell(server, publish)))["id"]
            assert following.stdout is not None
            assert following.stdout.readline().endswith('  news  "test"\n')
            server.wait_for_held(1)
            shown = json.loads(output(shell(server, show)))
            assert (shown["messages"], shown["subscribers"]) == (1, 1)
        finally:
            following.terminate()


def test_what_became_of_a_message(serve: Serve, shell: Shell) -> None:
    """The client before it gets it."""
    with serve() as server, server.caller() as caller:
        before, id_ = (caller.publish(["news"], n)["id"] for n in range(2))
        text = output(shell(server, WHY.replace("k3f9-41", id_).replace("k3f9-40", before)))
        assert text.startswith(id_)
        assert "a poll of news from there gets the message" in text


def test_how_sure_and_which_nodes(serve: Serve, shell: Shell) -> None:
    """The publication is reported as stable, and the list of nodes has one."""
    with serve() as server:
        assert json.loads(output(shell(server, STABLE)))["ack"] == "stable"
        assert len(json.loads(output(shell(server, NODES)))["nodes"]) == 1


def test_what_is_in_redis(shell: Shell, tmp_path: Path) -> None:
    """The state and the last log entries are where the page says."""
    with RedisServer(tmp_path / "redis") as redis, running(tmp_path / "log", ("--broadcast", redis.url)) as server:
        with server.caller() as caller:
            wait_until(lambda: caller.call("GET", "/readyz").status == 200, "the node to be ready")
            caller.publish(["news"], "in the log")
        said = output(shell(server, IN_REDIS.replace("redis-cli", f"redis-cli -p {redis.port}")))
        assert "epoch" in said
        assert "in the log" in said


@pytest.mark.parametrize("line", SERVE_WITH_REDIS.splitlines())
def test_addresses_of_redis(line: str) -> None:
    """Every form of address is accepted, and its password is not shown."""
    said = run("check-config", *flags(line))
    assert said.returncode == 0, said.stderr
    assert "PASSWORD" not in said.stdout


def test_a_server_by_its_file(shell: Shell, tmp_path: Path) -> None:
    """The configuration is valid and works; the generated key can publish, and SIGHUP loads a new one."""
    here = {"/etc/pushup.toml": f"{tmp_path}/pushup.toml", "/etc/pushup": str(tmp_path), "/run/pushup": str(tmp_path)}

    def placed(text: str) -> str:
        for there, path in here.items():
            text = text.replace(there, path)
        return text.replace("127.0.0.1:8080", "127.0.0.1:0")

    make, publish = MAKE_A_KEY.splitlines()
    (tmp_path / "redis_url").touch(0o600)
    (tmp_path / "redis_url").write_text("memory:\n")
    settings = "\n".join(dict.fromkeys((CONFIGURATION + SECRETS).splitlines()))
    (tmp_path / "pushup.toml").write_text(f"{placed(settings)}\n{POLICIES}")
    makes = (make, make.replace("publish_keys", "ticket_key"), SERVE_WEBHOOKS.splitlines()[0])
    for name, command in zip(("publish_keys", "ticket_key", "webhook_key"), makes, strict=True):
        subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True)
        assert (tmp_path / name).stat().st_mode & 0o077 == 0
    with running(tmp_path / "log", flags(placed(SERVE_BY_FILE))) as server:
        assert server.trouble() == []
        assert json.loads(output(shell(server, publish)))["id"]
        with server.caller() as caller:
            assert caller.call("POST", "/v1/messages", {"channels": ["news"], "data": 1}).status == 401
        subprocess.run(["sh", "-c", make], cwd=tmp_path, check=True)
        output(shell(server, HANG_UP, PID=str(server.process.pid)))
        wait_until(lambda: any("changed: publish_keys" in line for line in server.log_lines()), "the new key")
        assert json.loads(output(shell(server, publish)))["id"]


def test_quotas(tmp_path: Path) -> None:
    """A client that asks too fast gets 429; what it asked was not answered."""
    (tmp_path / "pushup.toml").write_text(QUOTAS)
    with running(tmp_path / "log", ("--config", f"{tmp_path}/pushup.toml")) as server, server.caller() as caller:
        statuses = [caller.call("GET", "/v1/cursor").status for _ in range(300)]
        assert server.trouble() == []
    assert set(statuses) == {200, 429}
    assert statuses.index(429) >= 100


def test_a_line_of_the_log(tmp_path: Path) -> None:
    """It is what the server logs about such a publication."""
    key = "a-publish-key-of-27-letters"
    settings = (f"publish_keys=app {key}", "audit_channels=news", "trusted_proxies=127.0.0.1", "log_format=json")
    with (
        running(tmp_path / "log", tuple(word for each in settings for word in ("--set", each))) as server,
        server.caller() as caller,
    ):
        head = {"Authorization": f"Bearer {key}", "X-Forwarded-For": "192.0.2.7"}
        published = caller.call("POST", "/v1/messages", {"channels": ["news"], "data": 1}, head).value
        (line,) = [line for line in server.log_lines() if "published" in line]
    found, wanted = json.loads(line.replace(published["id"], "k3f9-41")), json.loads(LOG_LINE)
    assert found.keys() == wanted.keys()
    assert [datetime.fromisoformat(each.pop("time")).utcoffset() for each in (found, wanted)] == [timedelta()] * 2
    assert found == wanted


def test_a_journal(tmp_path: Path) -> None:
    line = SERVE_A_JOURNAL.replace("/var/lib/pushup", str(tmp_path))
    with running(tmp_path / "log", flags(line)) as server, server.caller() as caller:
        caller.publish(["news"], 1)
        assert (tmp_path / "journal.db").exists()


def test_the_tests_of_an_application(tmp_path: Path) -> None:
    """The test passes with an application that publishes, and fails with one that does not; without a process, too."""
    publish = 'Client(pushup_url).publish([f"user:{buyer}"], "your order has shipped")'
    for body, expected in ((publish, 0), ("pass", 1)):
        client = "from pushup.client import Client\n"
        module = f"{client}{TESTS_SETTINGS}\n\n{TESTS}\n\ndef ship_order(buyer, pushup_url):\n    {body}\n"
        (tmp_path / "test_orders.py").write_text(module)
        run = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "pushup.testing.pytest_plugin"],
            env=clean_environment({"PYTHONPATH": str(Path(__file__).parents[2])}), cwd=tmp_path,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert run.returncode == expected, run.stdout + run.stderr
    exec(compile(TESTS_IN_PROCESS, "testing.md", "exec"), {})


# The publisher in Python.


def publisher(url: str, *, timeout: str = "5", pauses: str = "(1, 3, None)") -> Callable[[list[str], Any], Any]:
    """The README's function, for another server and perhaps with fewer retries."""
    definition, _, call = PUBLISH.rpartition("\npublish(")
    assert call.startswith("[")
    for ours, theirs in (("http://127.0.0.1:8080", url), ("timeout=5", f"timeout={timeout}"), ("(1, 3, None)", pauses)):
        assert definition.count(ours) == 1, ours
        definition = definition.replace(ours, theirs)
    names: dict[str, Any] = {}
    exec(compile(definition, "README.md", "exec"), names)
    publish: Callable[[list[str], Any], Any] = names["publish"]
    return publish


def test_publishing_from_an_application(serve: Serve) -> None:
    """The complete sample publishes its question on all three channels."""
    with serve() as server, server.caller() as caller:
        exec(compile(PUBLISH.replace("http://127.0.0.1:8080", server.url), "README.md", "exec"), {})
        (message,) = caller.poll("author:John", "tag:c++", "tag:java", timeout=0)["messages"]
        assert message["channels"] == ["author:John", "tag:c++", "tag:java"]
        assert message["data"] == {"question": "What is a B-tree?"}


def test_publishing_to_a_server_that_hangs(serve: Serve) -> None:
    """It gives up on a frozen server; what it tried three times is published once when the server resumes."""
    with serve() as server, server.caller() as caller:
        server.signal(signal.SIGSTOP)
        with pytest.raises(OSError, match="timed out"):
            publisher(server.url, timeout="0.2", pauses="(0, 0, None)")(["news"], "given up")
        server.signal(signal.SIGCONT)
        wait_until(lambda: len(caller.poll("news", timeout=0)["messages"]) > 0, "the message")
        assert publisher(server.url)(["news"], "after") is not None
        assert [each["data"] for each in caller.poll("news", timeout=0)["messages"]] == ["given up", "after"]


@contextmanager
def answering(*statuses: int) -> Iterator[tuple[str, list[str]]]:
    """A server that responds with these statuses in turn (0: closes); its URL, and the idempotency keys it got."""
    keys: list[str] = []
    left = list(statuses)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            keys.append(self.headers["Idempotency-Key"])
            status = left.pop(0)
            if status:
                self.send_response(status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name in the standard library
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{httpd.server_port}", keys
    finally:
        httpd.shutdown()
        httpd.server_close()
        thread.join()


@pytest.mark.parametrize("trouble", [503, 502, 504, 0])
def test_publishing_is_retried(trouble: int) -> None:
    """After a 503, a proxy's 502 or a closed connection it retries with the same key."""
    with answering(trouble, trouble, 201) as (url, keys):
        assert publisher(url, pauses="(0, 0, None)")(["news"], 1) == {}
    assert len(keys) == 3
    assert len(set(keys)) == 1


def test_publishing_that_fails() -> None:
    """It raises if a server stays away, and at once if a server refuses; each message has its own key."""
    with answering(503, 503, 503, 403, 400) as (url, keys):
        publish = publisher(url, pauses="(0, 0, None)")
        for status, tries in ((503, 3), (403, 4), (400, 5)):
            with pytest.raises(HTTPError) as caught:
                publish(["news"], 1)
            caught.value.close()
            assert caught.value.code == status
            assert len(keys) == tries
    assert len(set(keys)) == 3
    with pytest.raises(URLError, match="refused"):
        publish(["news"], 1)


# Who may poll: Flask-Login.


@contextmanager
def flask_application(secret_key: str = "of this test") -> Iterator[tuple[flask.Flask, str]]:
    """An application that contains the sample, where anybody can log in as anybody; returns its URL."""
    app = flask.Flask(__name__)
    app.secret_key = secret_key

    class User(flask_login.UserMixin):  # type: ignore[misc]
        def __init__(self, name: str) -> None:
            self.id = name

    flask_login.LoginManager(app).user_loader(User)

    @app.post("/login/<name>")
    def login(name: str) -> str:
        flask_login.login_user(User(name))
        return "welcome"

    exec(compile(WITH_FLASK, "docs/guide/authorization.md", "exec"), {"app": app})
    with served(app) as url:
        yield app, url


@contextmanager
def served(app: flask.Flask) -> Iterator[str]:
    """Its URL."""
    httpd = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=httpd.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{httpd.server_port}"
    finally:
        httpd.shutdown()
        thread.join()
        httpd.server_close()


def cookie_of(app: flask.Flask, name: str) -> str:
    """The cookie of a user who logs in."""
    with app.test_client() as client:
        return client.post(f"/login/{name}").headers["Set-Cookie"].partition(";")[0]


def polled(caller: Caller, *channels: str, cookie: str | None = None) -> int:
    """The status of a poll."""
    headers = {} if cookie is None else {"Cookie": cookie}
    return caller.call("GET", poll_path(*channels, timeout=0), headers=headers).status


def test_who_may_poll_with_flask(tmp_path: Path, stack: ExitStack) -> None:
    """Members may poll public channels and their own; strangers, and members on other users' channels, may not."""
    app, url = stack.enter_context(flask_application())
    other_app, _ = stack.enter_context(flask_application("of somebody else"))
    line = SERVE_WITH_URL.replace("http://127.0.0.1:5000", url)
    server = stack.enter_context(running(tmp_path / "log", flags(line)))
    caller = stack.enter_context(server.caller())
    mei = cookie_of(app, "mei")
    # Members.
    assert polled(caller, "user:mei", cookie=mei) == 200
    assert polled(caller, "public:news", cookie=mei) == 200
    assert polled(caller, "public:news", "user:mei", "user:mei", cookie=mei) == 200
    assert polled(caller, "user:mei", cookie=f"theme=dark; {mei}; basket=1=2; odd") == 200
    # Members on other users' channels.
    for channels in (
        ("user:tom",), ("user:mei", "user:tom"), ("public:news", "user:tom"), ("user:tom", "public:news"),
        ("user:mei", "user:mei", "user:tom"), ("user:",), ("user:mei2",), ("User:mei",), ("users",), ("xpublic:news",),
        ("user:mei&channel=user:tom",),
    ):  # fmt: skip
        assert polled(caller, *channels, cookie=mei) == 403, channels
    # Strangers.
    strangers: tuple[str | None, ...] = (
        None, "", "session=", "session=mei", "mei", f"x{mei}", f"{mei}x", mei.replace("session", "Session"),
        cookie_of(other_app, "mei"), "session=eyJfdXNlcl9pZCI6Im1laSJ9.aaaaaa.bbbbbbbbbbbbbbbbbbbbbbbbbbb",
    )  # fmt: skip
    for cookie in strangers:
        assert polled(caller, "user:mei", cookie=cookie) == 401, cookie
        assert polled(caller, "public:news", cookie=cookie) == 401, cookie
    # A ticket is valid only for its channels.
    ticket = caller.call("GET", poll_path("user:mei", timeout=0), headers={"Cookie": mei}).value["ticket"]
    for channels, status in ((("user:mei",), 200), (("user:tom",), 401), (("user:mei", "user:tom"), 401)):
        assert caller.call("GET", poll_path(*channels, timeout=0), headers={"PushUp-Ticket": ticket}).status == status
    assert server.trouble() == []


def test_tickets_are_as_documented(serve: Serve, stack: ExitStack) -> None:
    """The question, the answer with a ticket, and the poll with it."""
    backend = stack.enter_context(web_backend())
    server = stack.enter_context(serve(authorize_url=backend.url.replace("/may", "/may-poll")))
    caller = stack.enter_context(server.caller())
    answer = caller.call("GET", poll_path("author:John", "tag:java", timeout=0)).value
    assert f"GET {backend.questions[0].path}" == QUESTION.strip()
    assert same_shape(answer, json.loads(TICKET))
    first, field = POLL_WITH_TICKET.splitlines()
    answer = caller.call("GET", poll_path("author:John", timeout=0)).value
    name, _, value = field.partition(": ")
    assert re.fullmatch(r"[0-9]+\.[0-9]+\.[A-Za-z0-9=]+\.[A-Za-z]+\.\.\.", value)
    target = first.split()[1].replace("k3f9-41", answer["cursor"]) + "&timeout=0"
    assert "ticket" not in caller.call("GET", target, headers={name: answer["ticket"]}).value
    assert backend.count == 2


def test_a_ticket_that_ends_is_as_documented(serve: Serve) -> None:
    """A poll that is held when its ticket expires gets exactly this response."""
    with serve(authorizer="string:capwords", ticket_key="sixteen-characters-or-more") as server:
        now = int(time.time())
        ticket = Tickets(b"sixteen-characters-or-more").seal(("a",), issued_at=now, expires=now + 4, subject="")
        with server.caller() as caller:
            reply = caller.call("GET", poll_path("a", cursor="now"), headers={"PushUp-Ticket": ticket})
        assert (reply.status, reply.value) == (401, json.loads(TICKET_EXPIRED))


# Who may poll: a function.


def test_who_may_poll_with_a_function(tmp_path: Path) -> None:
    """The owner of a session may poll the member's channels, and nobody else may, whatever other cookies are sent."""
    (tmp_path / "club").mkdir()
    (tmp_path / "club" / "doors.py").write_text(WITH_SQLITE)
    with closing(sqlite3.connect(tmp_path / "club.db", isolation_level=None)) as database:
        database.execute("CREATE TABLE sessions (id TEXT PRIMARY KEY, member INTEGER NOT NULL, ends REAL NOT NULL)")
        database.execute("CREATE TABLE readers (channel TEXT NOT NULL, member INTEGER NOT NULL)")
        now = time.time()
        database.executemany(
            "INSERT INTO sessions VALUES (?, ?, ?)",
            [("of-mei", 1, now + 600), ("of-tom", 2, now + 600), ("over", 1, now - 1)],
        )
        database.executemany(
            "INSERT INTO readers VALUES (?, ?)", [("news", 1), ("news", 2), ("mei", 1), ("tom", 2), ("mei's", 1)]
        )
    with running(tmp_path / "log", flags(SERVE_WITH_FUNCTION)) as server, server.caller() as caller:
        for cookie in ("session=of-mei", "theme=dark; session=of-mei; basket=1=2; odd", "a=b;session=of-mei"):
            assert polled(caller, "mei", cookie=cookie) == 200, cookie
            assert polled(caller, "news", "mei's", "mei", "mei", cookie=cookie) == 200, cookie
        for channels in (("tom",), ("mei", "tom"), ("news", "tom"), ("tom", "mei"), ("unknown",), ("MEI",), ("me%",)):
            assert polled(caller, *channels, cookie="session=of-mei") == 403, channels
        strangers: tuple[str | None, ...] = (
            None, "", "session=", "session", "session=over", "session=of-me_", "session=' OR 1 --", "sessions=of-mei",
            "xsession=of-mei", "x=session=of-mei", "of-mei", 'session="of-mei"', "theme=dark",
        )  # fmt: skip
        for stranger in strangers:
            assert polled(caller, "mei", cookie=stranger) == 401, stranger
            assert polled(caller, "news", cookie=stranger) == 401, stranger
        assert server.trouble() == []


# In a browser.


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    with chromium() as driver:
        yield driver


def paste(browser: webdriver.Chrome, text: str) -> None:
    """Paste into the console, and record from now on what is logged."""
    browser.execute_script("window.logged = []; console.log = (...them) => logged.push(them.join(' '))")
    browser.execute_script(f"(async () => {{\n{text}\n}})()")  # a console, too, waits for such a promise


def as_script(module: str, server: str) -> str:
    """What a module does, in a form that can be pasted into the console."""
    return re.sub(r'import (\{.*\}) from "https?://[^/]*(/.*)";', rf'const \1 = await import("{server}\2");', module)


def logged(browser: webdriver.Chrome) -> list[str]:
    lines: list[str] = browser.execute_script("return logged")
    return lines


def test_in_the_console(serve: Serve, browser: webdriver.Chrome) -> None:
    """Pasted into the console of the page that README.md names, the lines log what is published, in order."""
    with serve() as server, server.caller() as caller:
        (path,) = re.findall("Open <http://127.0.0.1:8080(.*)>, paste", (ROOT / "README.md").read_text())
        browser.get(f"{server.url}{path}")
        page_type = browser.execute_script("return document.contentType")
        assert page_type != "application/json", "Firefox shows this in a page with a policy of its own"
        paste(browser, IN_THE_CONSOLE)
        server.wait_for_held(1)
        for number in range(3):
            caller.publish(["news"], f"message {number}")
        wait_until(lambda: len(logged(browser)) == 3, "the messages")
        assert logged(browser) == ["message 0", "message 1", "message 2"]


def test_a_page_of_another_origin(serve: Serve, browser: webdriver.Chrome, tmp_path: Path) -> None:
    """A page whose origin is in cors_origins keeps following while the server restarts with another ticket key, and
    while it hangs; a page from another origin gets nothing."""
    port = free_port()
    page = f"http://localhost:{port}"
    script = as_script(FOLLOW, f"http://127.0.0.1:{port}")

    def start(stack: ExitStack, origin: str) -> tuple[Server, Caller]:
        server = stack.enter_context(
            serve(
                "--listen", f"127.0.0.1:{port}", "--broadcast", f"journal:{tmp_path}/journal.db",
                cors_origins=origin, authorize_url=backend.url, drain_seconds="100ms",
            )
        )  # fmt: skip
        return server, stack.enter_context(server.caller())

    with web_backend() as backend:
        with ExitStack() as stack:
            server, caller = start(stack, page)
            browser.get(f"{page}/healthz")
            paste(browser, script)
            server.wait_for_held(1)
            caller.publish(["news"], "first")
            wait_until(lambda: logged(browser) == ["first"], "the first message")
            server.signal(signal.SIGSTOP)
            time.sleep(1)
            server.signal(signal.SIGCONT)
            caller.publish(["news"], "thawed")
            wait_until(lambda: logged(browser) == ["first", "thawed"], "the message after the pause")
            caller.close()
            server.end()
        with ExitStack() as stack:
            server, caller = start(stack, page)
            caller.publish(["news"], "restarted")
            # after some failures a page tries again within 30 s, and not at once
            everything = ["first", "thawed", "restarted"]
            wait_until(lambda: logged(browser) == everything, "the message after the restart", 60)
            browser.get("about:blank")
            caller.close()
            server.end()
        with ExitStack() as stack:
            server, caller = start(stack, "https://other.example")
            browser.get(f"{page}/healthz")
            outcome = browser.execute_async_script(
                "const [url, done] = arguments; fetch(url).then(() => done('read'), () => done('refused'))",
                f"http://127.0.0.1:{port}/v1/poll?channel=news",
            )
            assert outcome == "refused"
            browser.get("about:blank")


def test_a_page_that_may_not_poll(serve: Serve, browser: webdriver.Chrome) -> None:
    """When refused, the page is told so, and asks no more; with credentials, it follows."""

    def may_poll(question: Question) -> Verdict:
        return Verdict() if "session=mei" in question.headers.get("cookie", "") else Verdict(403, b"")

    with web_backend() as backend, serve() as page:
        backend.answer = may_poll
        with serve(authorize_url=backend.url, cors_origins=page.url) as server, server.caller() as caller:
            browser.get(f"{page.url}/healthz")
            browser.execute_script("document.cookie = 'session=mei'")
            script = as_script(FOLLOW, server.url)
            told = "onState: ({state, reason}) => state === 'stopped' && console.log(reason.status), onMessage"
            paste(browser, script.replace("onMessage", told))
            wait_until(lambda: logged(browser) == ["403"], "the refusal")
            asked = backend.count
            time.sleep(1)
            assert backend.count == asked <= 2
            paste(browser, script.replace("PushUp()", 'PushUp({credentials: "include"})'))
            server.wait_for_held(1)
            caller.publish(["news"], "for members")
            wait_until(lambda: logged(browser) == ["for members"], "the message")
            browser.get("about:blank")


def test_a_private_channel(serve: Serve, shell: Shell, browser: webdriver.Chrome, tmp_path: Path) -> None:
    """The user's page gets what the application publishes; nobody else can poll, or publish without the key."""
    subprocess.run(["sh", "-c", MAKE_A_KEY.splitlines()[0]], cwd=tmp_path, check=True)
    with flask_application() as (app, url), serve() as page:
        line = SERVE_PRIVATE.replace("\\\n", "").replace("https://www.example.org", page.url)
        line = line.replace("http://127.0.0.1:5000", url).replace("=publish_keys", f"={tmp_path}/publish_keys")
        with running(tmp_path / "log", flags(line)) as server, server.caller() as caller:
            browser.get(f"{page.url}/healthz")
            browser.execute_script(f"document.cookie = '{cookie_of(app, '7')}'")
            follow = as_script(FOLLOW_PRIVATE, server.url)
            paste(browser, f"const show = message => console.log(message.data);\n{follow}")
            server.wait_for_held(1)
            output(shell(server, PUBLISH_PRIVATE))
            wait_until(lambda: logged(browser) == ["your order has shipped"], "the message")
            assert polled(caller, "user:7") == 401
            assert polled(caller, "user:7", cookie=cookie_of(app, "8")) == 403
            assert caller.call("POST", "/v1/messages", {"channels": ["user:7"], "data": 1}).status == 401
            browser.get("about:blank")


# Who has not read a message.


def test_who_has_not_read_a_message(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The application is told of Bob, who has not, as on the page; what comes twice, or from others, does nothing."""
    monkeypatch.chdir(tmp_path)
    make, serve = SERVE_WEBHOOKS.replace("\\\n", "").splitlines()
    subprocess.run(["sh", "-c", make], check=True)
    mails: list[tuple[str, str]] = []
    calls: list[tuple[dict[str, str], bytes]] = []
    app = flask.Flask(__name__)

    @app.before_request
    def note() -> None:
        calls.append((dict(flask.request.headers), flask.request.get_data()))

    exec(compile(TAKE_WEBHOOKS, "docs/guide/unread.md", "exec"), {"app": app, "send_mail": lambda *m: mails.append(m)})
    settings = set_flags(SETTINGS)
    publish = PUBLISH_UNREAD.replace("60", "1").replace('"ann"', '"7"')
    with ExitStack() as stack:
        serve = serve.replace("http://127.0.0.1:5000", stack.enter_context(served(app)))
        server = stack.enter_context(running(tmp_path / "log", flags(serve) + settings))
        published = json.loads(output(shell(server, publish)))
        with server.caller() as caller:
            path = poll_path("chat:1", cursor=published["cursor"], timeout=0)
            token = TokenIssuer(60, poll=["chat:1"]).token()
            assert caller.call("GET", path, headers={"Authorization": f"Bearer {token}"}).status == 200
        wait_until(lambda: bool(mails), "a mail")
        assert mails == [("bob", "lunch?")]
        ((headers, body),) = calls
        documented = json.loads(WEBHOOK)
        assert same_shape(json.loads(body), documented)
        assert json.loads(body)["data"]["data"] == documented["data"]["data"]
        with app.test_client() as client:
            assert client.post("/unread", headers=headers, data=body).status_code == 204
            app.config["PROPAGATE_EXCEPTIONS"] = True
            with pytest.raises(ValueError, match="signature"):
                client.post("/unread", headers=headers, data=body.replace(b"bob", b"eve"))
    assert len(mails) == 1


# Who is there.


def test_who_is_there(shell: Shell, tmp_path: Path) -> None:
    """The list has who the page says, with what the token says of them; messages and the call have its fields."""
    (tmp_path / "pushup.toml").write_text(f"{PRESENCE}occupancy_webhooks = true\n")
    calls: list[Any] = []
    app = flask.Flask(__name__)

    @app.post("/occupied")
    def occupied() -> tuple[str, int]:
        calls.append(flask.request.get_json())
        return "", 204

    rights = json.loads(PRESENCE_CLAIMS)["pushup"]
    users = {"ann": rights["presence"], "bob": None, "eve": None}
    with ExitStack() as stack:
        given = {
            **SETTINGS,
            "webhook_key": f"whsec_{'k' * 32}",
            "webhook_url": f"{stack.enter_context(served(app))}/occupied",
        }
        settings = set_flags(given)
        server = stack.enter_context(running(tmp_path / "log", ("--config", f"{tmp_path}/pushup.toml", *settings)))
        caller = stack.enter_context(server.caller())

        def token(user: str) -> str:
            return TokenIssuer(60, user, poll=rights["poll"], presence=users[user]).token()

        def poll(user: str) -> Reply:
            return caller.call(
                "GET", "/v1/poll?channel=room:1&timeout=0", None, {"Authorization": f"Bearer {token(user)}"}
            )

        def show() -> Any:
            return json.loads(output(shell(server, WHO_IS_THERE, TOKEN=token("ann"))))

        wait_until(lambda: poll("ann").status == 200, "a token that is younger than the server")
        for number, user in enumerate(users, 1):
            assert poll(user).status == 200
            wait_until(lambda there=number: show()["count"] == there, f"{user} to be there")  # type: ignore[misc]
        assert caller.call("POST", "/v1/presence", {"channels": ["room:1"], "token": token("eve")}).status == 204
        wait_until(lambda: show()["count"] == 2, "eve to have left")
        shown, documented = show(), json.loads(THESE_ARE_THERE)
        assert same_shape(shown, documented)
        assert [(each["subject"], each["data"]) for each in shown["members"]] == [
            (each["subject"], each["data"]) for each in documented["members"]
        ]
        messages = poll("ann").value["messages"]
        wait_until(lambda: bool(calls), "the call")
    (call,), example = calls, json.loads(OCCUPIED)
    assert same_shape(call, example)
    assert (call["type"], call["data"]["channel"]) == (example["type"], example["data"]["channel"])
    assert {message["event"] for message in messages} == {"presence"}
    told, change = [message["data"] for message in messages], json.loads(WHO_CAME)
    assert [data.keys() for data in told] == [{"count", "joins"}] * 3 + [{"count", "leaves"}]
    assert change.keys() == {"count", "joins", "updates", "leaves"}
    assert same_shape(told[1]["joins"], change["joins"])
    assert told[3]["leaves"] == change["leaves"]
