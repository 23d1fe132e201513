"""What the frameworks share, without processes: settings, transactions, what may be published, who may poll."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jwt
import pytest
from flask import Flask, render_template_string, request
from flask.views import MethodView
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from pushup.client import Client, ClientError, Published
from pushup.frameworks.after_commit import call_after_commit
from pushup.frameworks.flask import PushUp
from pushup.frameworks.publisher import PATIENCE_SECONDS, QUEUE_LIMIT, Outgoing, Publisher
from pushup.frameworks.site import Live, MayRead, Site

URL = "http://127.0.0.1:8080"
SECRET = "0123456789abcdef" * 2


def channels(user: str) -> list[str]:
    return ["news", f"user:{user}"]


async def channels_async(user: str) -> list[str]:
    return channels(user)


@pytest.mark.parametrize(
    ("url", "settings", "says"),
    [
        ("127.0.0.1:8080", {}, "such as http://127.0.0.1:8080"),
        (f"{URL}/?v1", {}, "is not a valid URL"),
        (URL, {"key": "two words"}, "the key is not valid"),
        (URL, {"token_secret": SECRET[1:], "channels": channels}, "shorter than 32 bytes"),
        (URL, {"token_secret": SECRET}, "set both"),
        (URL, {"channels": channels}, "set both"),
        (URL, {"token_secret": SECRET, "channels": ["news"]}, "must be a function"),
        (URL, {"token_secret": SECRET, "channels": channels_async}, "not an async one"),
    ],
)
def test_settings_that_cannot_be_used(url: str, settings: dict[str, Any], says: str) -> None:
    """The error says what to do."""
    with pytest.raises(ValueError, match=says):
        Site(url, **settings)


@pytest.mark.parametrize(("names_of", "names"), [(channels, ["news", "user:7"]), ("user:{}".format, ["user:7"])])
def test_a_token(names_of: Callable[[Any], Any], names: list[str]) -> None:
    """It allows polling what `channels` returns, for five minutes. A name is one, and not as many as it has letters."""
    site = Site(URL, token_secret=SECRET, channels=names_of, issuer="https://app.example")
    claims = jwt.decode(site.token("7", "7")["token"], SECRET, ["HS256"], audience="pushup")
    assert claims["pushup"] == {"poll": names}
    assert (claims["iss"], claims["sub"], claims["exp"] - claims["iat"]) == ("https://app.example", "7", 300)


def test_a_user_whose_id_would_be_a_pattern() -> None:
    """Gets no token: `user:*` are the private channels of all."""
    site = Site(URL, token_secret=SECRET, channels=channels)
    for user in ("*", "an*"):
        with pytest.raises(ValueError, match="no token for the user"):
            site.token(user, user)


def test_the_element_of_a_page() -> None:
    """Whatever a channel is called, it ends no attribute; names in braces are the view's arguments and the user."""
    site = Site(URL, public_url="")
    live = site.live_page("e-1", ["team:{team}", "user:{user}"], {"team": "'\"><b>"}, "7", "/pushup/token")
    assert live.config["url"] == "", "the page's own address, which is not that of the application's server"
    element = live("notes", prepend=True)
    assert element.count(">") == element.count("<") == 2
    assert live.config["channels"] == ["team:'\"><b>", "user:7"]
    with pytest.raises(ValueError, match="names 'other'; this page has only team, user"):
        site.live_page("e-1", ["{other}"], {"team": 3}, "7", "/pushup/token")
    stranger = site.live_page("", ["news"], {}, None, "/pushup/token").config
    assert (stranger["token"], stranger["user"], stranger["cursor"]) == (None, None, "")


def test_a_stranger_gets_no_token() -> None:
    """So the page asks for none: with a token, and no user, each list in each tab would hold a request of its own."""
    site = Site(URL, token_secret=SECRET, channels=lambda user: ["news"])
    tokens = [site.live_page("e-1", ["news"], {}, user, "/pushup/token").config["token"] for user in ("7", None)]
    assert tokens == ["/pushup/token", None]


def test_a_page_with_several_lists() -> None:
    """Each names its channels, or new rows would go into any of them."""

    def page() -> Live:
        return Site(URL).live_page("e-1", ["news", "team:{team}"], {"team": 3}, "7", "/pushup/token")

    live = page()
    assert "[&quot;news&quot;]" in live("news", "news")
    assert "[&quot;team:3&quot;]" in live("team", "team:{team}")
    for first, second in ((), ("team",)), (("news",), ()):
        live = page()
        live("news", *first)
        with pytest.raises(ValueError, match="must name its channels"):
            live("team", *second)
    live = page()
    assert live("news") == live("news"), "a template may be rendered twice"


