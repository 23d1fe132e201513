"""What a check is given: fresh channels, clients, threads, and sentences for what it expects."""

from __future__ import annotations

import itertools
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

from conformance.adapter import Adapter, Answer, Published, Request
from conformance.events import EventStream
from conformance.options import Options
from conformance.pushup import PushUp
from conformance.registry import Failed
from conformance.wire import Address, Response, Wire

LONG = 20.0
"""The timeout of a poll that has to be answered long before."""


class Client:
    """Calls one node over one connection, which is opened again when it has ended."""

    def __init__(self, trial: Trial, address: Address) -> None:
        self._trial = trial
        self._address = address
        self._wire: Wire | None = None
        self._polled = ""

    @property
    def wire(self) -> Wire:
        """The connection, for any bytes."""
        if self._wire is None:
            self._wire = self._trial.wire(self._address)
        return self._wire

    def begin(self, request: Request) -> None:
        """Send a request; get its response from `finish`. Raises: Failed if the check takes too long."""
        self._trial.check_time()
        self.wire.send(self._trial.encode(request, self._address))

    def finish(self, *, head: bool = False, within: float = 0.0) -> Response:
        """The response to the request that was begun."""
        response = self.wire.response(head=head, within=within)
        if response.closes:
            self.close()
        return response

    def ask(self, request: Request) -> Response:
        self.begin(request)
        return self.finish(head=request.method == "HEAD")

    def call(self, method: str, target: str, body: Any = None, **headers: str) -> Response:
        """One of PushUp's calls. `headers` with underscores for hyphens; a body of bytes is sent as it is."""
        pairs = tuple((name.replace("_", "-"), value) for name, value in headers.items())
        return self.ask(self._trial.native.call(method, target, body, headers=pairs))

    def publish(self, channels: str | tuple[str, ...], data: Any) -> Published:
        """Publish one message, which must succeed."""
        adapter = self._trial.adapter
        return adapter.read_published(self.ask(adapter.publish(_tuple(channels), data)))

    def publish_list(self, messages: Iterable[tuple[str, Any]]) -> Published:
        """Publish several messages with one call of PushUp's, which must succeed."""
        native = self._trial.native
        fields = {"messages": [{"channels": [channel], "data": data} for channel, data in messages]}
        return native.read_published(self.ask(native.publication(fields)))

    def begin_poll(self, channels: str | tuple[str, ...], cursor: str = "", timeout: float = LONG) -> None:
        self._polled = cursor
        self.begin(self._trial.adapter.poll(_tuple(channels), cursor, timeout))

    def answer(self, within: float = 0.0) -> Answer:
        """The answer to the poll that was begun."""
        return self._trial.adapter.read_answer(self.finish(within=within), self._polled)

    def poll(self, channels: str | tuple[str, ...], cursor: str = "", timeout: float = 0.0) -> Answer:
        self.begin_poll(channels, cursor, timeout)
        return self.answer(within=timeout + self._trial.patience)

    def stream(
        self, channels: str | tuple[str, ...], cursor: str = "", method: str = "GET", form: str = "", **headers: str
    ) -> EventStream:
        """Open an event stream on this connection, which is the client's again when the stream has ended.

        `headers` as for `call`.
        """
        pairs = tuple((name.replace("_", "-"), value) for name, value in headers.items())
        self.begin(self._trial.native.stream(_tuple(channels), cursor, method, form, headers=pairs))
        return self._trial.opened(self.wire, form)

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None


