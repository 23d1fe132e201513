"""PushUp for Django: its checks, the decorator, the tag, and publishing on commit."""

from __future__ import annotations

import asyncio
import json
from contextlib import closing
from functools import wraps
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

import pytest
from asgiref.testing import ApplicationCommunicator
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.base import BaseHandler
from django.core.management import CommandError, call_command
from django.db import connection, connections, transaction
from django.db.backends.postgresql.base import DatabaseWrapper
from django.db.backends.signals import connection_created
from django.db.utils import ConnectionDoesNotExist
from django.http import Http404, HttpRequest, HttpResponse
from django.template import engines
from django.test import RequestFactory, TestCase, override_settings
from django.urls import path, resolve
from django.utils.asyncio import async_unsafe
from django.utils.decorators import method_decorator
from django.utils.functional import SimpleLazyObject
from django.utils.module_loading import import_string
from django.views import View

from pushup.client import Client
from pushup.frameworks.django import live, may_poll, publish_on_commit
from pushup.frameworks.django.settings import site
from pushup.frameworks.django.views import module, token
from pushup.frameworks.publisher import Outgoing, Publisher
from pushup.outbox.django.management.commands import pushup_outbox
from tests.frameworks import django_project, django_urls
from tests.server.server_process import Server

django_project.configure()

URL = django_project.URL
SECRET = "0123456789abcdef" * 2
CHANNELS = "tests.frameworks.django_project.channels"


def request(path: str = "/", user: str | None = "7") -> Any:
    made = RequestFactory().get(path)
    made.user = SimpleNamespace(is_authenticated=user is not None, pk=user)
    return made


def render(text: str, **context: Any) -> str:
    return str(engines["django"].from_string("{% load pushup %}" + text).render(context, context.pop("request", None)))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (None, "set PUSHUP, such as"),
        ({"URL": URL, "TOKN_SECRET": SECRET}, "no 'TOKN_SECRET'; it knows URL, KEY, TOKEN_SECRET"),
        ({"URL": URL, "TOKEN_SECRET": SECRET, "CHANNELS": "notes.nowhere"}, "cannot be imported"),
        ({"URL": URL, "TOKEN_SECRET": "short", "CHANNELS": CHANNELS}, "openssl rand -hex 32"),
        ({"URL": URL, "TOKEN_SECRET": SECRET}, "set both"),
        ({"KEY": "key"}, "'None' is not a valid URL; write one such as http://127.0.0.1:8080"),
        ({"URL": URL, "KEY": "two words"}, "the key is not valid"),
    ],
)
def test_checks(given: dict[str, Any] | None, says: str) -> None:
    """`manage.py check` says what is wrong with `PUSHUP`."""
    with override_settings(PUSHUP=given):
        (error,) = [each for each in checks.run_checks() if each.id == "pushup.E001"]
    assert says in error.msg


def test_settings_that_are_right() -> None:
    """There is nothing to say."""
    with override_settings(PUSHUP={"URL": URL, "TOKEN_SECRET": SECRET, "CHANNELS": CHANNELS}):
        assert checks.run_checks() == []


def test_a_page_without_the_decorator() -> None:
    """The tag says what to write."""
    with pytest.raises(ImproperlyConfigured, match=r'@live\("CHANNEL"\)'):
        render('{% pushup "notes" %}', request=request())


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_who_may_poll(kind: str) -> None:
    """A user gets all of the channels, or none; a stranger must log in, and gets no token."""

    def may_read(user: Any, channel: str) -> bool:
        return channel == f"user:{user.pk}"

    async def may_read_async(user: Any, channel: str) -> bool:
        return may_read(user, channel)

    view = may_poll(may_read if kind == "plain" else may_read_async)
    assert view(request("/?channel=user:7")).content == b'{"allow": true, "subject": "7"}'
    assert view(request("/?channel=user:7&channel=user:8")).content == b'{"allow": false, "subject": "7"}'
    assert view(request("/?channel=user:7", user=None)).status_code == 401
    assert token(request(user=None)).status_code == 401
    with override_settings(PUSHUP={"URL": URL, "TOKEN_SECRET": SECRET, "CHANNELS": CHANNELS}):
        assert token(request())["Cache-Control"] == "no-store", "another user may log in next"
    with pytest.raises(Http404):
        module(request(), "other")


def test_strangers_are_not_sent_to_the_login_page() -> None:
    """Where every view asks for a login by default: who calls these expects a script, or 401."""
    middleware = import_string("django.contrib.auth.middleware.LoginRequiredMiddleware")(lambda request: None)
    views = [resolve(f"/pushup/{name}").func for name in ("token", "live.js", "pushup.js")]
    for view in (*views, may_poll(lambda user, channel: True)):
        assert middleware.process_view(request(user=None), view, (), {}) is None


@pytest.fixture
def pushup(server: Server) -> Any:
    with override_settings(PUSHUP={"URL": server.url}), Client(server.url) as client:
        yield client