@pytest.mark.parametrize(
    ("data", "html", "says"),
    [
        (None, "<li>Hello</li>", "has an id"),
        (None, 'Hello <li id="1">', "has an id"),
        (None, '<li title="its id=1">', "has an id"),
        (None, '<!-- <li id="1"> -->', "has an id"),
        ("a", '<li id="1">', "not both"),
        ({1, 2}, None, "not JSON serializable"),
        ([float("nan")], None, "not JSON compliant"),
        (["\ud83d"], None, "surrogates not allowed"),
        (None, '<li id="1">\ud83d', "surrogates not allowed"),
    ],
)
def test_what_cannot_be_published(data: Any, html: str | None, says: str) -> None:
    """It is an error where it is called, and not later in the background."""
    with pytest.raises((ValueError, TypeError), match=says):
        Site(URL).publish("news", data, html=html)


def test_a_channel_with_half_a_character() -> None:
    """Such as one that is made of a user's text in JSON."""
    with pytest.raises(ValueError, match="surrogates not allowed"):
        Site(URL).publish("search:\ud83d", 1)


@pytest.mark.parametrize("html", ["\n<li id=1>", """<LI class="[&>a]:p-4" title='"' ID = "1">"""])
def test_an_element_with_an_id(html: str) -> None:
    """It may come after values with a > in them, such as classes of Tailwind."""
    assert Outgoing.of("news", html=html).data == html


def test_data_is_published_as_it_was() -> None:
    """What the caller changes before it is published, or committed, changes nothing."""
    data = {"state": ["shipped"]}
    message = Outgoing.of("news", data)
    data["state"].append("returned")
    assert message.data == {"state": ["shipped"]}


def test_after_the_commit() -> None:
    """What is rolled back, to a savepoint or wholly, is never called; the rest is, in order, after the commit."""
    called: list[Any] = []
    with Session(create_engine("sqlite://")) as session:
        call: Callable[[Any], None] = lambda data: call_after_commit(session, partial(called.append, data))  # noqa: E731
        call(1)
        with session.begin_nested():
            call(2)
            with session.begin_nested() as inner:
                call("lost with the inner savepoint")
                inner.rollback()
            with session.begin_nested():
                call(3)
        outer = session.begin_nested()
        with session.begin_nested():
            call("lost with the outer savepoint")
        outer.rollback()
        assert called == []
        session.commit()
        assert called == [1, 2, 3]
        call("rolled back")
        session.rollback()
        call("closed")
        session.close()
        call(4)
        session.commit()
        session.commit()
    assert called == [1, 2, 3, 4]


def test_a_session_of_a_thread() -> None:
    """A scoped_session stands for the session of the thread."""
    called: list[Any] = []
    session = scoped_session(sessionmaker(create_engine("sqlite://")))
    call_after_commit(session, partial(called.append, 1))
    session.commit()
    session.remove()
    assert called == [1]


def test_an_async_session() -> None:
    """It has a plain one, whose commits count. Nothing here connects to a database."""
    called: list[Any] = []

    async def publish() -> None:
        async with AsyncSession(create_async_engine("postgresql+psycopg://nowhere")) as session:
            call_after_commit(session, partial(called.append, 1))
            await session.commit()
            call_after_commit(session, partial(called.append, "rolled back"))
            await session.rollback()

    asyncio.run(publish())
    assert called == [1]


class Held(Client):
    """A client that publishes once it may, but never what is "refused"."""

    def __init__(self) -> None:
        super().__init__(URL)
        self.has_begun = threading.Event()
        self.may = threading.Event()
        self.published: list[Any] = []
        self.patiences: list[Any] = []

    def publish(self, channels: Any, data: Any, *, patience: Any = None, **_options: Any) -> Published:
        self.patiences.append(patience)
        self.has_begun.set()
        self.may.wait()
        if data == "refused":
            raise ClientError("the server says no")
        self.published.append(data)
        return Published("e-1", 0.0, "e-1")


