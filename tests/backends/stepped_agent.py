"""An HTTP client agent controlled by the test, and the replies of a server to it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IProtocol
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone, ResponseNeverReceived
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent, IBodyProducer, IResponse
from zope.interface import implementer

from tests.backends.stepped_transport import SteppedTransport


@dataclass
class AgentRequest:
    """A request that was sent, and the reply that the test chooses."""

    method: bytes
    url: bytes
    headers: Headers
    response: Deferred[IResponse]
    cancelled: bool = False

    def reply(self, status: int, body: bytes = b"") -> None:
        """Send a complete reply."""
        self.begin_reply(status).end(body)

    def begin_reply(self, status: int = 200) -> AgentResponse:
        """Send the head of a reply."""
        response = AgentResponse(status)
        self.response.callback(response)
        return response

    def fail(self, error: Exception) -> None:
        self.response.errback(error)


@implementer(IResponse)
class AgentResponse:
    """A reply whose body the test sends."""

    def __init__(self, code: int) -> None:
        self.version = (b"HTTP", 1, 1)
        self.code = code
        self.phrase = b""
        self.headers = Headers()
        self.length = 0
        self.request: Any = None
        self.previousResponse: Any = None
        self.transport = SteppedTransport()
        self._protocol: IProtocol | None = None
        self._waiting: list[bytes] = []

    def deliverBody(self, protocol: IProtocol) -> None:
        self._protocol = protocol
        protocol.makeConnection(cast(Any, self.transport))
        for data in self._waiting:
            protocol.dataReceived(data)

    def setPreviousResponse(self, response: IResponse) -> None:
        raise AssertionError("redirects are not followed")

    def send(self, data: bytes) -> None:
        if self._protocol is None:
            self._waiting.append(data)
        else:
            self._protocol.dataReceived(data)

    def end(self, data: bytes = b"", reason: Exception | None = None) -> None:
        """Send the rest of the body and end it, complete unless there is a reason."""
        assert self._protocol is not None
        if data:
            self._protocol.dataReceived(data)
        self._protocol.connectionLost(Failure(reason or ResponseDone()))  # type: ignore[no-untyped-call]


@implementer(IAgent)
class SteppedAgent:
    """Records the requests it is asked to send.

    A request that is cancelled fails as it does in Twisted: as cancelled while the agent connects, and as interrupted
    once it is `sent`.
    """

    def __init__(self, *, sent: bool = False) -> None:
        self.requests: list[AgentRequest] = []
        self._sent = sent

    def request(
        self,
        method: bytes,
        uri: bytes,
        headers: Headers | None = None,
        bodyProducer: IBodyProducer | None = None,  # noqa: N803
    ) -> Deferred[IResponse]:
        assert (bodyProducer is None) == (method == b"GET")

        def cancel(response: Deferred[IResponse]) -> None:
            request.cancelled = True
            if self._sent:
                reason = Failure(CancelledError())  # type: ignore[no-untyped-call]
                response.errback(ResponseNeverReceived([reason]))  # type: ignore[no-untyped-call]

        response: Deferred[IResponse] = Deferred(cancel)
        request = AgentRequest(method, uri, headers or Headers(), response)
        self.requests.append(request)
        return response

    @property
    def last(self) -> AgentRequest:
        return self.requests[-1]


def one_header_each(headers: Headers) -> Iterable[tuple[str, str]]:
    """The header fields, without duplicates; names in lower case."""
    for name, values in headers.getAllRawHeaders():
        (value,) = values
        yield name.lower().decode(), value.decode("latin-1")
