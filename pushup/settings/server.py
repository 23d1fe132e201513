"""The settings of the server as a whole: where it listens, who may use it, how it logs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Literal, get_args

from msgspec import Struct

from pushup.broadcast.redis.redis_settings import parse_address, without_password
from pushup.core.grant import scope_of
from pushup.net.api.cors import canonical_origin
from pushup.net.api.publish_keys import read_key
from pushup.net.listener import is_public
from pushup.net.proxies import UNIX, ClientField, TrustedProxies
from pushup.net.wait import STRATEGIES
from pushup.settings import LOG_FORMATS, LOG_LEVELS

_HOST_NAME = re.compile(r"\*|[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?").fullmatch


class ServerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Addresses, keys, origins and the log."""

    listen: tuple[str, ...] = ("127.0.0.1:8080",)
    """Addresses to listen on: `127.0.0.1:8080`, `[::1]:8080`, `unix:/run/pushup.sock`."""
    operator_listen: tuple[str, ...] = ()
    """Addresses on which only operators and their tools are answered: `/metrics`, which is then answered nowhere else,
    `/healthz`, `/readyz`, and the calls that need the right `operate`."""
    broadcast: str = "memory:"
    """Message log: `memory:`, in this process only; `journal:PATH`, a file on this machine; or `redis://HOST:PORT`,
    shared by several nodes (docs/operate/redis.md)."""
    broadcast_file: str = ""
    """File that contains this address, for one with a password."""
    state_directory: str = ""
    """Directory on this machine where a node notes how far it has followed the log in Redis. So it notices if Redis was
    rolled back while all nodes were stopped. Empty: it does not."""
    workers: int | Literal["auto"] = 1
    """Number of processes that serve clients on this machine; `auto`: one per processor (docs/operate/workers.md)."""
    node_name: str = ""
    """Name of this node in `GET /v1/nodes`. Empty: the machine's host name."""
    wait_strategy: str = "epoll" if "epoll" in STRATEGIES else "reactor"
    """How to wait for sockets: `epoll`, or `reactor` where there is no epoll."""
    publish_keys: tuple[str, ...] = ()
    """Keys that allow publishing, sent as `Authorization: Bearer <key>`. `NAME KEY` gives one a name, and
    `NAME KEY publish=chat:*` limits it (docs/guide/security.md). Empty: everyone who reaches the server may."""
    publish_keys_file: str = ""
    """File that contains these keys, one per line; `#` starts a comment."""
    allow_public_without_keys: bool = False
    """Listen on public addresses without publish keys, so that everyone who reaches them can publish."""
    hosts: tuple[str, ...] = ()
    """Host names that requests may be addressed to, e.g. `push.example.org`; `*` for any. Empty, with publish keys: any
    name. IP addresses and localhost always work without publish keys."""
    cors_origins: tuple[str, ...] = ()
    """Origins whose scripts may read responses, e.g. `https://example.org`; `*` for all."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses or networks of proxies, such as `10.0.0.0/8`, or `unix` for all Unix sockets. Logs and quotas then name
    the clients behind them. The proxies must set `client_field`."""
    client_field: str = "X-Forwarded-For"
    """The header field in which they do: `X-Forwarded-For` or `Forwarded`."""
    audit_channels: tuple[str, ...] = ()
    """Channels of which the log says who has published what: names, or `user:*` for all that begin like this."""
    log_level: str = "info"
    """`debug`, `info`, `warn` or `error`."""
    log_format: str = "text"
    """`text` or `json`."""

    def mistakes(self) -> Iterator[tuple[str, str]]:
        """Each setting whose value cannot be used, and why."""
        for name, value, choices in (
            ("log_level", self.log_level, LOG_LEVELS),
            ("log_format", self.log_format, LOG_FORMATS),
            ("wait_strategy", self.wait_strategy, tuple(STRATEGIES)),
            ("client_field", self.client_field, get_args(ClientField)),
        ):
            if value not in choices:
                yield name, f"{value!r} is not one of {', '.join(choices)}"
        for name, text in (
            ("publish_keys", _keys_mistake(self.publish_keys)),
            ("broadcast", _broadcast_mistake(self.broadcast, is_secret=bool(self.broadcast_file))),
            ("hosts", _hosts_mistake(self.hosts)),
            ("cors_origins", _origins_mistake(self.cors_origins)),
            ("listen", self._listen_mistake(self.listen)),
            ("operator_listen", self._listen_mistake(self.operator_listen)),
            ("trusted_proxies", _proxies_mistake(self.trusted_proxies)),
            ("audit_channels", _patterns_mistake(self.audit_channels)),
        ):
            if text is not None:
                yield name, text

    def _listen_mistake(self, addresses: tuple[str, ...]) -> str | None:
        if not self.listen:
            return "give at least one address to listen on"
        needs_keys = not self.publish_keys and not self.allow_public_without_keys
        right, others = ("publish", ()) if addresses is self.listen else ("operate", self.listen)
        for address in addresses:
            try:
                public = is_public(address)
            except ValueError as error:
                return str(error)
            if public and needs_keys:
                return (
                    f"anyone who can reach {address} could {right}; set publish_keys, or set "
                    "allow_public_without_keys to allow this"
                )
            if (*addresses, *others).count(address) > 1 and not address.endswith(":0"):
                return f"duplicate address {address}"
        return None


