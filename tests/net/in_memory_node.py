"""A whole node without a network: real state, held polls and HTTP API, a memory broadcast, and a `Clock`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from twisted.internet.task import Clock

from pushup.broadcast import Broadcast
from pushup.broadcast.memory import MemoryBroadcast
from pushup.core.answer import Answer
from pushup.core.held_polls import HeldPolls
from pushup.core.limits import HoldLimits, Limits
from pushup.core.poll import Poll, Selection
from pushup.core.state import ReplicatedState
from pushup.core.subscription import Holder, Subscription
from pushup.metrics import Metrics, MetricsPage
from pushup.net.api.access import Access, TokenReader
from pushup.net.api.application import Api
from pushup.net.api.channel_rules import ChannelRules
from pushup.net.api.cors import Origins
from pushup.net.api.error_responses import ErrorResponder
from pushup.net.api.node_interface import OneProcess
from pushup.net.api.poll_access import PollAccess
from pushup.net.api.poll_parameters import PollReader
from pushup.net.api.publishers import Publishers
from pushup.net.api.quotas import Quotas, QuotaSettings
from pushup.net.api.schemas import PollLimits, PublicationLimits, StreamLimits
from pushup.net.api.streaming import Streaming
from pushup.net.application_interface import NO_ROUTE, Client, Exchange, Held, Streamed
from pushup.net.edge_limits import EdgeLimits
from pushup.net.requests_and_responses import Request, Response
from pushup.node.node import Node
from pushup.node.node_metrics import node_metrics
from pushup.testing.in_memory import InMemoryDemultiplexer
from tests.metric_values import value_of
from tests.net.event_reader import Event, read_chunks, read_events
from tests.net.in_memory_server import InMemoryServer, make_clock

CLIENT = Client("127.0.0.1", 50000)


class RecordingExchange:
    """Records the outcome of its request, which must be exactly one, possibly after a hold."""

    def __init__(self, record: list[RecordingExchange] | None = None, client: Client = CLIENT) -> None:
        self.answers: list[Answer] = []
        self.responses: list[Response] = []
        self.held: Held | None = None
        self.streamed: Streamed | None = None
        self.written = b""
        """What was written of a stream."""
        self.blocks = False
        """Whether the kernel accepts nothing of a stream."""
        self.client = client
        self.route = NO_ROUTE
        self._record = record

    def answer(self, answer: Answer) -> None:
        self.held = None
        self.answers.append(answer)
        self._done()

    def hold(self, held: Held) -> None:
        assert not isinstance(self.held, Subscription)
        self.held = held

    def respond(self, response: Response) -> None:
        self.held = None
        self.responses.append(response)
        self._done()

    def stream(self, streamed: Streamed, content_type: bytes, first: bytes, *, chunked: bool) -> bool:
        assert not isinstance(self.held, Subscription)
        assert self.streamed is None
        self.held = self.streamed = streamed
        self.responses.append(Response(200, content_type=content_type))
        self._done()
        return self.write(first)

    def write(self, data: bytes) -> bool:
        assert self.held is self.streamed
        self.written += data
        return not self.blocks

    def finish(self, data: bytes) -> None:
        self.write(data)
        self.held = None

    def _done(self) -> None:
        assert len(self.answers) + len(self.responses) == 1, "answered twice"
        if self._record is not None:
            self._record.append(self)


def events_of(stream: RecordingExchange) -> list[Event]:
    """The events of a stream so far."""
    return read_events(read_chunks(stream.written)[0])


def take(stream: RecordingExchange) -> list[Event]:
    """The events of a stream since the last call."""
    events, stream.written = events_of(stream), b""
    return events


class CallResult(NamedTuple):
    """The response to a call, with its body parsed as JSON."""

    status: int
    json: Any
    headers: dict[bytes, bytes]
    body: bytes


class AroundMemory:
    """A memory broadcast in which a test changes something. Not a subclass: a compiled class can have none."""

    def __init__(self, *, epoch: str, limits: Limits, steady_time: Callable[[], float]) -> None:
        self._broadcast = MemoryBroadcast(epoch=epoch, limits=limits, steady_time=steady_time)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broadcast, name)


def _token_access(node: Node[Any], access: Access, clock: Clock) -> PollAccess:
    """Polls take what the channels' rules say; no application is asked."""
    return PollAccess(node, access, clock.seconds)


