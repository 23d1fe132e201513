"""The phases of a connection: every transition in the tables happens, and no other does."""

from __future__ import annotations

import socket
from collections.abc import Callable
from random import Random
from typing import ClassVar

import pytest
from twisted.internet.defer import Deferred

from pushup.net import edge
from pushup.net.connection import Connection
from pushup.net.edge_limits import EdgeLimits
from pushup.net.phases import INPUTS, PHASES, Input, Phase
from pushup.net.pipeline import PIPELINE_LIMIT
from pushup.net.responses import Response
from pushup.net.shared import Shared
from tests.net.in_memory_server import Client
from tests.net.scripted_application import ScriptedServer, act_at_random, get, post, serve

State = Phase | Input
Seen = set[tuple[State, State]]

CLOSE = b"Connection: close\r\n"
EXPECT = b"Expect: 100-continue\r\n"


class Recorded(Connection):
    """A connection that records its transitions."""

    seen: ClassVar[Seen] = set()

    def __init__(self, shared: Shared, sock: socket.socket) -> None:
        self._states: dict[type[State], State] = {}
        super().__init__(shared, sock)

    def _become(self, state: State) -> None:
        if type(state) in self._states:
            self.seen.add((self._states[type(state)], state))
        self._states[type(state)] = state

    phase = property(lambda self: self._states[Phase], _become)
    input = property(lambda self: self._states[Input], _become)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """The transitions of all connections."""
    monkeypatch.setattr(edge, "Connection", Recorded)
    Recorded.seen = set()
    return Recorded.seen


def _answer(server: ScriptedServer, client: Client) -> None:
    client.send(get(b"/a"))


def _answer_a_held_poll(server: ScriptedServer, client: Client) -> None:
    client.send(get(b"/held"))
    server.application.answer_held()


def _hold_twice(server: ScriptedServer, client: Client) -> None:
    client.send(get(b"/later"))
    (exchange,) = server.application.later
    exchange.hold(Deferred())
    exchange.hold(Deferred())


def _fill_the_kernel(server: ScriptedServer, client: Client) -> None:
    client.read(100)
    client.send(get(b"/big"))
    client.read(None)


def _fill_the_kernel_with_a_held_poll(server: ScriptedServer, client: Client) -> None:
    client.read(10)
    _answer_a_held_poll(server, client)


def _fill_the_kernel_with_a_continue(server: ScriptedServer, client: Client) -> None:
    client.read(10)
    client.send(post(b"/echo", 3, EXPECT))


def _leave(before: bytes) -> Callable[[ScriptedServer, Client], None]:
    def leave(server: ScriptedServer, client: Client) -> None:
        client.send(before)
        client.reset()

    return leave


def _stream(server: ScriptedServer, client: Client) -> None:
    client.send(get(b"/stream"))
    server.application.end_streams()


def _stream_what_was_held(server: ScriptedServer, client: Client) -> None:
    client.send(get(b"/later"))
    (exchange,) = server.application.later
    exchange.hold(Deferred())
    server.application.stream(exchange)


def _fill_the_kernel_with_a_stream(server: ScriptedServer, client: Client) -> None:
    client.read(10)
    _stream(server, client)


def _break_while_sending(server: ScriptedServer, client: Client) -> None:
    client.read(10)
    client.send(get(b"/big"))
    client.reset()


def _close(server: ScriptedServer, client: Client) -> None:
    client.send(get(b"/a", CLOSE))
    client.end()


def _fill_the_pipeline(server: ScriptedServer, client: Client) -> None:
    client.send(get(b"/held") + get(b"/a") * PIPELINE_LIMIT)
    server.application.answer_held()
    server.demultiplexer.run()


def _drain_behind_a_full_pipeline(server: ScriptedServer, client: Client) -> None:
    client.send(get(b"/held") + get(b"/a") * PIPELINE_LIMIT)
    server.edge.drain()
    server.application.answer_held()


def _end(server: ScriptedServer, client: Client) -> None:
    client.send(get(b"/later"))
    client.end()


def _end_after_the_last_request(server: ScriptedServer, client: Client) -> None:
    client.send(get(b"/later", CLOSE))
    client.end()


