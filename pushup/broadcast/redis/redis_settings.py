"""The settings of Redis: how a node uses it, and its address, with or without Sentinels, which is a URL.

    redis://[[USER]:PASSWORD@]HOST[:6379][/DATABASE]
    rediss://...                                                          the same over TLS
    redis+sentinel://[[USER]:PASSWORD@]HOST[:26379],HOST.../MASTER[/DATABASE]

User and password are percent-encoded (RFC 3986); they are those of Redis, not of the Sentinels.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

from msgspec import Struct

PORT = 6379
SENTINEL_PORT = 26379

# Not urlsplit: it takes one host only, and some versions refuse [::1] behind others.
_URL = re.compile(r"(redis|rediss|redis\+sentinel)://([^/?#]*)([^?#]*)(.*)", re.DOTALL).fullmatch
_PASSWORD = re.compile(r"^(redis[^:]*://[^:@/]*):.*@", re.DOTALL)


class RedisAddress(Struct, frozen=True):
    """The address of Redis, or those of Sentinels: then `master` is the name under which they know it."""

    hosts: tuple[tuple[str, int], ...]
    master: str
    database: int
    user: str
    password: str
    tls: bool


def parse_address(url: str) -> RedisAddress:
    """The address in a URL.

    Raises: ValueError; its text contains no password.
    """
    match = _URL(url)
    if match is None:
        raise ValueError("a Redis URL begins with redis://, rediss:// or redis+sentinel://")
    scheme, netloc, path_text, parameters = match.groups()
    if parameters:
        raise ValueError("a Redis URL takes no parameters; percent-encode '?' and '#' in a password")
    if "@" in path_text:
        raise ValueError("percent-encode '/' in a password")
    credentials, _, hosts = netloc.rpartition("@")
    user, _, password = credentials.partition(":")
    sentinel = scheme == "redis+sentinel"
    default = SENTINEL_PORT if sentinel else PORT
    addresses = tuple(_host(host, default) for host in hosts.split(","))
    if len(addresses) > 1 and not sentinel:
        raise ValueError("several hosts are allowed with redis+sentinel:// only")
    path = [unquote(part) for part in path_text.split("/") if part]
    master = path.pop(0) if sentinel and path else ""
    if sentinel and not master:
        raise ValueError("redis+sentinel:// needs the name of the master as its path: /mymaster")
    database = path.pop(0) if path else "0"
    if path or not (database.isascii() and database.isdigit()):
        raise ValueError(f"{'/'.join((database, *path))!r} is not a database number")
    return RedisAddress(addresses, master, int(database), unquote(user), unquote(password), scheme == "rediss")


def without_password(url: str) -> str:
    """The URL with its password hidden."""
    return _PASSWORD.sub(r"\1:***@", url)


def _host(text: str, default: int) -> tuple[str, int]:
    match = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^\[\]:@\s]+)(?::([0-9]{1,5}))?", text)
    if match is None or not 0 < (port := int(match[2] or default)) < 65536:
        raise ValueError(f"{text!r} is not of the form HOST:PORT" if text else "the URL contains no host")
    return match[1].strip("[]"), port


class RedisLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a node uses Redis."""

    redis_timeout_seconds: float = 5.0
    """Maximum time without progress: no reply, and no further part of a large reply or request. Then the connection is
    closed. A publisher gets 503 after this time, and may not know the outcome."""
    redis_durable: bool = False
    """Declares that Redis is one server without replicas that syncs each write, so that a restart of it loses
    nothing. A node that sees a replica or a Sentinel ignores it for good."""
    redis_prefix: str = "pushup"
    """Prefix of all keys in Redis. Clusters with different prefixes are independent."""
