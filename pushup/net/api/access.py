"""Access: what a request may do, decided by its head (docs/guide/security.md). A request is given a `Grant`.

| check | protects from |
|---|---|
| publish key | everybody who can reach the server |
| `Origin`, when there are no keys | pages of other sites: browsers send their simple POSTs without asking |
| `Host`, when there are no keys | DNS rebinding: pages of a host name that its owner has pointed at this server |
"""

from __future__ import annotations

import hmac
import socket

from pushup.core.channels import unknown_channel
from pushup.core.errors import Forbidden, Unauthorized
from pushup.core.grant import EVERYTHING, NOTHING, Grant, Right, Scope
from pushup.net.api.cors import Origins
from pushup.net.api.node_interface import Node
from pushup.net.http_errors import ForbiddenOrigin, MisdirectedRequest
from pushup.net.requests_and_responses import Request
from pushup.secret_files import named_key

SHOWN_HOST_LENGTH = 100
"""Characters of a `Host` that an error shows."""

UNNAMED = "publish_keys"
"""The name of a key that was given none: that of its setting."""

_SENT_FOR_OTHERS = frozenset((b"forwarded", b"x-forwarded-for", b"x-real-ip", b"via", b"origin"))
"""Header fields of requests that a proxy, or a browser for a script, sends on behalf of somebody else."""


_OF_KEYS: dict[Right, Scope] = {"publish": EVERYTHING, "operate": EVERYTHING, "see details": EVERYTHING}
_WITHOUT_KEYS = Grant({"publish": EVERYTHING, "operate": EVERYTHING, "see details locally": EVERYTHING})
_WITHOUT_KEYS_FOR_OTHERS = Grant({"publish": EVERYTHING, "operate": EVERYTHING})
_WITHOUT_KEYS_FOREIGN_PAGE = Grant({"operate": EVERYTHING})


class Access:
    """Decides by the settings `publish_keys`, `hosts`, and `cors_origins` (`cors`)."""

    def __init__(
        self, *, publish_keys: tuple[str, ...] = (), origins: Origins | None = None, hosts: tuple[str, ...] = ()
    ) -> None:
        self._origins = origins or Origins()
        self._hosts = frozenset(host.lower() for host in hosts)
        self.use_publish_keys(publish_keys)

    def use_publish_keys(self, keys: tuple[str, ...]) -> None:
        """Replace the publish keys, which may have names (`secret_files.named_key`)."""
        named = [named_key(text) for text in keys]
        self._keys = tuple((key.encode(), Grant(_OF_KEYS, key_name=name or UNNAMED)) for name, key in named)
        self._allowed_host: bytes | None = None  # the last that was; which are depends on the keys

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
            shown = host[:SHOWN_HOST_LENGTH].decode("latin-1")
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
        """What the request may do beyond the calls that require no right."""
        if self._keys:
            key = _bearer_token(request)
            return self._of_key(key) if key else NOTHING
        if _SENT_FOR_OTHERS.isdisjoint(request.headers):
            return _WITHOUT_KEYS
        return _WITHOUT_KEYS_FOR_OTHERS if self._origins.may_publish(request) else _WITHOUT_KEYS_FOREIGN_PAGE

    def require(self, right: Right, request: Request) -> Grant:
        """What the request may do, which includes this right.

        Raises: Unauthorized, Forbidden, ForbiddenOrigin.
        """
        grant = self.grant(request)
        if right in grant.rights:
            return grant
        if not self._keys:
            raise ForbiddenOrigin(
                "pages of this origin may not publish: add it to the setting cors_origins, or use a publish key",
                field="Origin",
            )
        if not _bearer_token(request):
            raise Unauthorized("send a publish key: Authorization: Bearer <key>")
        raise Forbidden("this publish key is unknown")

    def _of_key(self, text: str) -> Grant:
        given, found = text.strip().encode("latin-1"), NOTHING
        # Compare with all keys, each in constant time, so that the time taken tells nothing about any of them.
        for key, grant in self._keys:
            if hmac.compare_digest(given, key):
                found = grant
        return found


def check_channels(grant: Grant, right: Right, channels: tuple[str, ...], node: Node) -> None:
    """Check that a grant has this right for these channels.

    Unless it is for all channels, it is for names: whoever may use a number may not use the channel that has this id.
    Raises: Forbidden; UnknownChannel for the id of a channel with a name, which is what an unknown id gets.
    """
    if grant.rights.get(right) is EVERYTHING:
        return
    if not grant.allows(right, channels):
        raise Forbidden(f"you may not {right} here: not all of these channels are allowed")
    for channel in channels:
        if node.name_of(channel) != channel:
            raise unknown_channel(channel)


def _bearer_token(request: Request) -> str:
    """The token in `Authorization: Bearer <token>`; empty if there is none."""
    scheme, _, token = request.header(b"authorization").partition(" ")
    return token if scheme.lower() == "bearer" else ""


def _is_ip(name: str) -> bool:
    """Whether this is an IPv4 address, a tenth of the time that `ipaddress` takes."""
    try:
        socket.inet_pton(socket.AF_INET, name)
    except (OSError, ValueError):
        return False
    return True
