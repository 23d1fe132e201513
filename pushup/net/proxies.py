"""Who a request really comes from, when proxies are in between (`trusted_proxies` in the settings)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from itertools import islice
from typing import Literal

from pushup.net.application_interface import Client
from pushup.net.requests_and_responses import Request

UNIX = "unix"
"""What stands for all clients of Unix sockets, in `trusted_proxies`."""

HOPS_LIMIT = 16
"""Proxies of one request that are looked at."""

ClientField = Literal["X-Forwarded-For", "Forwarded"]
"""The header field in which proxies tell whom they speak for (MDN; RFC 7239)."""

_FOR = re.compile(r'(?:^|;)\s*for="?([^";]*)', re.IGNORECASE).search
_PORT = re.compile(r"^\[([^\]]*)\](?::\d+)?$|^([^:]*):\d+$").match


class TrustedProxies:
    """Proxies that are believed when they tell whom they speak for."""

    def __init__(self, addresses: Iterable[str], field: ClientField) -> None:
        """`addresses`: networks such as `10.0.0.0/8`, single addresses, or `UNIX`. Raises: ValueError."""
        self._networks: list[IPv4Network | IPv6Network] = [ip_network(each) for each in addresses if each != UNIX]
        self._trusts_unix = UNIX in addresses
        self._field: bytes = field.lower().encode()
        self._is_rfc = field == "Forwarded"

    def client(self, request: Request | None, peer: Client) -> Client:
        """Who sent the request: of the addresses that it came through, the last one that is not trusted.

        `request`: its head, None if that has not arrived. `peer`: the other end of the connection. What clients
        themselves write into the field stands before that.
        """
        value = None if request is None else request.headers.get(self._field)
        if value is None or not self._trusts(peer.host):
            return peer
        client = peer
        for element in islice(reversed(value.decode("latin-1").split(",")), HOPS_LIMIT):
            host = self._host(element.strip())
            if host is None:
                break
            client = Client(host)
            if not self._trusts(host):
                break
        return client

    def _trusts(self, host: str) -> bool:
        if not host:
            return self._trusts_unix
        try:
            address = _address(host)
        except ValueError:
            return False
        return any(address in network for network in self._networks)

    def _host(self, element: str) -> str | None:
        """The address in one element of the field; None if it names none."""
        if self._is_rfc:
            found = _FOR(element)
            element = found[1] if found else ""
        with_port = _PORT(element)
        if with_port:
            element = with_port[1] or with_port[2] or ""
        try:
            return str(_address(element))
        except ValueError:
            return None


def _address(text: str) -> IPv4Address | IPv6Address:
    """An address; of an IPv4 client of a dual-stack socket (`::ffff:192.0.2.1`), the IPv4 one. Raises: ValueError."""
    address = ip_address(text)
    return getattr(address, "ipv4_mapped", None) or address
