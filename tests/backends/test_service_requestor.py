"""HTTP requests to another server, through an agent controlled by the test."""

from __future__ import annotations

import pytest
from twisted.internet.defer import CancelledError
from twisted.internet.error import ConnectionLost, DNSLookupError, NoRouteError
from twisted.internet.error import TimeoutError as ConnectTimeout
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.web.client import ResponseFailed, ResponseNeverReceived
from twisted.web.http import PotentialDataLoss

from pushup.backends.limited_service import RETRY_AFTER_SECONDS, ServiceLimits
from pushup.backends.service_requestor import REPLY_LIMIT_BYTES, RETRY_SECONDS, Reply, ServiceRequestor
from pushup.core.errors import Overloaded, Unavailable
from pushup.metrics import BackendCounters
from tests.backends.outcomes import Outcome
from tests.backends.stepped_agent import SteppedAgent, one_header_each

DEADLINE = 10.0

NOT_REPLIED = [
    NoRouteError(),  # type: ignore[no-untyped-call]
    ConnectTimeout(),  # type: ignore[no-untyped-call]
    DNSLookupError(),
    ConnectionLost(),
    ResponseNeverReceived([Failure(ConnectionLost())]),  # type: ignore[no-untyped-call]
    ResponseFailed([Failure(ConnectionLost())]),  # type: ignore[no-untyped-call]
]


class Requestor:
    """A requestor with an agent that sends nothing."""

    def __init__(self, at_most: int = 2, queue_limit: int = 100, *, sent: bool = False) -> None:
        self.clock = Clock()
        self.counters = BackendCounters()
        self.agent = SteppedAgent(sent=sent)
        self.requestor = ServiceRequestor(
            "the application",
            ServiceLimits(at_most=at_most, queue_limit=queue_limit, deadline_seconds=DEADLINE),
            reactor=self.clock,
            counters=self.counters,
            agent=self.agent,
        )

    def get(self, url: bytes = b"http://app/may") -> Outcome:
        return Outcome(self.requestor.get(url, {b"accept": b"application/json", b"cookie": b"a=b"}))

    @property
    def sent(self) -> int:
        return len(self.agent.requests)


def test_a_request_and_its_reply() -> None:
    """A GET is sent with the given header fields, and returns status and body."""
    requestor = Requestor()
    outcome = requestor.get()
    request = requestor.agent.last
    assert (request.method, request.url) == (b"GET", b"http://app/may")
    assert dict(one_header_each(request.headers)) == {"accept": "application/json", "cookie": "a=b"}
    response = request.begin_reply(200)
    response.send(b"yes, ")
    assert not outcome.fired
    response.end(b"you may")
    assert outcome.result == Reply(200, b"yes, you may")
    assert (requestor.counters.busy, requestor.counters.ended) == (0, 1)


def test_a_body_up_to_the_end_of_the_connection() -> None:
    """A body without a length, as in HTTP/1.0, is complete when the connection ends."""
    requestor = Requestor()
    outcome = requestor.get()
    requestor.agent.last.begin_reply().end(b"old", PotentialDataLoss())
    assert outcome.result == Reply(200, b"old")


@pytest.mark.parametrize("status", [204, 301, 302, 400, 401, 403, 404, 429, 500, 502, 503])
def test_a_status_is_a_reply(status: int) -> None:
    """Whatever its status, a reply is returned: no redirect is followed and nothing is retried."""
    requestor = Requestor()
    outcome = requestor.get()
    requestor.agent.last.reply(status, b"body")
    assert outcome.result == Reply(status, b"body")
    requestor.clock.advance(DEADLINE)
    assert requestor.sent == 1


@pytest.mark.parametrize("error", NOT_REPLIED)
def test_one_retry(error: Exception) -> None:
    """A request that did not reach the server or got no reply is retried once, after a pause."""
    requestor = Requestor()
    outcome = requestor.get()
    requestor.agent.last.fail(error)
    requestor.clock.advance(RETRY_SECONDS - 0.01)
    assert requestor.sent == 1
    requestor.clock.advance(0.01)
    assert requestor.sent == 2
    first, second = requestor.agent.requests
    assert (second.method, second.url) == (first.method, first.url)
    assert list(one_header_each(second.headers)) == list(one_header_each(first.headers))
    assert not outcome.fired
    second.reply(204)
    assert outcome.result == Reply(204, b"")