class InMemoryNode:
    """The parts of a node, and shortcuts to call them; `run` makes all deferred calls, `turn` one round of them."""

    def __init__(
        self,
        *,
        limits: Limits | None = None,
        hold_limits: HoldLimits = HoldLimits(),  # noqa: B008  # frozen
        poll_limits: PollLimits | None = None,
        stream_limits: StreamLimits = StreamLimits(),  # noqa: B008  # frozen
        publication_limits: PublicationLimits | None = None,
        publish_keys: tuple[str, ...] = (),
        cors_origins: tuple[str, ...] = (),
        hosts: tuple[str, ...] = ("*",),
        broadcast: type[MemoryBroadcast | AroundMemory] = MemoryBroadcast,
        random: Callable[[], float] = lambda: 0.0,
        clock: Clock | None = None,
        steady_time: Callable[[], float] | None = None,
        soon: Callable[[Callable[[], None]], None] | None = None,
        poll_access: Callable[[Node[Any], Access, Clock], PollAccess] | None = None,
        tokens: TokenReader | None = None,
        rules: ChannelRules = ChannelRules(),  # noqa: B008  # frozen
        token_cookie: str = "",
        audited: tuple[str, ...] = (),
        quotas: QuotaSettings = QuotaSettings(),  # noqa: B008  # frozen
        api: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """`api`: more arguments of `Api`."""
        self.client = CLIENT
        """Who makes the next calls."""
        self.clock = clock or make_clock()
        self.metrics = Metrics()
        self.soon: list[Callable[[], None]] = []
        self.broadcast = broadcast(epoch="e", limits=limits or Limits(), steady_time=steady_time or self.clock.seconds)
        self.node: Node[Holder] = Node(
            limits=limits or Limits(),
            hold_limits=hold_limits,
            broadcast=cast(Broadcast, self.broadcast),
            clock=self.clock,
            soon=soon or self.soon.append,
            random=random,
            metrics=self.metrics,
        )
        self.node.start()
        origins = Origins(frozenset(cors_origins))
        self.access = Access(
            publish_keys=publish_keys,
            origins=origins,
            hosts=hosts,
            tokens=tokens,
            cookie=token_cookie,
            rules=rules,
            quotas=Quotas(quotas.tables, self.clock.seconds),
        )
        self.page = MetricsPage(
            "", self.metrics.collect, partial(node_metrics, self.node, cast(Broadcast, self.broadcast))
        )
        self.poll_access = access = (poll_access or _token_access)(self.node, self.access, self.clock)
        self.streaming = Streaming(
            self.node,
            PollReader(poll_limits or PollLimits(), for_streams=True),
            access,
            stream_limits,
            seconds=self.clock.seconds,
            soon=soon or self.soon.append,
            random=random,
        )
        self.api = Api(
            self.node,
            polls=PollReader(poll_limits or PollLimits()),
            publication_limits=publication_limits or PublicationLimits(),
            publication_limit_bytes=1024 * 1024,
            access=self.access,
            origins=origins,
            error_responder=ErrorResponder(self.metrics, self.clock.seconds),
            publishers=Publishers(self.metrics, self.clock.seconds, audited),
            machine=OneProcess(self.page.text, self.node.polls.subscribers, self.node.draining.set_out),
            poll_access=access,
            streaming=self.streaming,
            **api,
        )

    @property
    def state(self) -> ReplicatedState:
        return self.node.state

    @property
    def polls(self) -> HeldPolls[Holder]:
        return self.node.polls

    def check(self) -> None:
        self.state.check()
        self.polls.check()

    def turn(self) -> None:
        """Make the calls that are deferred by now."""
        calls = list(self.soon)
        self.soon.clear()
        for call in calls:
            call()

    def run(self) -> None:
        while self.soon:
            self.turn()

    def advance(self, seconds: float) -> None:
        for _ in range(round(seconds * 4)):
            self.clock.advance(0.25)
            self.run()

    def begin(self, method: str, target: str, body: Any = b"", **headers: str) -> RecordingExchange:
        """Begin a call; a body that is not bytes is sent as JSON, and `_` in header names becomes `-`."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        fields = {name.replace("_", "-").lower().encode(): value.encode("latin-1") for name, value in headers.items()}
        exchange = RecordingExchange(client=self.client)
        self.api(Request(method.encode(), target.encode("latin-1"), fields, keep_alive=True, body=data), exchange)
        return exchange

    def call(self, method: str, target: str, body: Any = b"", **headers: str) -> CallResult:
        """Make a call that must be answered at once, and return the response."""
        (response,) = self.begin(method, target, body, **headers).responses
        return self.read(response)

    @staticmethod
    def read(response: Response) -> CallResult:
        return CallResult(
            response.status,
            json.loads(response.body) if b"json" in response.content_type and response.body else None,
            dict(response.headers),
            response.body,
        )

    def leave(self, exchange: RecordingExchange) -> None:
        """The client of an open request disconnects."""
        held, exchange.held = exchange.held, None
        assert held is not None
        self.api.abandon(held)

    def poll(self, query: str) -> Answer:
        """Poll; there must be an answer at once."""
        (answer,) = self.begin("GET", f"/v1/poll?{query}").answers
        return answer

    def metric(self, name: str, **labels: str) -> float:
        """A value in /metrics."""
        return value_of(self.page.collect(), name, **labels)

    def publish(self, *channels: str, data: Any = None, **headers: str) -> CallResult:
        """Publish successfully, and deliver to held polls."""
        result = self.call("POST", "/v1/messages", {"channels": channels, "data": data}, **headers)
        assert result.status == 201, result
        self.run()
        return result


def behind_an_edge(edge_limits: EdgeLimits | None = None, **others: Any) -> tuple[InMemoryNode, InMemoryServer]:
    """A node, and the edge in front of it, with one clock and one demultiplexer; `others`: arguments of the node."""
    clock, demultiplexer = make_clock(), InMemoryDemultiplexer()
    node = InMemoryNode(clock=clock, soon=demultiplexer.soon, **others)
    return node, InMemoryServer(node.api, clock=clock, demultiplexer=demultiplexer, limits=edge_limits)


def waiting_poll(channel: str = "a", timeout: float = 25.0, selection: Selection | None = None) -> Poll:
    return Poll(selection or Selection((channel,)), timeout=timeout)


_check: type[Exchange] = RecordingExchange
