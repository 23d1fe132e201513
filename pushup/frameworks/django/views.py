"""What an application calls, and the views of `urls`."""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Callable
from functools import wraps
from typing import Any

from asgiref.sync import async_to_sync, iscoroutinefunction, sync_to_async
from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import ImproperlyConfigured
from django.core.handlers.base import BaseHandler
from django.db import connections, transaction
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.urls import reverse

from pushup.frameworks.django.settings import site
from pushup.frameworks.publisher import Outgoing
from pushup.frameworks.site import SCRIPTS, Live, MayRead, decision, script

View = Callable[..., Any]


def live(*channels: str) -> Callable[[View], View]:
    """A decorator for the view of a page, plain or async: takes the cursor before the view reads its list.

    A transaction that has read something before does not see what is committed before the cursor: with ATOMIC_REQUESTS
    it begins after the cursor, any other is an error. `{% pushup "ID OF THE LIST" %}` does the rest. `{user}` in a
    channel stands for the user's id, any other name for the view's argument.
    Raises ImproperlyConfigured in a transaction.
    """

    def decorate(view: View) -> View:
        @wraps(view)
        def wrapped(request: HttpRequest, *arguments: Any, **names: Any) -> Any:
            _check_outermost()
            request.pushup = _live(site().cursor(), channels, names, request)
            return atomic_view(request, *arguments, **names)

        @wraps(view)
        async def wrapped_async(request: HttpRequest, *arguments: Any, **names: Any) -> Any:
            cursor = await to_thread(site().cursor)
            request.pushup = await sync_to_async(_live)(cursor, channels, names, request)  # it looks for the user
            return await view(request, *arguments, **names)

        if iscoroutinefunction(view):  # Django has no ATOMIC_REQUESTS for these
            return wrapped_async
        atomic_view = BaseHandler().make_view_atomic(view)
        for alias in connections:
            transaction.non_atomic_requests(alias)(wrapped)
        return wrapped

    return decorate


def publish_on_commit(channel: str, data: Any = None, *, html: str | None = None, using: str | None = None) -> None:
    """Publish in the background, once the transaction has been committed; at once if there is none.

    Raises ValueError or TypeError if that cannot be published. `html`: an element with an id, for `{% pushup %}`.
    """
    message = Outgoing.of(channel, data, html)  # a mistake is an error before the commit
    transaction.on_commit(lambda: site().publisher.publish(message), using=using, robust=True)


def may_poll(may_read: MayRead) -> View:
    """A decorator: `may_read(user, channel)` becomes the view for PushUp's `authorize_url`."""
    ask = async_to_sync(may_read) if iscoroutinefunction(may_read) else may_read

    @wraps(may_read)
    def view(request: HttpRequest) -> HttpResponse:
        subject = _subject(request)
        asked = request.GET.getlist("channel")
        allowed = None if subject is None else [ask(request.user, channel) for channel in asked]
        status, body = decision(allowed, subject)
        return JsonResponse(body, status=status)

    made: View = login_not_required(view)
    return made


def token(request: HttpRequest) -> HttpResponse:
    """A token for the user, or 401 for a stranger."""
    subject = _subject(request)
    if subject is None:
        return HttpResponse(status=401)
    return JsonResponse(site().token(request.user, subject), headers={"Cache-Control": "no-store"})


def module(request: HttpRequest, name: str) -> HttpResponse:
    """A script of a page."""
    if f"{name}.js" not in SCRIPTS:
        raise Http404
    return HttpResponse(script(f"{name}.js"), content_type="text/javascript")


def _check_outermost() -> None:
    for connection in connections.all(initialized_only=True):
        if connection.in_atomic_block:
            try:
                with transaction.atomic(connection.alias, savepoint=False, durable=True):
                    pass  # it is that of a TestCase
            except RuntimeError:
                raise ImproperlyConfigured(
                    "@live is inside of a transaction, which may not see what was committed before the cursor;"
                    " write it above @transaction.atomic, and in the class of a view on dispatch, not on get"
                ) from None


def _live(cursor: str, channels: tuple[str, ...], names: dict[str, Any], request: HttpRequest) -> Live:
    return site().live_page(cursor, channels, names, _subject(request), reverse("pushup:token"))


def _subject(request: HttpRequest) -> str | None:
    user = getattr(request, "user", None)
    return str(user.pk) if user is not None and user.is_authenticated else None
