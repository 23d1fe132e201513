"""An application as PushUp sees it: its settings, and what does not depend on its framework."""

from __future__ import annotations

import html
import json
import logging
import re
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from inspect import iscoroutinefunction
from typing import Any

import jwt

from pushup.client import Client, ClientError
from pushup.frameworks.publisher import Outgoing, Publisher

CURSOR_SECONDS = 1.0
"""How long a page waits for its cursor."""

REST_SECONDS = 5.0
"""For how long pages do without a cursor after PushUp failed to give one."""

TOKEN_SECONDS = 300

SECRET_BYTES = 32
"""What PushUp demands of a secret."""

SCRIPTS = {"live.js": "pushup.frameworks", "pushup.js": "pushup.browser"}
"""The modules of a page, by the packages that they are in."""

MayRead = Callable[[Any, str], bool | Awaitable[bool]]
"""Whether this user may read this channel; plain or async."""

_log = logging.getLogger("pushup.frameworks")


class Markup(str):
    """HTML, which templates do not escape: those of Django and Jinja ask for `__html__`."""

    __slots__ = ()

    def __html__(self) -> str:
        return self


@dataclass(frozen=True, slots=True)
class Live:
    """What a page must know to stay up to date from a moment on. `cursor` is empty if PushUp did not answer."""

    script: str
    config: Mapping[str, Any]
    known: Mapping[str, Any]
    """What names in the braces of a channel stand for."""
    lists: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Those of the page so far, with the channels that each names."""

    def __call__(self, list_id: str, *channels: str, prepend: bool = False) -> Markup:
        """The element that keeps the list with this id up to date. New rows come last, or first with `prepend`.

        `channels`: those of this list, by default all of the page. Raises ValueError if several lists need them.
        """
        self.lists[list_id] = channels
        if len(self.lists) > 1 and () in self.lists.values():
            raise ValueError(f"each list of a page with several must name its channels after its id: {[*self.lists]}")
        own = {"channels": [_filled_in(each, self.known) for each in channels]} if channels else {}
        config = json.dumps({**self.config, **own, "list": list_id, "prepend": prepend})
        return Markup(
            f'<script type="module" src="{html.escape(self.script)}" data-pushup="{html.escape(config)}"></script>'
        )


class Site:
    """`url`: PushUp, as the application reaches it; `public_url`: as browsers do, if that differs; `key`: to publish.

    `token_secret` signs the tokens of users; `channels` returns which channels a user may poll, as docs/guide/tokens.md
    describes the names and patterns. `issuer` and `audience` are PushUp's `token_issuer` and `token_audience`.

    Raises ValueError if a setting cannot be used; `problems` says which.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        token_secret: str = "",
        channels: Callable[[Any], Iterable[str]] | None = None,
        public_url: str | None = None,
        issuer: str = "app",
        audience: str = "pushup",
    ) -> None:
        if found := [*problems(url, key, token_secret, channels)]:
            raise ValueError("; ".join(found))
        self._secret = token_secret
        self._channels = channels
        self._public_url = url if public_url is None else public_url
        self._claims = {"iss": issuer, "aud": audience}
        self._client = Client(url, key)
        self.publisher = Publisher(self._client)
        self._rests_until = 0.0

    def publish(self, channel: str, data: Any = None, *, html: str | None = None) -> None:
        """Publish in the background: `data`, or an element that goes into lists, or replaces the one with its id.

        Raises ValueError or TypeError if that cannot be published. If PushUp does not take it within a minute, that is
        logged.
        """
        self.publisher.publish(Outgoing.of(channel, data, html))

    def publish_after_commit(self, session: Any, channel: str, data: Any = None, *, html: str | None = None) -> None:
        """Publish as `publish` does, once the transaction of a session of SQLAlchemy has been committed."""
        from pushup.frameworks.after_commit import call_after_commit  # only who calls it needs SQLAlchemy

        message = Outgoing.of(channel, data, html)
        call_after_commit(session, lambda: self.publisher.publish(message))

    def flush(self, timeout: float) -> bool:
        """Wait for what is being published, for at most `timeout` seconds; returns whether that is done."""
        return self.publisher.flush(timeout)

    def close(self) -> None:
        """Wait up to 2 s for what is being published, and close the connections; the next call opens a new one.
        What is left is still tried, for its minute or until the process ends. What is lost is logged."""
        self.publisher.close()
        self._client.close()

    def cursor(self) -> str:
        """The present, within a second; or "" if PushUp does not say, and for 5 s after that."""
        if time.monotonic() < self._rests_until:
            return ""
        try:
            return self._client.cursor(CURSOR_SECONDS)
        except ClientError as error:
            self._rests_until = time.monotonic() + REST_SECONDS
            _log.warning("a page has no cursor, and gets its list again once PushUp answers: %s", error)
            return ""

    def live_page(
        self, cursor: str, channels: Iterable[str], names: Mapping[str, Any], user: Any, token_path: str
    ) -> Live:
        """For a page of `user` that took this cursor first; None is a stranger. `{name}` in a channel stands for the
        page's argument of this name, `{user}` for the user. `token_path`: of the token; the scripts are beside it.
        """
        subject = None if user is None else str(user)
        known = {**names, "user": subject or ""}
        config = {
            "url": self._public_url,
            "channels": [_filled_in(each, known) for each in channels],
            "cursor": cursor,
            "user": subject,
            "token": token_path if self._secret and subject is not None else None,
        }
        return Live(f"{token_path.removesuffix('token')}live.js", config, known)

    def token(self, user: Any, subject: str) -> dict[str, str]:
        """A token for what `channels` lets a user poll; PushUp calls the user `subject`."""
        if self._channels is None:
            raise ValueError("give PushUp a token secret and the function `channels` to sign tokens")
        if subject.endswith("*"):
            raise ValueError(f"no token for the user {subject!r}: user:{subject} stands for others, too")
        now = int(time.time())
        claims = {**self._claims, "iat": now, "exp": now + TOKEN_SECONDS, "sub": subject}
        names = self._channels(user)
        rights = {"poll": [names] if isinstance(names, str) else list(names)}
        return {"token": jwt.encode({**claims, "pushup": rights}, self._secret, algorithm="HS256")}


