"""One request to one node: a connection, new or kept, with the client's credentials and tickets. What is tried again at
other nodes, or later, is up to others."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pushup.client.credentials import Credentials, Token
from pushup.client.driver import Connection, Driver, in_thread
from pushup.client.http1 import HttpConnection, Request
from pushup.client.values import ClientError, NoResponse, NotSent, given_of, unexpected

if TYPE_CHECKING:
    import ssl

IDLE_SECONDS = 30.0
"""No connection is used after it was idle for this long: servers close them, and networks forget them (HTTP-21)."""

IDLE_LIMIT = 20
"""How many idle connections are kept to one node."""

TICKETS_LIMIT = 1000
"""How many tickets are kept, each for one set of channels."""


class Node:
    """A server, at a URL such as http://127.0.0.1:8080, https://push.example.org/path or unix:/run/pushup.sock."""

    def __init__(self, url: str) -> None:
        """Raises: ClientError if the URL is not valid."""
        self.failed_at = 0.0  # by the driver's clock
        self.path, self.host, self.port, self.tls = "", "localhost", 0, False
        self.url = url.rpartition("@")[2]  # for errors, without a password
        self.prefix = ""  # of each path
        self._idle: list[HttpConnection] = []
        self._context: ssl.SSLContext | None = None
        if url.startswith("unix:"):
            self.path, self.authority = url.removeprefix("unix:"), self.host
            return
        try:
            parts = urlsplit(url)
            self.host = (parts.hostname or "").encode("idna").decode()
            self.tls = parts.scheme == "https"
            self.port = parts.port or (443 if self.tls else 80)
            self.prefix = parts.path.rstrip("/")
            is_valid = parts.scheme in ("http", "https") and self.host and not (parts.query or parts.fragment)
        except ValueError:  # also for a port or a name that cannot be
            is_valid = False
        if not (is_valid and self.prefix.isascii() and url.isprintable() and " " not in url):
            raise ClientError(
                f"{self.url!r} is not a valid URL; write one such as http://127.0.0.1:8080 or unix:/run/pushup.sock"
            )
        host = f"[{self.host}]" if ":" in self.host else self.host
        self.authority = host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"

    async def send(self, request: Request, driver: Driver, until: float) -> HttpConnection:
        """Send a request on a connection that is idle, or on a new one; returns it with the head of the response.

        Raises: OSError; NotSent; Stopped.
        """
        request = replace(request, target=self.prefix + request.target)
        while request.may_repeat and (connection := self._take_idle(driver.now())) is not None:
            try:
                return await self._send_on(connection, request, until)
            except TimeoutError:
                raise
            except OSError:
                self.close()  # the server has closed this one when it was idle, and probably the others
        return await self._send_on(HttpConnection(await self._connect(driver, until)), request, until)

    async def _send_on(self, connection: HttpConnection, request: Request, until: float) -> HttpConnection:
        try:
            await connection.send(request, self.authority, until)
        except BaseException:
            connection.close()
            raise
        return connection

    def _take_idle(self, now: float) -> HttpConnection | None:
        """The one that was used last, unless it was idle for long."""
        try:
            connection = self._idle.pop()
        except IndexError:
            return None
        if now < connection.idle_since + IDLE_SECONDS:
            return connection
        connection.close()
        self.close()  # they are idle for longer
        return None

    def keep(self, connection: HttpConnection, now: float) -> None:
        """Keep a connection for the next request, or close it."""
        if connection.may_be_used_again and len(self._idle) < IDLE_LIMIT:
            connection.idle_since = now
            self._idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        """Close the idle connections. Other threads may take some at the same time."""
        with suppress(IndexError):
            while True:
                self._idle.pop().close()

    async def _connect(self, driver: Driver, until: float) -> Connection:
        """Raises: NotSent; Stopped."""
        try:
            addresses = await self._addresses(driver, until)
            for number, (family, address) in enumerate(addresses):
                now = driver.now()
                share = now + (until - now) / (len(addresses) - number)
                try:
                    return await driver.connect(family, address, self._tls(), self.host, share)
                except OSError:
                    if number == len(addresses) - 1:
                        raise
            raise OSError("the name has no address")
        except TimeoutError:
            raise NotSent(f"cannot reach the server at {self.url}: no connection in time") from None
        except (OSError, UnicodeError) as error:  # UnicodeError: no valid name
            raise NotSent(f"cannot reach the server at {self.url}: {error}") from None

    async def _addresses(self, driver: Driver, until: float) -> list[tuple[int, Any]]:
        """The families and addresses to try. Looked up in a thread, because a lookup has no timeout."""
        if self.path:
            return [(socket.AF_UNIX, self.path)]
        look_up = in_thread(lambda: socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM))
        return [(family, address) for family, _, _, _, address in await driver.wait(look_up, until)]

    def _tls(self) -> ssl.SSLContext | None:
        if self.tls and self._context is None:
            import ssl  # many programs need none, and it takes a while

            self._context = ssl.create_default_context()
        return self._context


