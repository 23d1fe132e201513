"""FastAPI and Flask with a real PushUp: the cursor is older than the list; PushUp hangs; the process ends."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi import Depends, FastAPI
from flask import Flask, render_template_string, request
from sqlalchemy import create_engine
from sqlalchemy.orm import Session
from werkzeug.serving import make_server

from pushup.client import Client
from pushup.frameworks import fastapi, flask
from pushup.frameworks.site import Site
from tests.server.caller import poll_path
from tests.server.document_samples import sample
from tests.server.server_process import Server, running

pytestmark = pytest.mark.processes


def get(app: FastAPI, path: str, query: str = "") -> tuple[int, str]:
    """The status and body of an application's response."""
    scope = {
        "type": "http", "http_version": "1.1", "method": "GET", "scheme": "http", "path": path, "root_path": "",
        "query_string": query.encode(), "headers": [(b"host", b"app.example")], "server": ("app.example", 80),
    }  # fmt: skip
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    return sent[0]["status"], b"".join(each.get("body", b"") for each in sent[1:]).decode()


def cursor_of(page: str) -> str:
    return page.partition("&quot;cursor&quot;: &quot;")[2].partition("&")[0]


@pytest.mark.parametrize("name", ["fastapi", "flask"])
def test_the_cursor_is_older_than_the_list(server: Server, name: str) -> None:
    """What is published while the view runs comes after the page's cursor; the view's arguments name channels."""
    page = ""
    with Client(server.url) as client:
        if name == "flask":
            app = Flask(__name__)
            pushup = flask.PushUp(app, server.url, user=lambda: 7)

            @app.get("/<team>")
            @pushup.live("news", "team:{team}", "user:{user}")
            def view(team: str) -> str:
                client.publish("news", "meanwhile")
                return render_template_string("{{ pushup('notes') }}")

            page = app.test_client().get("/3").text
            pushup.close()
        else:
            api = FastAPI()
            push = fastapi.PushUp(server.url, user=lambda: 7)
            api.include_router(push.router)

            @api.get("/{team}")
            def function(team: str, live: Any = Depends(push.live("news", "team:{team}", "user:{user}"))) -> str:  # noqa: B008
                client.publish("news", "meanwhile")
                return str(live("notes"))

            page = json.loads(get(api, "/3")[1])
            push.close()
        assert "[&quot;news&quot;, &quot;team:3&quot;, &quot;user:7&quot;]" in page
        answer = client.poll("news", cursor_of(page), timeout=0)
        assert [message.data for message in answer.messages] == ["meanwhile"]


@pytest.mark.parametrize(
    ("user", "asked", "status", "answer"),
    [
        ("7", "channel=news&channel=user:7", 200, {"allow": True, "subject": "7"}),
        ("7", "channel=news&channel=user:8", 200, {"allow": False, "subject": "7"}),
        (None, "channel=news", 401, {"allow": False}),
    ],
)
@pytest.mark.parametrize("is_async", [False, True])
def test_who_may_poll(user: str | None, asked: str, status: int, answer: dict[str, Any], is_async: bool) -> None:
    """With FastAPI: a user gets all of the channels, or none; a stranger must log in."""

    def may_read(user: str, channel: str) -> bool:
        return channel in ("news", f"user:{user}")

    async def may_read_async(user: str, channel: str) -> bool:
        return may_read(user, channel)

    app = FastAPI()
    secret = "0123456789abcdef" * 2
    pushup = fastapi.PushUp("http://127.0.0.1:9", user=lambda: user, token_secret=secret, channels=lambda user: [user])
    app.include_router(pushup.router)
    app.get("/may-poll")(pushup.may_poll(may_read_async if is_async else may_read))
    assert get(app, "/may-poll", asked) == (status, json.dumps(answer, separators=(",", ":")))
    assert get(app, "/pushup/token")[0] == (200 if user else 401)
    assert "data-pushup" in get(app, "/pushup/live.js")[1]
    assert get(app, "/pushup/other.js")[0] == 404
    token: Any = next(route for route in pushup.router.routes if getattr(route, "path", "") == "/pushup/token")
    assert token.endpoint("7").headers["Cache-Control"] == "no-store", "another user may log in next"