def _filled_in(channel: str, known: Mapping[str, Any]) -> str:
    try:
        return re.sub(r"\{(\w+)\}", lambda match: str(known[match[1]]), channel)
    except KeyError as error:
        raise ValueError(f"the channel {channel!r} names {error}; this page has only {', '.join(known)}") from None


def problems(url: Any, key: Any, token_secret: Any, channels: Any) -> Iterable[str]:
    """What is wrong with settings, and what to do."""
    try:
        Client(str(url), key)
    except (ClientError, ValueError) as error:
        yield str(error)
    if token_secret and len(str(token_secret).encode()) < SECRET_BYTES:
        yield f"the token secret is shorter than {SECRET_BYTES} bytes: make one with `openssl rand -hex 32`"
    if bool(token_secret) != (channels is not None):
        yield "a token secret and the function `channels` need each other: set both for private channels, or neither"
    elif channels is not None and (not callable(channels) or iscoroutinefunction(channels)):
        text = "`channels` must be a function, not an async one, that returns which channels a user may poll"
        yield f"{text}, and is {channels!r}"


def decision(allowed: Collection[object] | None, user: Any) -> tuple[int, dict[str, Any]]:
    """The answer to PushUp's call of `authorize_url`: its status and body. `allowed` is None for a stranger.

    Raises TypeError if one is not a bool, such as a coroutine, which would count as true.
    """
    if allowed is None:
        return 401, {"allow": False}
    for each in allowed:
        if not isinstance(each, bool):
            raise TypeError(f"the function of may_poll must return True or False, not {each!r}")
    return 200, {"allow": all(allowed), "subject": str(user)}


def script(name: str) -> bytes:
    """A module of the page, which it loads from the application: it also starts while PushUp does not run."""
    return files(SCRIPTS[name]).joinpath(name).read_bytes()