@pytest.mark.parametrize("error", NOT_REPLIED)
def test_no_second_retry(error: Exception) -> None:
    """If the retry fails as well, the error is that the service cannot be reached, with the reason."""
    requestor = Requestor()
    outcome = requestor.get()
    requestor.agent.last.fail(error)
    requestor.clock.advance(RETRY_SECONDS)
    requestor.agent.last.fail(error)
    failed = outcome.error
    assert isinstance(failed, Unavailable)
    assert failed.retry_after == RETRY_AFTER_SECONDS
    cause = "ConnectionLost" if isinstance(error, ResponseFailed) else type(error).__name__
    assert failed.detail.startswith(f"no reply from the application at app: {cause}: ")
    requestor.clock.advance(2 * DEADLINE)
    assert requestor.sent == 2
    assert requestor.counters.busy == 0


def test_any_other_error() -> None:
    """Any other error of the agent also means that the service cannot be reached."""
    requestor = Requestor()
    outcome = requestor.get()
    while not outcome.fired:
        requestor.agent.last.fail(ValueError("a host that is none"))
        requestor.clock.advance(RETRY_SECONDS)
    assert isinstance(outcome.error, Unavailable)
    assert "ValueError" in outcome.error.detail
    assert requestor.counters.busy == 0


def test_a_body_that_breaks_off() -> None:
    """A reply that ends early does not count, and the request is retried."""
    requestor = Requestor()
    outcome = requestor.get()
    requestor.agent.last.begin_reply().end(b"hal", ConnectionLost())
    assert not outcome.fired
    requestor.clock.advance(RETRY_SECONDS)
    requestor.agent.last.reply(200, b"whole")
    assert outcome.result == Reply(200, b"whole")


def test_the_longest_body() -> None:
    """A body of exactly the limit is accepted."""
    requestor = Requestor()
    outcome = requestor.get()
    requestor.agent.last.reply(200, b"x" * REPLY_LIMIT_BYTES)
    assert len(outcome.result.body) == REPLY_LIMIT_BYTES


def test_too_long_a_body() -> None:
    """A body beyond the limit is not read further: the connection is closed, and there is no reply."""
    requestor = Requestor()
    outcome = requestor.get()
    while not outcome.fired:
        response = requestor.agent.last.begin_reply()
        response.send(b"x" * REPLY_LIMIT_BYTES)
        assert response.transport.closings == 0
        response.send(b"x")
        assert response.transport.closings == 1
        response.end(reason=ConnectionLost())
        requestor.clock.advance(RETRY_SECONDS)
    assert isinstance(outcome.error, Unavailable)
    assert requestor.sent <= 2
    assert requestor.counters.busy == 0


def test_too_long_a_body_in_one_piece() -> None:
    """A body that exceeds the limit is not a reply, even if it arrived completely."""
    requestor = Requestor()
    outcome = requestor.get()
    while not outcome.fired:
        requestor.agent.last.begin_reply().end(b"x" * (REPLY_LIMIT_BYTES + 1))
        requestor.clock.advance(RETRY_SECONDS)
    assert isinstance(outcome.error, Unavailable)


def test_too_long_a_body_of_a_reply_to_a_post() -> None:
    """Its status says what matters; the rest is not read."""
    requestor = Requestor()
    outcome = Outcome(requestor.requestor.post(b"http://app/unread", {}, b"{}"))
    response = requestor.agent.last.begin_reply(200)
    response.send(b"x" * (REPLY_LIMIT_BYTES + 1))
    assert response.transport.closings == 1
    response.end(reason=ConnectionLost())
    assert outcome.result == Reply(200, b"")