def test_publishing_in_the_background(caplog: pytest.LogCaptureFixture) -> None:
    """Publishing never waits; the order is kept; what is refused, and what is too much, is logged."""
    client = Held()
    publisher = Publisher(client)
    publisher.publish(Outgoing("news", "refused"))
    for number in range(QUEUE_LIMIT + 1):
        publisher.publish(Outgoing("news", number))
    assert not publisher.flush(0.0)
    client.may.set()
    assert publisher.flush(60.0)
    assert client.published == [*range(len(client.published))]
    assert len(client.published) in (QUEUE_LIMIT - 1, QUEUE_LIMIT)  # the thread may have taken the first, or not
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len([text for text in said if "are waiting already" in text]) == QUEUE_LIMIT + 1 - len(client.published)
    assert len([text for text in said if "the server says no" in text]) == 1
    assert client.patiences[-1] < PATIENCE_SECONDS, "the time for which it waited for others counts"


def test_a_publisher_that_is_closed() -> None:
    """Its messages are published, and its thread is gone; it can be used again."""
    client = Held()
    client.may.set()
    publisher = Publisher(client)
    before = threading.active_count()
    for number in range(3):
        publisher.publish(Outgoing("news", number))
        publisher.close()
        assert threading.active_count() == before
    assert client.published == [0, 1, 2]
    publisher.close()


def test_a_publisher_that_is_closed_while_pushup_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for 2 s, also if all are waiting that may. What is published later keeps its place; its thread ends when
    all have been tried."""
    client = Held()
    publisher = Publisher(client)
    before = threading.active_count()
    publisher.publish(Outgoing("news", 0))
    assert client.has_begun.wait(60.0)
    for number in range(1, QUEUE_LIMIT + 1):
        publisher.publish(Outgoing("news", number))
    waited: list[float | None] = []
    with monkeypatch.context() as context:
        context.setattr(threading.Thread, "join", lambda thread, timeout=None: waited.append(timeout))
        publisher.close()
        publisher.close()
    assert waited == [2.0, 2.0]
    client.may.set()
    assert publisher.flush(60.0)
    publisher.publish(Outgoing("news", "more"))
    publisher.close()
    assert client.published == [*range(QUEUE_LIMIT + 1), "more"]
    assert threading.active_count() == before


class Failing(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        raise OSError("the disk is full")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_publisher_whose_thread_has_died() -> None:
    """Such as by a log handler that fails: the next message starts another, also if the queue is full."""
    client = Held()
    publisher = Publisher(client)
    before = threading.active_count()
    handler = Failing()
    publisher.publish(Outgoing("news", "refused"))
    assert client.has_begun.wait(60.0)
    for number in range(QUEUE_LIMIT):
        publisher.publish(Outgoing("news", number))
    logging.getLogger("pushup.frameworks").addHandler(handler)
    try:
        client.may.set()
        while threading.active_count() > before:
            time.sleep(0.01)
    finally:
        logging.getLogger("pushup.frameworks").removeHandler(handler)
    publisher.publish(Outgoing("news", "one more"))
    assert publisher.flush(20.0)
    assert client.published[:QUEUE_LIMIT] == [*range(QUEUE_LIMIT)]


def test_a_publisher_that_gets_no_thread(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Publishing does not fail, as the transaction has been committed; the message is dropped, and that is logged."""
    client = Held()
    client.may.set()
    publisher = Publisher(client)

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as context:
        context.setattr(threading.Thread, "start", start)
        publisher.publish(Outgoing("news", 1))
    assert "not published on news: can't start new thread" in caplog.text
    publisher.publish(Outgoing("news", 2))
    assert publisher.flush(60.0)
    assert client.published == [2]


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_process_that_is_forked() -> None:
    """The child publishes its own messages, and not those that wait in the parent."""
    client = Held()
    publisher = Publisher(client)
    for number in range(3):
        publisher.publish(Outgoing("news", number))
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            client.may = threading.Event()
            client.may.set()
            publisher.publish(Outgoing("news", "of the child"))
            os.write(writing, json.dumps([publisher.flush(5.0), client.published]).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading) as told:
        assert json.load(told) == [True, ["of the child"]]
    os.waitpid(child, 0)
    client.may.set()
    assert publisher.flush(60.0)
    assert client.published == [0, 1, 2]


def may_read(user: str, channel: str) -> bool:
    return channel in channels(user)


async def may_read_async(user: str, channel: str) -> bool:
    return channel in channels(user)


def flask_application(user: str | None, may_read: MayRead = may_read) -> Flask:
    """What the application says is async if `may_read` is."""

    async def user_async() -> str | None:
        return user

    app = Flask(__name__)
    who: Any = user_async if may_read is may_read_async else lambda: user
    pushup = PushUp(app, URL, user=who, token_secret=SECRET, channels=channels)
    app.get("/may-poll")(pushup.may_poll(may_read))

    @app.get("/")
    def page() -> str:
        return render_template_string("{{ pushup('notes') }}")

    app.testing = True
    return app


