"""Access: what a request may do, decided by its head (docs/guide/security.md). A request is given a `Grant`.

| check | protects from |
|---|---|
| publish key, or a signed token | everybody who can reach the server |
| `Origin`, when there are no keys | pages of other sites: browsers send their simple POSTs without asking |
| `Host`, when there are no keys | DNS rebinding: pages of a host name that its owner has pointed at this server |
"""

from __future__ import annotations

import math
import socket
from typing import Protocol

from pushup.core.channels import unknown_channel
from pushup.core.errors import Forbidden, InvalidToken, Unauthorized, revoked
from pushup.core.grant import EVERYTHING, NOTHING, Grant, Right
from pushup.net.api.channel_rules import ChannelRules
from pushup.net.api.cors import Origins
from pushup.net.api.node_interface import Node
from pushup.net.api.publish_keys import USUAL, digest_of, read_key
from pushup.net.api.quotas import Quotas
from pushup.net.api.suggestions import shown_name
from pushup.net.http_errors import ForbiddenOrigin, MisdirectedRequest
from pushup.net.requests_and_responses import Request

_SENT_FOR_OTHERS = frozenset((b"forwarded", b"x-forwarded-for", b"x-real-ip", b"via", b"origin"))
"""Header fields of requests that a proxy, or a browser for a script, sends on behalf of somebody else."""

_NO_TOKENS = "no signed tokens are accepted here (set token_issuer and its keys)"

_VERBS: dict[Right, str] = {"read": "poll", "channels": "change channels or delete messages"}
"""What errors call a right; the others as they are."""

_WITHOUT_KEYS = Grant({**USUAL, "see details locally": EVERYTHING})
_WITHOUT_KEYS_FOR_OTHERS = Grant(USUAL)
_WITHOUT_KEYS_FOREIGN_PAGE = Grant({"operate": EVERYTHING})


class TokenReader(Protocol):
    """Knows whose signed tokens are accepted (`pushup.tokens`)."""

    def grant(self, token: str) -> Grant:
        """What a token allows now. Raises: InvalidToken; Unavailable while its key is looked for."""

    def key_ends(self) -> dict[str, float]:
        """Until when each key is valid: its `Grant.key_id`, and seconds since the epoch."""

    def look_for_keys(self) -> None:
        """A key is missing. Raises: Unavailable while keys are being fetched."""