SCENARIOS: dict[tuple[State, State], Callable[[ScriptedServer, Client], None]] = {
    (Phase.IDLE, Phase.OPEN): _answer,
    (Phase.IDLE, Phase.SENDING): _fill_the_kernel_with_a_continue,
    (Phase.IDLE, Phase.LINGERING): _close,
    (Phase.IDLE, Phase.CLOSED): _leave(b""),
    (Phase.OPEN, Phase.HELD): _answer_a_held_poll,
    (Phase.OPEN, Phase.IDLE): _answer,
    (Phase.OPEN, Phase.SENDING): _fill_the_kernel,
    (Phase.OPEN, Phase.CLOSED): _leave(get(b"/later")),
    (Phase.OPEN, Phase.STREAMING): _stream,
    (Phase.HELD, Phase.HELD): _hold_twice,
    (Phase.HELD, Phase.STREAMING): _stream_what_was_held,
    (Phase.STREAMING, Phase.IDLE): _stream,
    (Phase.STREAMING, Phase.SENDING): _fill_the_kernel_with_a_stream,
    (Phase.STREAMING, Phase.CLOSED): _leave(get(b"/stream")),
    (Phase.HELD, Phase.IDLE): _answer_a_held_poll,
    (Phase.HELD, Phase.SENDING): _fill_the_kernel_with_a_held_poll,
    (Phase.HELD, Phase.CLOSED): _leave(get(b"/held")),
    (Phase.SENDING, Phase.IDLE): _fill_the_kernel,
    (Phase.SENDING, Phase.CLOSED): _break_while_sending,
    (Phase.LINGERING, Phase.CLOSED): _close,
    (Input.READING, Input.PAUSED): _fill_the_pipeline,
    (Input.READING, Input.IGNORED): _close,
    (Input.READING, Input.ENDED): _end,
    (Input.PAUSED, Input.READING): _fill_the_pipeline,
    (Input.PAUSED, Input.IGNORED): _drain_behind_a_full_pipeline,
    (Input.IGNORED, Input.ENDED): _end_after_the_last_request,
}
"""For each transition, what a client and the server do to cause it."""

ALLOWED: Seen = {
    *((a, b) for a, following in PHASES.items() for b in following),
    *((a, b) for a, following in INPUTS.items() for b in following),
}


def test_the_tables_are_complete() -> None:
    """Every phase and every input state has a row, and there is a scenario for each transition."""
    assert set(PHASES) == set(Phase)
    assert set(INPUTS) == set(Input)
    assert set(SCENARIOS) == ALLOWED


@pytest.mark.interpreted
@pytest.mark.parametrize(
    ("transition", "scenario"), SCENARIOS.items(), ids=[f"{a.name} to {b.name}" for a, b in SCENARIOS]
)
def test_each_transition_is_made(
    transition: tuple[State, State],
    scenario: Callable[[ScriptedServer, Client], None],
    seen: Seen,
) -> None:
    """Its scenario causes it, and causes no transition that is not in the tables."""
    server = serve()
    scenario(server, server.connect())
    assert transition in seen
    assert seen <= ALLOWED


@pytest.mark.interpreted
@pytest.mark.parametrize("seed", range(40))
def test_no_other_transition_is_made(seed: int, seen: Seen) -> None:
    """Whatever clients do, in whatever order, only transitions in the tables happen."""
    random = Random(seed)
    server = serve(limits=EdgeLimits(waiting_requests_limit_bytes=random.choice([2_000, 10_000, 10**6])))
    clients: list[Client] = []
    for _ in range(150):
        if not clients or random.random() < 0.1:
            clients.append(server.connect(random.choice([None, 1000])))
        act_at_random(random, random.choice(clients), server)
    server.edge.close()
    assert len(seen) >= 5
    assert seen <= ALLOWED


def test_an_illegal_transition_is_named() -> None:
    """A second response to a request is a bug, and the assertion names both phases."""
    server = serve()
    client = server.connect()
    client.send(get(b"/later"))
    (exchange,) = server.application.later
    exchange.respond(Response(204))
    with pytest.raises(AssertionError, match="IDLE -> IDLE"):
        exchange.respond(Response(204))
    with pytest.raises(AssertionError, match="IDLE -> HELD"):
        exchange.hold(Deferred())