@pytest.mark.parametrize(("size", "why"), [(REPLY_LIMIT_BYTES + 1, "more than 65536 bytes"), (1, "ConnectionLost")])
def test_why_a_body_is_no_reply(size: int, why: str) -> None:
    """Operators read it in the log."""
    requestor = Requestor()
    outcome = requestor.get()
    while not outcome.fired:
        reason = ResponseFailed([Failure(ConnectionLost())])  # type: ignore[no-untyped-call]
        requestor.agent.last.begin_reply().end(b"x" * size, reason)
        requestor.clock.advance(RETRY_SECONDS)
    assert why in str(outcome.error)
    assert "twisted" not in str(outcome.error)


def test_concurrent_requests_are_limited() -> None:
    """A retry in its pause counts as well; further requests wait, and beyond the queue they are refused."""
    requestor = Requestor(at_most=2, queue_limit=1)
    first, _second, third = (requestor.get(b"http://app/%d" % n) for n in range(3))
    assert isinstance(requestor.get().error, Overloaded)
    assert requestor.sent == 2
    requestor.agent.requests[0].fail(ConnectionLost())
    assert requestor.sent == 2
    requestor.clock.advance(RETRY_SECONDS)
    assert requestor.agent.last.url == b"http://app/0"
    requestor.agent.last.reply(200)
    assert first.fired
    assert requestor.agent.last.url == b"http://app/2"
    requestor.agent.last.reply(200)
    assert third.fired


@pytest.mark.parametrize("sent", [False, True])
def test_the_deadline_cancels_the_request(sent: bool) -> None:
    """At its deadline a request that connects or waits for a reply is cancelled and not retried."""
    requestor = Requestor(at_most=1, sent=sent)
    outcome = requestor.get()
    requestor.clock.advance(1.0)
    waiting = requestor.get(b"http://app/next")
    requestor.clock.advance(DEADLINE - 1.0)
    assert isinstance(outcome.error, Unavailable)
    assert requestor.agent.requests[0].cancelled
    assert requestor.agent.last.url == b"http://app/next"
    requestor.agent.last.reply(204)
    assert waiting.fired
    requestor.clock.advance(DEADLINE)
    assert requestor.sent == 2
    assert (requestor.counters.busy, requestor.counters.late) == (0, 1)


def test_the_deadline_during_the_body() -> None:
    """A body that trickles in is abandoned at the deadline, and its connection closed."""
    requestor = Requestor(at_most=1)
    outcome = requestor.get()
    response = requestor.agent.last.begin_reply()
    for _ in range(20):
        response.send(b"x")
        requestor.clock.advance(0.5)
    assert isinstance(outcome.error, Unavailable)
    assert response.transport.closings == 1
    assert requestor.counters.busy == 0
    response.end(reason=ConnectionLost())
    requestor.clock.advance(DEADLINE)
    assert requestor.sent == 1


def test_the_deadline_during_the_pause() -> None:
    """A request whose deadline passes before its retry is not retried."""
    requestor = Requestor(at_most=1)
    outcome = requestor.get()
    requestor.clock.advance(DEADLINE - RETRY_SECONDS / 2)
    requestor.agent.last.fail(ConnectionLost())
    requestor.clock.advance(DEADLINE)
    assert isinstance(outcome.error, Unavailable)
    assert requestor.sent == 1
    assert requestor.counters.busy == 0


@pytest.mark.parametrize("sent", [False, True])
def test_cancel(sent: bool) -> None:
    """Cancelling a call cancels its request."""
    requestor = Requestor(at_most=1, sent=sent)
    outcome = requestor.get()
    outcome.deferred.cancel()
    assert isinstance(outcome.error, CancelledError)
    assert requestor.agent.last.cancelled
    requestor.clock.advance(DEADLINE)
    assert requestor.sent == 1
    assert requestor.counters.busy == 0


def test_stop() -> None:
    """After stopping nothing more is sent; requests that were sent may still get their reply."""
    requestor = Requestor(at_most=1)
    sent, waiting = requestor.get(), requestor.get()
    assert Outcome(requestor.requestor.stop()).fired
    assert isinstance(waiting.error, Unavailable)
    assert isinstance(requestor.get().error, Unavailable)
    requestor.agent.last.reply(204)
    assert sent.result == Reply(204, b"")
    assert requestor.sent == 1