class Access:
    """Decides by the settings `publish_keys`, `hosts`, `cors_origins` (`cors`), and those of tokens."""

    def __init__(
        self,
        *,
        publish_keys: tuple[str, ...] = (),
        origins: Origins | None = None,
        hosts: tuple[str, ...] = (),
        tokens: TokenReader | None = None,
        cookie: str = "",
        rules: ChannelRules | None = None,
        quotas: Quotas | None = None,
    ) -> None:
        """`tokens`: None if no tokens are accepted; `cookie`: the name of the one that may contain a token."""
        self.rules = rules or ChannelRules()
        self.quotas = quotas or Quotas()
        self._origins = origins or Origins()
        self._hosts = frozenset(host.lower() for host in hosts)
        self._tokens = tokens
        self.cookie = cookie
        """The name of the cookie that may contain a token; empty: none may."""
        self.changes = 0
        """How often the keys were replaced. A grant of no token is good for as long as this stays."""
        self.use_publish_keys(publish_keys)

    def use_publish_keys(self, keys: tuple[str, ...]) -> None:
        """Replace the publish keys (`publish_keys`)."""
        self._keys = dict(map(read_key, keys))
        self._some_key_polls = any("read" in grant.rights for grant in self._keys.values())
        self._allowed_host: bytes | None = None  # the last that was; which are depends on the keys
        self.changes += 1

    def use_tokens(self, tokens: TokenReader | None, cookie: str) -> None:
        """Accept other tokens."""
        self._tokens, self.cookie = tokens, cookie
        self.changes += 1

    @property
    def verifies_tokens(self) -> bool:
        """Whether tokens are accepted here."""
        return self._tokens is not None

    def key_ends(self) -> dict[str, float]:
        """Until when each key of tokens and each publish key is valid: its `Grant.key_id`, seconds since the epoch."""
        ends = {} if self._tokens is None else self._tokens.key_ends()
        return ends | {grant.key_id: math.inf for grant in self._keys.values()}

    def look_for_keys(self) -> None:
        """The key of a token is missing. Raises: Unavailable while keys are being fetched."""
        if self._tokens is not None:
            self._tokens.look_for_keys()

    def check_host(self, request: Request) -> None:
        """Without publish keys, a request must be addressed to an IP address, to localhost or to one of `hosts`.

        The owner of evil.example can point that name at this server; then a page from there can make its visitors'
        browsers send requests to evil.example, and read the responses. It cannot make them send requests to
        localhost. If `hosts` is set, this is checked with publish keys, too.

        Raises: MisdirectedRequest.
        """
        host = request.headers.get(b"host")
        if host is None or host == self._allowed_host:
            return
        if not self._is_allowed_host(host.decode("latin-1").lower()):
            shown = shown_name(host.decode("latin-1"))
            raise MisdirectedRequest(
                f"this server does not serve the host name {shown!r}: use its IP address or localhost, "
                "or add the name to the setting hosts",
                field="Host",
            )
        self._allowed_host = host

    def _is_allowed_host(self, host: str) -> bool:
        if "*" in self._hosts or (self._keys and not self._hosts):
            return True
        if host.startswith("["):
            return True  # an IPv6 address; the parser accepts nothing else in brackets
        name = host.partition(":")[0].rstrip(".")
        return name in self._hosts or name in ("", "localhost") or name.endswith(".localhost") or _is_ip(name)

    def grant(self, request: Request) -> Grant:
        """What the request may do beyond the calls that require no right. Raises: as `_of_sender`."""
        grant = self._of_sender(request)
        if grant is not None:
            return grant
        if self._keys:
            return NOTHING
        if _SENT_FOR_OTHERS.isdisjoint(request.headers):
            return _WITHOUT_KEYS
        return _WITHOUT_KEYS_FOR_OTHERS if self._origins.may_publish(request) else _WITHOUT_KEYS_FOREIGN_PAGE

    def grant_for_poll(self, request: Request) -> Grant:
        """What the client may poll besides the channels that everybody may, by the head of its request.

        The body of a POST may have a token; then a cookie does not count (`grant_of_body`), nor does it beside a ticket
        in the URL. Raises: as `_of_sender`.
        """
        if self._tokens is None and not self._some_key_polls:
            return NOTHING
        grant = self._of_sender(request, reads_cookie=request.method != b"POST" and request.url_ticket is None)
        if grant is None and self._tokens is not None and bearer(request):
            raise InvalidToken("what was sent as Authorization: Bearer is neither a token nor a key that is known here")
        return grant or NOTHING

    def grant_of_body(self, token: str | None, request: Request) -> Grant:
        """What the token in a body allows; without one, what the cookie does.

        Raises: InvalidToken; ForbiddenOrigin; Unavailable.
        """
        if token is None:
            return self._of_cookie(request) or NOTHING
        if self._tokens is None:
            raise InvalidToken(_NO_TOKENS, field="token")
        return self._tokens.grant(token)

    def require(self, right: Right, request: Request) -> Grant:
        """What the request may do, which includes this right.

        Raises: Unauthorized, InvalidToken, Forbidden, ForbiddenOrigin; Unavailable.
        """
        grant = self.grant(request)
        if right in grant.rights:
            return grant
        if grant.is_of_token:
            raise Forbidden(f"the token does not allow this (it has no right to {right!r})")
        if grant.key_name:
            raise Forbidden(f"the key {grant.key_name!r} does not allow this (it has no right to {right!r})")
        if right == "backup" and not self._keys:
            raise Forbidden("a backup contains all messages: add a key with the right backup to publish_keys")
        if not self._keys:
            raise ForbiddenOrigin(
                "pages of this origin may not publish: add it to the setting cors_origins, or use a publish key",
                field="Origin",
            )
        text = bearer(request)
        if not text:
            raise Unauthorized("send a publish key: Authorization: Bearer <key>")
        raise Forbidden(_NO_TOKENS if _is_token(text) else "this publish key is unknown")

    def _of_sender(self, request: Request, *, reads_cookie: bool = True) -> Grant | None:
        """What the request's key or token allows; None if it has none that is known here.

        A token that is not accepted is an error: its sender meant to be somebody.
        Raises: InvalidToken; ForbiddenOrigin; Unavailable while the token's key is looked for.
        """
        tokens = self._tokens
        text = bearer(request)
        if not text:
            return self._of_cookie(request) if reads_cookie else None
        if tokens is not None and (_is_token(text) or not self._keys):
            return tokens.grant(text)
        # A hash is as good as the key, but nothing about the keys follows from how long looking for it takes.
        return self._keys.get(digest_of(text)) if self._keys else None

    def _of_cookie(self, request: Request) -> Grant | None:
        """What the token in a cookie allows. A browser sends it with requests of any page."""
        if not self.cookie or self._tokens is None or b"cookie" not in request.headers:
            return None
        token = _cookie_value(request.header(b"cookie"), self.cookie)
        if not token:
            return None
        if not self._origins.is_named(request):
            raise ForbiddenOrigin(
                f"pages of this origin may not use the cookie {self.cookie}: add it to the setting cors_origins",
                field="Origin",
            )
        return self._tokens.grant(token)