class Trial:
    """One run of one check."""

    def __init__(self, adapter: Adapter, options: Options) -> None:
        self.adapter = adapter
        self.native = adapter if isinstance(adapter, PushUp) else PushUp(options)
        self.limits = options.limits
        self.options = options
        self.patience = options.patience
        self.addresses = [Address.of(url) for url in options.urls]
        self._numbers = itertools.count(1)
        self._end = time.monotonic() + options.check_seconds
        self._prefix = uuid.uuid4().hex[:12]
        self._cleanup = ExitStack()

    # What a check uses.

    def channel(self, suffix: str = "", *, prefix: str = "") -> str:
        """The name of a channel that nobody has used; it can be used at once."""
        name = f"{prefix}c{self._prefix}.{next(self._numbers)}{suffix}"
        request = self.adapter.create(name)
        if request is not None:
            self.same("the status of a channel's creation", self.client().ask(request).status, 201)
        return name

    def name(self) -> str:
        """The name of a channel that does not exist."""
        return f"n{self._prefix}.{next(self._numbers)}"

    def client(self, node: int = 0) -> Client:
        client = Client(self, self.addresses[node])
        self._cleanup.callback(client.close)
        return client

    def without_credentials(self) -> dict[str, str]:
        """The header fields that authorize polls, empty: for `call` and `stream`."""
        return {name.replace("-", "_"): "" for name, _ in self.options.credentials}

    def wire(self, address: Address | None = None, receive_buffer_bytes: int = 0) -> Wire:
        """A new connection to the first node, or to an address."""
        try:
            wire = Wire(address or self.addresses[0], self.patience, receive_buffer_bytes)
        except OSError as error:
            raise Failed(f"expected a connection, and there was none: {error}") from None
        self._cleanup.callback(wire.close)
        return wire

    def opened(self, wire: Wire, form: str = "") -> EventStream:
        """The event stream that a request has opened on this connection, in this format."""
        return EventStream(wire, wire.head(time.monotonic() + self.patience), self.patience, form)

    def check_time(self) -> None:
        """Raises: Failed if the check takes too long, perhaps because the same comes again and again."""
        if time.monotonic() > self._end:
            raise Failed(
                f"expected to be done within {self.options.check_seconds:g} s, and the server still has answers"
            )

    def encode(self, request: Request, address: Address | None = None) -> bytes:
        """The bytes of a request, for the first node or another one."""
        where = address or self.addresses[0]
        path = where.path + request.target if request.target.startswith("/") else request.target
        return Request(request.method, path, request.headers, request.body).encode(where.host)

    def raw(self, data: bytes) -> tuple[Response, bool]:
        """The response to these bytes, and whether the connection ended with it. `@HOST@` stands for the host.

        `@HEAD@` stands for the header fields that authorize calls.
        """
        wire = self.wire()
        wire.send(self.fill(data))
        response = wire.response(head=data.startswith(b"HEAD"))
        return response, wire.ends() if response.closes or response.status >= 400 else False

    def fill(self, data: bytes) -> bytes:
        """Raw bytes with the host and the header fields that authorize calls in the place of `@HOST@` and `@HEAD@`."""
        fields = "".join(f"{name}: {value}\r\n" for name, value in self.native.call("GET", "/").headers)
        host = self.addresses[0].host.encode()
        data = data.replace(b"@HEAD@", b"Host: @HOST@\r\n" + fields.encode()).replace(b"@HOST@", host)
        return data.replace(b" /", b" " + self.addresses[0].path.encode() + b"/", 1) if self.addresses[0].path else data

    def together(self, *tasks: Callable[[], None]) -> None:
        """Run these in threads, and fail if one of them fails."""
        failures: list[BaseException] = []

        def run(task: Callable[[], None]) -> None:
            try:
                task()
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=run, args=(task,), daemon=True) for task in tasks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]

    # What a check expects.

    def true(self, condition: object, sentence: str) -> None:
        """`sentence`: expected this, and that came."""
        if not condition:
            raise Failed(sentence)

    def same(self, what: str, came: object, expected: object) -> None:
        if came != expected:
            raise Failed(f"expected {what} to be {_shown(expected)}, and it was {_shown(came)}")

    def status(self, response: Response, *expected: int) -> Response:
        if response.status not in expected:
            wanted = " or ".join(map(str, expected))
            raise Failed(f"expected status {wanted}, and {response} came")
        return response

    def problem(self, response: Response, status: int, code: str, field: str = "") -> None:
        """Expect a problem of this type; and of this field, where one is given."""
        self.status(response, status)
        kind = response.headers.get("content-type", "")
        self.true(kind == "application/problem+json", f"expected application/problem+json, and {kind!r} came")
        value = response.json
        self.true(isinstance(value, dict), f"expected a problem, and {response} came")
        self.same("the type of the problem", value.get("type"), f"urn:pushup:{code}")
        self.same("the status in the problem", value.get("status"), status)
        for member in ("title", "detail"):
            self.true(isinstance(value.get(member), str) and value[member], f"expected a {member}, and {value} came")
        if field:
            self.same("the field of the problem", value.get("field"), field)

    def bad(self, data: bytes, status: int = 400, code: str = "bad-request") -> None:
        """Expect these bytes to get a problem after which the connection ends."""
        response, ended = self.raw(data)
        self.problem(response, status, code)
        self.true(ended, f"expected the connection to end after {response.status}, and it stayed open")

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def outlast(self, seconds: float) -> None:
        """Wait for what the server does after this time; the check has that much longer."""
        self._end += seconds
        time.sleep(seconds)

    def close(self) -> None:
        self._cleanup.close()


def _tuple(channels: str | tuple[str, ...]) -> tuple[str, ...]:
    return (channels,) if isinstance(channels, str) else channels


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