@pytest.mark.processes
@pytest.mark.parametrize("kind", ["plain", "async"])
def test_the_cursor_is_older_than_the_list(pushup: Client, kind: str) -> None:
    """What is published while the view runs comes after the page's cursor."""

    @live("news", "team:{team}")
    def view(request: HttpRequest, team: int) -> HttpResponse:
        pushup.publish("news", "meanwhile")
        return HttpResponse(render('{% pushup "notes" %}', request=request))

    @live("news", "team:{team}")
    async def view_async(request: HttpRequest, team: int) -> HttpResponse:
        await asyncio.to_thread(pushup.publish, "news", "meanwhile")
        return HttpResponse(render('{% pushup "notes" %}', request=request))

    made = request()
    response = view(made, team=3) if kind == "plain" else asyncio.run(view_async(made, team=3))
    assert b'src="/pushup/live.js"' in response.content
    assert made.pushup.config["channels"] == ["news", "team:3"]
    answer = pushup.poll("news", made.pushup.config["cursor"], timeout=0)
    assert [message.data for message in answer.messages] == ["meanwhile"]


def test_an_async_view_of_a_class() -> None:
    """Nothing blocks its event loop: Django does not let it look for the user there.

    The user is that of `request.user`; a middleware may have put another there than Django's, which `auser` returns.
    """

    class Page(View):  # type: ignore[misc]  # Django has no types
        async def get(self, request: HttpRequest) -> HttpResponse:
            return HttpResponse(request.user.pk)

    @async_unsafe("it is in a database")  # type: ignore[untyped-decorator]
    def user() -> Any:
        return SimpleNamespace(is_authenticated=True, pk="7")

    async def auser() -> Any:
        return SimpleNamespace(is_authenticated=False, pk=None)

    made = RequestFactory().get("/")
    made.user, made.auser = SimpleLazyObject(user), auser
    with patch("pushup.frameworks.django.views.site") as site:
        response = asyncio.run(live("news")(Page.as_view())(made))
    assert site.return_value.live_page.call_args.args[3] == "7"
    assert response.content == b"7"


@pytest.mark.processes
def test_an_async_view_of_an_asgi_application(pushup: Client) -> None:
    """The page has its cursor, and the arguments of its path."""

    @live("news")
    async def view(request: HttpRequest, team: int) -> HttpResponse:
        return HttpResponse(render('{% pushup "notes" "team:{team}" %}', request=request))

    async def get() -> str:
        scope = {"type": "http", "method": "GET", "path": "/3", "query_string": b"", "headers": []}
        application: Any = ApplicationCommunicator(ASGIHandler(), scope)  # type: ignore[no-untyped-call]
        await application.send_input({"type": "http.request"})
        start, body = [await application.receive_output(60) for _ in range(2)]
        await application.wait(60)
        assert start["status"] == 200
        return str(body["body"].decode())

    class Urls:
        urlpatterns = (path("<int:team>", view), *django_urls.urlpatterns)

    cursor = pushup.cursor()
    with override_settings(ROOT_URLCONF=Urls):
        page = asyncio.run(get())
    assert "&quot;channels&quot;: [&quot;team:3&quot;]" in page
    assert f"&quot;cursor&quot;: &quot;{cursor}&quot;" in page


@pytest.mark.processes
@pytest.mark.parametrize("is_atomic", [True, False])
def test_the_cursor_is_older_than_the_transaction(pushup: Client, is_atomic: bool) -> None:
    """ATOMIC_REQUESTS begins it after the cursor, whatever decorator reads before; the cursor's commit is seen."""
    inside: list[bool] = []

    def look(view: Any) -> Any:
        @wraps(view)
        def wrapped(*arguments: Any) -> Any:
            inside.append(connection.in_atomic_block)
            return view(*arguments)

        return wrapped

    with patch.dict(connections.settings["default"], ATOMIC_REQUESTS=is_atomic):

        @look
        @live("news")
        @look
        def view(request: HttpRequest) -> HttpResponse:
            return HttpResponse()

        handler = BaseHandler()
        assert handler.make_view_atomic(view)(request()).status_code == 200
    assert inside == [False, is_atomic]
    with pytest.raises(ImproperlyConfigured, match="write it above"):
        transaction.atomic(view)(request())


def test_a_view_of_a_class_with_atomic_requests() -> None:
    """On `dispatch` the decorator comes before the transaction. On `get` it cannot, and the error says so."""

    class OnGet(View):  # type: ignore[misc]  # Django has no types
        @method_decorator(live("news"))  # type: ignore[untyped-decorator]
        def get(self, request: HttpRequest) -> HttpResponse:
            return HttpResponse(connection.in_atomic_block)

    class OnDispatch(View):  # type: ignore[misc]
        get = OnGet.get.__wrapped__

    with (
        patch.dict(connections.settings["default"], ATOMIC_REQUESTS=True),
        patch("pushup.frameworks.django.views.site"),
    ):
        view = method_decorator(live("news"), name="dispatch")(OnDispatch).as_view()
        assert BaseHandler().make_view_atomic(view)(request()).content == b"True"
        with pytest.raises(ImproperlyConfigured, match="on dispatch, not on get"):
            BaseHandler().make_view_atomic(OnGet.as_view())(request())


