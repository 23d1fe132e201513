"""Polls of clients that may poll: their ticket is good, or the application is asked and they are given one.

A ticket comes in the header `PushUp-Ticket`, and goes out in the answer to the poll that was asked about. A poll is
held no longer than its ticket is good; then it ends with 401 `ticket-expired`, and the client polls again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from pushup.core import wire
from pushup.core.answer import Answer
from pushup.core.channels import unknown_channel
from pushup.core.errors import InternalError, Overloaded, PushUpError, TicketExpired
from pushup.core.poll import Poll
from pushup.core.subscription import Holder, Subscription
from pushup.net.exchange import Exchange
from pushup.net.http1 import Request
from pushup.net.responses import Response, problem

TICKET_HEADER = b"pushup-ticket"

RETRY_AFTER_SECONDS = 2
"""When a poll that was refused may come again; by then questions have been answered."""

T = TypeVar("T")

_log = Logger()


class Authorization(Protocol):
    """Decides about polls."""

    def expires(self, ticket: str, channels: tuple[str, ...]) -> int | None:
        """Until when the ticket lets its bearer poll these channels; None if it does not."""

    def ask(self, channels: tuple[str, ...], headers: Mapping[bytes, bytes]) -> Deferred[tuple[str, int]]:
        """Ask whether the client with these header fields may poll these channels.

        Fires with a ticket and when it is over, in whole seconds since the epoch; fails with a PushUpError.
        """


class Node(Protocol):
    """What is needed of a node."""

    def poll(self, poll: Poll, holder: Holder, until: float, /) -> Answer | Subscription[Any]: ...
    def name_of(self, channel: str) -> str: ...


class AuthorizedPolls:
    """Begins polls."""

    def __init__(self, node: Node, authorization: Authorization, clock: IReactorTime, limit_bytes: int) -> None:
        """`limit_bytes`: what all requests together may take while the application is asked about them."""
        self._node = node
        self._authorization = authorization
        self._clock = clock
        self._limit_bytes = limit_bytes
        self._asking_bytes = 0

    def begin(self, poll: Poll, request: Request, exchange: Exchange, refuse: Callable[[PushUpError], None]) -> None:
        """Answer a poll, or hold it; once it is known that it may be. `refuse` answers with what goes wrong later.

        Raises: UnknownChannel, to a client with a good ticket only; Overloaded.
        """
        channels = poll.selection.channels
        expires = self._authorization.expires(request.header(TICKET_HEADER), channels)
        if expires is not None:
            self._poll(poll, exchange, expires, "")
            return
        size = request.size + poll.selection.size
        if self._asking_bytes + size > self._limit_bytes:
            raise Overloaded("too many polls wait for the application to be asked", retry_after=RETRY_AFTER_SECONDS)
        self._asking_bytes += size
        verdict = self._authorization.ask(channels, request.headers)
        verdict.addBoth(self._asked, size)
        exchange.hold(verdict)
        Deferred.fromCoroutine(self._begin_when_allowed(verdict, poll, exchange, refuse))

    def _asked(self, result: T, size: int) -> T:
        self._asking_bytes -= size
        return result

    async def _begin_when_allowed(
        self,
        verdict: Deferred[tuple[str, int]],
        poll: Poll,
        exchange: Exchange,
        refuse: Callable[[PushUpError], None],
    ) -> None:
        try:
            ticket, expires = await verdict
            self._poll(poll, exchange, expires, ticket)
        except CancelledError:
            pass  # the client is gone
        except PushUpError as error:
            refuse(error)
        except Exception:
            _log.failure("a poll could not be authorized")
            exchange.respond(problem(InternalError("the reason is in the server's log")))

    def _poll(self, poll: Poll, exchange: Exchange, expires: int, ticket: str) -> None:
        for channel in poll.selection.channels:
            if self._node.name_of(channel) != channel:
                # The application said yes to a number, not to the name that the channel has.
                raise unknown_channel(channel)
        guest = _Guest(exchange, expires, ticket, self._clock)
        result = self._node.poll(poll, guest, expires)
        if isinstance(result, Subscription):
            exchange.hold(result)
        else:
            guest.answer(result)


class _Guest:
    """Holds a poll open until its ticket is over; `ticket` is one to be handed over, if not empty."""

    __slots__ = ("_clock", "_exchange", "_expires", "_ticket")

    def __init__(self, exchange: Exchange, expires: int, ticket: str, clock: IReactorTime) -> None:
        self._exchange = exchange
        self._expires = expires
        self._ticket = ticket
        self._clock = clock

    def answer(self, answer: Answer) -> None:
        if self._clock.seconds() >= self._expires:
            # What it would have been told is not lost: its cursor has not moved.
            self._exchange.respond(problem(TicketExpired("poll again, without this ticket")))
        elif self._ticket:
            body = b'%b,"ticket":"%b"}' % (wire.write(answer)[:-1], self._ticket.encode())
            self._exchange.respond(Response(200, body))
        else:
            self._exchange.answer(answer)
