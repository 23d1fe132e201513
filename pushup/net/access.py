"""Who may do what, decided by a request's head (docs/security.md).

| check | protects from |
|---|---|
| publish key | everybody who reaches the server |
| `Origin`, where there are no keys | pages of other sites, from which browsers send a simple POST without asking |
| `Host`, where there are no keys | DNS rebinding: pages of a name that its owner has pointed at this server |
"""

from __future__ import annotations

import hmac
from ipaddress import ip_address

from pushup.core.errors import Forbidden, ForbiddenOrigin, MisdirectedRequest, Unauthorized
from pushup.net.exchange import Client
from pushup.net.http1 import Request

KNOWN_HOSTS = 64
"""Values of `Host` whose verdict is remembered; clients mostly send one and the same."""


SHOWN_HOST_LENGTH = 100
"""Characters of a `Host` that an error shows."""

_FOR_SOMEBODY_ELSE = frozenset((b"forwarded", b"x-forwarded-for", b"x-real-ip", b"via", b"origin"))
"""Fields of requests that proxies, and browsers for scripts, send on behalf of somebody else."""


class Access:
    """The checks, by the settings `publish_keys`, `cors_origins` and `hosts`."""

    def __init__(
        self,
        *,
        publish_keys: tuple[str, ...] = (),
        cors_origins: frozenset[str] = frozenset(),
        hosts: tuple[str, ...] = (),
    ) -> None:
        self._cors_origins = cors_origins
        self._hosts = frozenset(host.lower() for host in hosts)
        self.use_publish_keys(publish_keys)

    def use_publish_keys(self, keys: tuple[str, ...]) -> None:
        """From now on these are the keys."""
        self._keys = tuple(key.encode() for key in keys)
        self._good_hosts: set[bytes] = set()

    def check_host(self, request: Request) -> None:
        """Where no keys are set, a request must be addressed to an IP address, to localhost or to one of `hosts`.

        A page of evil.example can make a browser ask this server as evil.example, by changing the name's address, and
        read the answers; it cannot make it ask as localhost. Where `hosts` is set it holds with keys, too.

        Raises: MisdirectedRequest.
        """
        host = request.headers.get(b"host")
        if host is None or host in self._good_hosts:
            return
        if not self._is_welcome_host(host.decode("latin-1").lower()):
            shown = host[:SHOWN_HOST_LENGTH].decode("latin-1")
            raise MisdirectedRequest(
                f"this server is not known as {shown!r}: use its IP address or localhost, "
                "or add the name to the setting hosts",
                field="Host",
            )
        if len(self._good_hosts) < KNOWN_HOSTS:
            self._good_hosts.add(host)

    def _is_welcome_host(self, host: str) -> bool:
        if "*" in self._hosts or (self._keys and not self._hosts):
            return True
        if host.startswith("["):
            return True  # an IPv6 address; the parser takes nothing else in brackets
        name = host.partition(":")[0].rstrip(".")
        return name in self._hosts or name in ("", "localhost") or name.endswith(".localhost") or _is_ip(name)

    def require_publisher(self, request: Request) -> None:
        """May this request publish? With a key; or where there are none, if no page of another origin sends it.

        Raises: Unauthorized, Forbidden.
        """
        if self._keys:
            self.require_key(request)
        elif b"origin" in request.headers and not self._is_welcome_origin(request):
            raise ForbiddenOrigin(
                "pages of this origin may not publish: see cors_origins and publish_keys", field="Origin"
            )

    def require_key(self, request: Request) -> None:
        """Raises: Unauthorized, Forbidden; unless the request has a publish key, or none are set."""
        if not self._keys:
            return
        scheme, _, key = request.header(b"authorization").partition(" ")
        if scheme.lower() != "bearer" or not key:
            raise Unauthorized("send a publish key: Authorization: Bearer <key>")
        if not self._is_key(key):
            raise Forbidden("this publish key is not known")

    def is_operator(self, request: Request, client: Client) -> bool:
        """May the sender see what concerns the server's surroundings, such as where its Redis is?

        With a key; or where there are none, on this machine, unless a proxy passes on somebody else's request, or a
        browser that of a page.
        """
        return self.may_be_operator(request) and self.is_near(client)

    def may_be_operator(self, request: Request) -> bool:
        """The part of `is_operator` that the head decides."""
        if self._keys:
            scheme, _, key = request.header(b"authorization").partition(" ")
            return scheme.lower() == "bearer" and self._is_key(key)
        return _FOR_SOMEBODY_ELSE.isdisjoint(request.headers)

    def is_near(self, client: Client) -> bool:
        """The part that the sender's address decides, which costs a call of the system to know."""
        return bool(self._keys) or client.is_local

    def _is_welcome_origin(self, request: Request) -> bool:
        origin, host = request.header(b"origin"), request.header(b"host").lower()
        if "*" in self._cors_origins or origin in self._cors_origins:
            return True
        return bool(host) and origin.lower() in (f"http://{host}", f"https://{host}")

    def _is_key(self, text: str) -> bool:
        given = text.strip().encode("latin-1")
        # All keys are compared, each in constant time, so that the time tells nothing of any.
        return any([hmac.compare_digest(given, key) for key in self._keys])  # noqa: C419


def _is_ip(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