def _keys_mistake(keys: tuple[str, ...]) -> str | None:
    names: dict[bytes, str] = {}
    for number, line in enumerate(keys, 1):
        try:
            digest, _ = read_key(line)
        except ValueError as error:
            return f"key {number} of {len(keys)} {error}"
        if names.setdefault(digest, line) != line:
            return f"key {number} of {len(keys)} stands there twice, with different names or rights; remove one of them"
    return None


def _broadcast_mistake(broadcast: str, *, is_secret: bool) -> str | None:
    """`is_secret`: the address comes from a file, and is not shown, whatever it is."""
    if broadcast.startswith("journal::memory:"):
        return "SQLite does not keep ':memory:' in a file; use journal:PATH, or memory: to store no messages"
    if broadcast == "memory:" or re.fullmatch(r"journal:.+", broadcast):
        return None
    forms = "neither memory: nor journal:PATH nor redis://HOST:PORT"
    if not broadcast.startswith("redis"):
        return f"the file's content is {forms}" if is_secret else f"{broadcast!r} is {forms}"
    try:
        address = parse_address(broadcast)
    except ValueError as error:
        return f"the file's content is {forms}" if is_secret else f"{without_password(broadcast)!r}: {error}"
    if address.tls and find_spec("OpenSSL") is None:
        return "rediss:// needs the extra packages for TLS: pip install '.[tls]' in a checkout of PushUp"
    return None


def _hosts_mistake(hosts: tuple[str, ...]) -> str | None:
    for host in hosts:
        if not _HOST_NAME(host):
            return f"{host!r} is not a host name; write one such as push.example.org, without http:// and port"
    return None


def _origins_mistake(origins: tuple[str, ...]) -> str | None:
    """An origin that no browser sends: it would never match."""
    if "*" in origins:
        return None if set(origins) == {"*"} else "* allows all origins; set either * or a list of origins"
    for origin in origins:
        try:
            sent = canonical_origin(origin)
        except ValueError as error:
            return str(error)
        if sent != origin:
            return f"{origin!r} never matches, because browsers send {sent!r}; write that"
    return None


def _proxies_mistake(addresses: tuple[str, ...]) -> str | None:
    for address in addresses:
        try:
            TrustedProxies((address,), "Forwarded")
        except ValueError as error:
            return f"{error}; write an address, a network such as 10.0.0.0/8, or {UNIX}"
    return None


def _patterns_mistake(patterns: tuple[str, ...]) -> str | None:
    try:
        scope_of(list(patterns))
    except ValueError as error:
        return str(error)
    return None