def test_two_sites_in_an_application(monkeypatch: pytest.MonkeyPatch) -> None:
    """With FastAPI: the pages of each get its own tokens."""
    monkeypatch.setattr(Site, "cursor", lambda site: "e-1")
    app = FastAPI()
    for name in ("shop", "staff"):
        pushup = fastapi.PushUp("http://127.0.0.1:9", user=lambda: 7, token_secret="x" * 32, channels=lambda user: [])
        app.include_router(pushup.router, prefix=f"/{name}")
        app.get(f"/{name}")(lambda live=Depends(pushup.live("news")): live("notes"))  # noqa: B008
        assert f"&quot;token&quot;: &quot;/{name}/pushup/token&quot;" in get(app, f"/{name}")[1]


@pytest.mark.parametrize(
    ("user", "channel", "status"), [("7", "user:7", 200), ("7", "user:8", 403), (None, "notes", 401)]
)
def test_the_documented_view(tmp_path: Path, user: str | None, channel: str, status: int) -> None:
    """PushUp asks it by its `authorize_url`."""
    app = Flask(__name__)
    pushup = flask.PushUp(app, "http://127.0.0.1:9", user=lambda: request.cookies.get("user"))
    exec(sample("docs/guide/frameworks.md", '@app.get("/may-poll")'), {"app": app, "pushup": pushup})
    with make_server("127.0.0.1", 0, app, threaded=True) as site:
        thread = threading.Thread(target=site.serve_forever)
        thread.start()
        option = f"authorize_url=http://127.0.0.1:{site.server_port}/may-poll"
        try:
            with running(tmp_path / "log", ("--set", option)) as server, server.caller() as caller:
                headers = {"Cookie": f"user={user}"} if user else {}
                assert caller.call("GET", poll_path(channel, timeout=0), headers=headers).status == status
        finally:
            site.shutdown()
            thread.join()


def test_an_application_that_ends(server: Server) -> None:
    """FastAPI's shutdown waits until everything is published, and ends the thread; its own lifespan is kept."""
    ended: list[FastAPI] = []

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        ended.append(app)

    async def run() -> None:
        async with app.router.lifespan_context(app):
            with Session(create_engine("sqlite://")) as session, session.begin():
                for number in range(10, 20):
                    pushup.publish_after_commit(session, "news", number)
                for number in range(10):
                    pushup.publish("news", number)

    app = FastAPI(lifespan=lifespan)
    pushup = fastapi.PushUp(server.url)
    app.include_router(pushup.router)
    with Client(server.url) as client:
        cursor = client.cursor()
        asyncio.run(run())
        assert [message.data for message in client.poll("news", cursor, timeout=0).messages] == [*range(20)]
    assert ended == [app]
    assert "pushup-publisher" not in [thread.name for thread in threading.enumerate()]


def test_a_server_that_hangs(server: Server) -> None:
    """A page has no cursor then, and publishing goes on in the background; the message arrives when it may."""
    site = Site(server.url)
    with Client(server.url) as client:
        cursor = client.cursor()
        server.signal(signal.SIGSTOP)
        try:
            site.publish("news", 1)
            assert site.cursor() == ""
            assert not site.flush(0.0)
        finally:
            server.signal(signal.SIGCONT)
        assert site.flush(60.0)
        assert [message.data for message in client.poll("news", cursor, timeout=0).messages] == [1]
        assert site.cursor() == ""  # it is left alone for a while
    site.close()


def test_a_process_that_ends(server: Server) -> None:
    """Its last messages are published."""
    program = "import sys; from pushup.frameworks.site import Site; Site(sys.argv[1]).publish('news', 'the last one')"
    with Client(server.url) as client:
        cursor = client.cursor()
        subprocess.run([sys.executable, "-c", program, server.url], check=True, timeout=60)
        assert [message.data for message in client.poll("news", cursor, timeout=0).messages] == ["the last one"]