def check_channels(grant: Grant, right: Right, channels: tuple[str, ...], node: Node, rules: ChannelRules) -> None:
    """Check that a grant has this right for these channels, and still has it.

    Unless it is for all channels, it is for names: whoever may use a number may not use the channel that has this id.
    `rules`: those by which a token may not publish everywhere.
    Raises: Forbidden; Revoked; UnknownChannel for the id of a channel with a name, which is what an unknown id gets.
    """
    if grant.rights.get(right) is not EVERYTHING or grant.is_of_token:
        field = "channels" if right == "publish" else "channel"
        if not grant.allows(right, channels):
            what = f"you may not {_VERBS.get(right, right)} here: not all of these channels are allowed"
            raise Forbidden(what, field=field)
        for channel in channels:
            if node.name_of(channel) != channel:
                raise unknown_channel(channel, field)
        if grant.is_of_token and (closed := rules.only_for_keys(channels)):
            raise Forbidden(f"tokens may not publish on {closed!r}; a publish key may", field="channels")
    if grant.valid_until < math.inf and node.is_revoked(grant):
        raise revoked()


def bearer(request: Request) -> str:
    """The token in `Authorization: Bearer <token>`; empty if there is none."""
    words = request.header(b"authorization").split(None, 1)
    return words[1].strip() if len(words) == 2 and words[0].lower() == "bearer" else ""


def _is_token(text: str) -> bool:
    """Whether this is meant to be a token: they all begin with `{"` in base64url."""
    return text.startswith("eyJ") and text.count(".") == 2


def _cookie_value(header: str, name: str) -> str:
    """The value of a cookie in a `Cookie` field (RFC 6265 §4.2.1); empty if it is not there."""
    for pair in header.split(";"):
        found, _, value = pair.strip().partition("=")
        if found == name:
            return value
    return ""


def _is_ip(name: str) -> bool:
    """Whether this is an IPv4 address, a tenth of the time that `ipaddress` takes."""
    try:
        socket.inet_pton(socket.AF_INET, name)
    except (OSError, ValueError):
        return False
    return True
