"""Asks DNS, a database or LDAP for a player's record, with a client that blocks until the answer is there (Hsu §4.1).

`may_poll` is the authorizer of `service-requests`: whoever has a record may poll. Each thread keeps one connection, as
in Hsu §4.3. LDAP is asked by OpenLDAP's own library, which the paper names, too.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Mapping
from ctypes import util

import dns.exception
import dns.resolver
import psycopg

from loadtest.hsu.slow_authorizer import counted

DNS, POSTGRES, LDAP = "DNS", "PostgreSQL", "LDAP"
SERVICES = (DNS, POSTGRES, LDAP)

HOST = "127.0.0.1"
DATABASE_USER = "game"
LDAP_BASE = "ou=players"

SERVICE_VARIABLE, PORT_VARIABLE = "LOADTEST_SERVICE", "LOADTEST_SERVICE_PORT"

Records = Callable[[int], bool]
"""Whether this player has a record; blocks."""

_here = threading.local()


def may_poll(channels: tuple[str, ...], headers: dict[str, str]) -> bool:
    """The channel is `slow:` and the player's number."""
    with counted():
        if not hasattr(_here, "records"):
            _here.records = records(os.environ[SERVICE_VARIABLE], int(os.environ[PORT_VARIABLE]))
        has_record: bool = _here.records(int(channels[0].partition(":")[2]))
        return has_record


def records(service: str, port: int, *, seconds: float = 60.0) -> Records:
    """Asks a server, for so many seconds at most, on a connection of its own."""
    return CLIENTS[service](port, seconds)


def address_of(player: int) -> str:
    """Each player has a host of their own, with a name: DNS is asked for that, as by the paper's game servers."""
    return f"10.0.{player // 256}.{player % 256}"


def _dns(port: int, seconds: float) -> Records:
    resolver = dns.resolver.Resolver(configure=False)
    resolver.nameservers, resolver.port, resolver.lifetime = [HOST], port, seconds

    def has_name(player: int) -> bool:
        try:
            resolver.resolve_address(address_of(player))
        except dns.resolver.NXDOMAIN:
            return False
        except dns.exception.Timeout as error:
            raise TimeoutError from error
        return True

    return has_name


def _postgres(port: int, seconds: float) -> Records:
    connection = psycopg.connect(
        host=HOST, port=port, user=DATABASE_USER, dbname="postgres", autocommit=True, connect_timeout=int(seconds)
    )

    def has_row(player: int) -> bool:
        return connection.execute("SELECT games FROM players WHERE number = %s", [player]).fetchone() is not None

    return has_row


_LDAP_LIBRARY = (
    util.find_library("ldap") or util.find_library("ldap-2.5") if os.environ.get(SERVICE_VARIABLE) == LDAP else None
)
"""Looked for before any call, because that may start a compiler and a linker."""

LDAP_OPT_PROTOCOL_VERSION = 0x11
LDAP_SCOPE_SUBTREE = 2


class _TimeValue(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("microseconds", ctypes.c_long))


def _ldap(port: int, seconds: float) -> Records:
    if _LDAP_LIBRARY is None:
        raise FileNotFoundError("OpenLDAP's library is not installed. On Debian: apt-get install slapd")
    library = ctypes.CDLL(_LDAP_LIBRARY)  # calls release the interpreter's lock
    connection, version = ctypes.c_void_p(), ctypes.c_int(3)
    _check(library, library.ldap_initialize(ctypes.byref(connection), f"ldap://{HOST}:{port}".encode()))
    _check(library, library.ldap_set_option(connection, LDAP_OPT_PROTOCOL_VERSION, ctypes.byref(version)))
    limit = _TimeValue(int(seconds), 0)

    def has_entry(player: int) -> bool:
        found = ctypes.c_void_p()
        code = library.ldap_search_ext_s(
            connection, LDAP_BASE.encode(), LDAP_SCOPE_SUBTREE, f"(cn={player})".encode(), None, 0, None, None,
            ctypes.byref(limit), 0, ctypes.byref(found),
        )  # fmt: skip
        try:
            _check(library, code)
            return bool(library.ldap_count_entries(connection, found))
        finally:
            library.ldap_msgfree(found)

    return has_entry


def _check(library: ctypes.CDLL, code: int) -> None:
    """Raises: ConnectionError if a call of the library failed."""
    if code:
        library.ldap_err2string.restype = ctypes.c_char_p
        raise ConnectionError(f"LDAP: {library.ldap_err2string(code).decode()}")


CLIENTS: Mapping[str, Callable[[int, float], Records]] = {DNS: _dns, POSTGRES: _postgres, LDAP: _ldap}