class Exchange:
    """Requests to the nodes of one service."""

    def __init__(self, url: str | Sequence[str], key: str | None, token: Token | None, driver: Driver) -> None:
        """Raises: ClientError if a URL is not valid; ValueError for the credentials, or without a URL."""
        self.nodes = [Node(each) for each in ([url] if isinstance(url, str) else url)]
        if not self.nodes:
            raise ValueError("give the URL of at least one node")
        self.driver = driver
        self.credentials = Credentials(key, token, driver)
        self._tickets: dict[frozenset[str], str] = {}

    def close(self) -> None:
        for node in self.nodes:
            node.close()

    async def ask(self, node: Node, request: Request, seconds: float) -> dict[str, Any]:
        """The JSON object in the response, within so many seconds. Raises: ClientError."""
        until = self.driver.now() + seconds
        return await self._read(node, await self.open(node, request, until), until)

    async def _read(self, node: Node, connection: HttpConnection, until: float) -> dict[str, Any]:
        with self.client_errors(node, closing=connection):
            value = await connection.read(until)
        node.keep(connection, self.driver.now())
        if not isinstance(value, dict):
            raise unexpected("JSON")
        return value

    async def open(self, node: Node, request: Request, until: float) -> HttpConnection:
        """Send a request, again with another token if that may help; returns it with a response that is no error.

        Raises: ClientError, also for an error and a redirect.
        """
        began, later = self.driver.now(), request
        while True:
            sent = await self.credentials.get(until)
            with_key = later.with_header("Authorization", f"Bearer {sent}" if sent else None)
            with self.client_errors(node):
                connection = await node.send(with_key, self.driver, until)
            if connection.status < 300:
                self.credentials.accepted(sent)
                connection.sent = sent
                return connection
            with self.client_errors(node, closing=connection):
                error = connection.error(await connection.read(until))
            node.keep(connection, self.driver.now())
            pause = self.credentials.retry_pause(error, sent)
            if pause is None or self.driver.now() + pause >= until:
                raise error
            await self.driver.sleep(pause)
            later = request.sent_later(self.driver.now() - began)

    @contextmanager
    def client_errors(self, node: Node, *, closing: HttpConnection | None = None) -> Iterator[None]:
        """Turn an error into a ClientError; after any, close this connection."""
        try:
            yield
        except BaseException as error:
            if closing is not None:
                closing.close()
            if isinstance(error, TimeoutError):
                raise NoResponse(f"no response in time from the server at {node.url}") from None
            if isinstance(error, OSError):
                text = str(error) or type(error).__name__
                raise ClientError(f"cannot reach the server at {node.url}: {text}") from None
            raise

    async def subscribe(
        self, node: Node, path: str, channels: list[str], until: float, *, accept: str | None = None, **fields: Any
    ) -> HttpConnection:
        """Open a poll, or a stream, with the ticket for its channels; without it, if the server does not accept that.

        Raises: ClientError.
        """
        body = given_of(channels=channels, **fields)
        request = Request("POST", path, body).with_header("Accept", accept)
        began = self.driver.now()
        ticket = self._tickets.get(frozenset(channels))
        if ticket is not None:
            try:
                return await self.open(node, request.with_header("PushUp-Ticket", ticket), until)
            except ClientError as error:
                if error.status != 401:
                    raise
                self.forget_ticket(channels)
        return await self.open(node, request.sent_later(self.driver.now() - began), until)

    def keep_ticket(self, channels: list[str], ticket: str) -> None:
        self._tickets[frozenset(channels)] = ticket
        for oldest in [*self._tickets][:-TICKETS_LIMIT]:  # a copy: other threads may keep tickets meanwhile
            self._tickets.pop(oldest, None)

    def has_ticket(self, channels: list[str]) -> bool:
        return frozenset(channels) in self._tickets

    def forget_ticket(self, channels: list[str]) -> None:
        self._tickets.pop(frozenset(channels), None)

    async def poll(
        self, node: Node, channels: list[str], cursor: str, timeout: float, seconds: float, limit: int | None = None
    ) -> dict[str, Any]:
        """Poll once: the server holds the poll for `timeout` s, and answers within `seconds`. Raises: ClientError."""
        until = self.driver.now() + seconds
        connection = await self.subscribe(
            node, "/v1/poll", channels, until, cursor=cursor, timeout=timeout, limit=limit
        )
        answer = await self._read(node, connection, until)
        self.credentials.accepted(connection.sent, answer.get("expires_in"))
        if "ticket" in answer:
            self.keep_ticket(channels, str(answer["ticket"]))
        return answer