@pytest.mark.parametrize(
    ("user", "asked", "status", "answer"),
    [
        ("7", "channel=news&channel=user:7", 200, {"allow": True, "subject": "7"}),
        ("7", "channel=news&channel=user:8", 200, {"allow": False, "subject": "7"}),
        (None, "channel=news", 401, {"allow": False}),
    ],
)
@pytest.mark.parametrize("function", [may_read, may_read_async])
def test_who_may_poll(user: str | None, asked: str, status: int, answer: dict[str, Any], function: MayRead) -> None:
    """A user gets all of the channels, or none; a stranger must log in."""
    client = flask_application(user, function).test_client()
    response = client.get(f"/may-poll?{asked}")
    assert (response.status_code, response.json) == (status, answer)
    assert client.get("/pushup/token").status_code == (200 if user else 401)


class Later:
    """Like a coroutine."""

    def __await__(self) -> Any:
        yield


@pytest.mark.parametrize("returned", [Later(), None, "yes"])
def test_who_may_poll_is_said_by_a_bool(returned: Any) -> None:
    """Anything else allows nothing: what nobody waits for would count as true."""
    with pytest.raises(TypeError, match="must return True or False"):
        flask_application("7", lambda user, channel: returned).test_client().get("/may-poll?channel=user:8")


def test_the_user_is_asked_for_once() -> None:
    """A function may look for its user in a database."""
    asked: list[str] = []

    def user() -> str:
        asked.append(request.path)
        return "7"

    app = Flask(__name__)
    pushup = PushUp(app, URL, user=user, token_secret=SECRET, channels=channels)
    app.get("/may-poll")(pushup.may_poll(may_read))
    for path in ("/may-poll", "/pushup/token"):
        response = app.test_client().get(path, query_string={"channel": "news"})
        assert response.status_code == 200
    assert asked == ["/may-poll", "/pushup/token"]
    assert response.headers["Cache-Control"] == "no-store", "another user may log in next"


def test_an_application_factory() -> None:
    """The extension is made before the application; the settings of the last application hold."""
    pushup = PushUp()
    for user in ("7", "8"):
        app = Flask(__name__)
        pushup.init_app(app, URL, user=partial(str, user), token_secret=SECRET, channels=channels)
        token = (app.test_client().get("/pushup/token").json or {})["token"]
        assert jwt.decode(token, SECRET, ["HS256"], audience="pushup")["sub"] == user


def test_a_page_without_the_decorator() -> None:
    """It is an error that says what to write: there, the cursor would be taken after the list."""
    with pytest.raises(RuntimeError, match=r"@pushup\.live\(CHANNEL\)"):
        flask_application("7").test_client().get("/")


def test_an_async_view(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flask waits for it, with the decorator as without."""
    app = Flask(__name__)
    pushup = PushUp(app, URL)
    monkeypatch.setattr(pushup, "cursor", lambda: "e-1")

    @app.get("/<team>")
    @pushup.live("news")
    async def page(team: str) -> str:
        return render_template_string("{{ pushup('notes', 'team:{team}') }}")

    assert "&quot;team:3&quot;" in app.test_client().get("/3").text


def test_a_view_of_a_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its method may have the decorator: it gets the view before the arguments of the path."""
    app = Flask(__name__)
    pushup = PushUp(app, URL)
    monkeypatch.setattr(pushup, "cursor", lambda: "e-1")

    class Page(MethodView):
        @pushup.live("team:{team}")
        def get(self, team: str) -> str:
            return render_template_string("{{ pushup('notes') }}")

    app.add_url_rule("/<team>", view_func=Page.as_view("page"))
    assert "&quot;team:3&quot;" in app.test_client().get("/3").text


def test_the_scripts_of_a_page() -> None:
    """They are served by the application, and no other file is."""
    client = flask_application(None).test_client()
    assert "data-pushup" in client.get("/pushup/live.js").text
    assert "class PushUp" in client.get("/pushup/pushup.js").text
    assert client.get("/pushup/other.js").status_code == 404


def test_before_it_has_an_application() -> None:
    """The error says what is missing. Who only asks what it has, as doctest does of all in a module, gets none."""
    with pytest.raises(AttributeError, match="call init_app"):
        PushUp().publish("news", "hello")
    assert not hasattr(PushUp(), "__wrapped__")