class InATestCase(TestCase):  # type: ignore[misc]  # Django has no types
    """Its tests run in transactions, and views may be called there."""

    def runTest(self) -> None:
        with patch("pushup.frameworks.django.views.site") as site:
            site.return_value.live_page.return_value = None
            assert live("news")(lambda request: HttpResponse())(request()).status_code == 200


@pytest.mark.processes
def test_publishing_on_commit(pushup: Client) -> None:
    """Nothing is published before the commit, and nothing that is rolled back."""
    cursor = pushup.cursor()
    data = {"state": "shipped"}
    with transaction.atomic():
        publish_on_commit("news", html='<li id="1">one</li>')
        publish_on_commit("news", data)
        data["state"] = "changed before the commit"
        with transaction.atomic():
            publish_on_commit("news", "rolled back")
            transaction.set_rollback(True)
        pushup.publish("news", "before the commit")
    publish_on_commit("news", 2)
    assert site().flush(60.0)
    messages = pushup.poll("news", cursor, timeout=0).messages
    assert [(message.data, message.event) for message in messages] == [
        ("before the commit", None),
        ('<li id="1">one</li>', "html"),
        ({"state": "shipped"}, None),
        (2, None),
    ]


def test_a_message_is_checked_once() -> None:
    """Its data becomes JSON where it is given, and not once more at the commit."""
    with override_settings(PUSHUP={"URL": URL}), patch.object(Publisher, "publish") as publish:
        with patch("pushup.frameworks.publisher.json.dumps", wraps=json.dumps) as dumps:
            publish_on_commit("news", {"state": "shipped"})
        publish.assert_called_once_with(Outgoing("news", {"state": "shipped"}))
        assert dumps.call_count == 1


def relay_connection(wrapper: Any) -> Any:
    """What the relay's command gets from the database."""
    made: list[Any] = []
    run = lambda connect, *_, **__: made.append(connect())  # noqa: E731
    with patch.multiple(pushup_outbox, connections={"default": wrapper}, run=run):
        call_command(pushup_outbox.Command(), URL)
    return made[0]


@pytest.mark.parametrize(
    ("url", "key", "why"),
    [("push.example.org", "k", "'push.example.org' is not a valid URL; write one such as "),
     (URL, "two words", "the key is not valid")],
)  # fmt: skip
def test_a_relay_that_cannot_start(url: str, key: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says why, without a traceback."""
    monkeypatch.setenv("PUSHUP_KEY", key)
    with pytest.raises(CommandError, match=why):
        call_command(pushup_outbox.Command(), url)


def test_a_relay_whose_database_has_a_pool() -> None:
    """It connects by itself: a pool gets no closed connection back, and soon has none to lend."""
    options = {"pool": True, "sslmode": "require", "connect_timeout": 9}
    wrapper = DatabaseWrapper({**connection.settings_dict, "NAME": "shop", "OPTIONS": options})
    connect = MagicMock()
    connect.return_value.info.server_version = 170000
    with patch("psycopg.connect", connect):
        relay_connection(wrapper)
    given = connect.call_args.kwargs
    assert (given["sslmode"], given["connect_timeout"], given["tcp_user_timeout"]) == ("require", 9, 10_000)
    assert wrapper.settings_dict["OPTIONS"]["pool"], "the application goes on with it"


def test_a_relay_connects_as_the_application_does() -> None:
    """Roles and receivers that prepare a connection of the application prepare the relay's."""

    def prepare(connection: Any, **_more: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA cache_size = 77")

    connection_created.connect(prepare)
    try:
        with closing(relay_connection(connection)) as made:
            assert made.execute("PRAGMA cache_size").fetchone() == (77,)
    finally:
        connection_created.disconnect(prepare)


def test_a_relay_that_cannot_connect_leaves_nothing_open() -> None:
    """It tries again each second."""
    wrapper = DatabaseWrapper({**connection.settings_dict, "NAME": "shop"})
    connect = MagicMock()
    connect.return_value.info.server_version = 170000
    refuse = MagicMock(side_effect=PermissionError("no such role"))
    connection_created.connect(refuse)
    try:
        with patch("psycopg.connect", connect), pytest.raises(PermissionError):
            relay_connection(wrapper)
    finally:
        connection_created.disconnect(refuse)
    connect.return_value.close.assert_called_once()


def test_a_relay_of_no_database() -> None:
    """The command ends, and does not try for ever."""
    with pytest.raises(ConnectionDoesNotExist):
        call_command(pushup_outbox.Command(), URL, database="shop")
