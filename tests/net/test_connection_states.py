"""The states of a connection: everything in the tables happens, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import cast

import pytest
from twisted.internet.defer import Deferred

from pushup.net import connection
from pushup.net.connection import Connection
from pushup.net.connection_states import INPUTS, PHASES, Event, Input, Phase, after
from pushup.net.edge_limits import EdgeLimits
from pushup.net.pipeline import PIPELINE_LIMIT
from pushup.net.requests_and_responses import Response
from tests.net.in_memory_server import Client
from tests.net.scripted_application import ScriptedServer, act_at_random, get, post, serve

Seen = set[tuple[Phase | Input, Event]]

CLOSE = b"Connection: close\r\n"
EXPECT = b"Expect: 100-continue\r\n"


class Column(dict[Phase, Phase]):
    """The phases after one event, which records where it happens."""

    def __init__(self, event: Event, column: dict[Phase, Phase], seen: Seen) -> None:
        super().__init__(column)
        self._event = event
        self._seen = seen

    def __getitem__(self, phase: Phase) -> Phase:
        self._seen.add((phase, self._event))
        return super().__getitem__(phase)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """The events of all connections, each with the phase and the input in which it happens."""
    events: Seen = set()

    def recorded(event: Event, phase: Phase, input: Input, *, waits: bool) -> tuple[Phase, Input]:  # noqa: A002
        events.update(((phase, event), (input, event)))
        return after(event, phase, input, waits=waits)

    monkeypatch.setattr(connection, "after", recorded)
    for event in (Event.BEGUN, Event.HELD, Event.SENT):
        name = f"AFTER_{event.name}"
        monkeypatch.setattr(connection, name, Column(event, getattr(connection, name), events))
    return events


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


def _end_of(before: bytes) -> Callable[[ScriptedServer, Client], None]:
    def end(server: ScriptedServer, client: Client) -> None:
        client.send(before)
        client.end()

    return end


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


def _fill_the_pipeline(server: ScriptedServer, client: Client) -> None:
    client.send(get(b"/held") + get(b"/a") * PIPELINE_LIMIT)
    server.application.answer_held()
    server.demultiplexer.run()


def _drain_behind_a_full_pipeline(server: ScriptedServer, client: Client) -> None:
    client.send(get(b"/held") + get(b"/a") * PIPELINE_LIMIT)
    server.edge.drain()
    server.application.answer_held()


def _end_after_the_last_request(server: ScriptedServer, client: Client) -> None:
    client.send(get(b"/later", CLOSE))
    client.end()
    (exchange,) = server.application.later
    exchange.respond(Response(204))


def _exceed_both_limits_of_waiting_requests(server: ScriptedServer, client: Client) -> None:
    client.send(get(b"/held") + get(b"/a") * 2 * PIPELINE_LIMIT)


def _stop(server: ScriptedServer, client: Client) -> None:
    server.edge.drain()


def _drain_between_two_requests(server: ScriptedServer, client: Client) -> None:
    client.send(get(b"/later") + get(b"/1"))
    server.edge.drain()
    (exchange,) = server.application.later
    exchange.respond(Response(204))


def _leave_between_two_requests(how: Callable[[Client], None]) -> Callable[[ScriptedServer, Client], None]:
    def leave(server: ScriptedServer, client: Client) -> None:
        client.send(get(b"/held") + get(b"/1") + get(b"/2"))
        server.application.run = lambda: None
        server.application.answer_held()
        how(client)

    return leave


def _end_while_sending(server: ScriptedServer, client: Client) -> None:
    client.read(10)
    client.send(get(b"/big"))
    client.end()
    client.read(None)


def _exceed_the_output_limit(server: ScriptedServer, client: Client) -> None:
    client.read(10)
    client.send(get(b"/stream"))
    server.application.write_streams(b"x" * 190_000)
    (stream,) = server.application.streams
    stream.exchange.finish(b"x" * 20_000)


def _close_twice(server: ScriptedServer, client: Client) -> None:
    client.send(get(b"/later"))
    (exchange,) = server.application.later
    client.reset()
    cast(Connection, exchange).lost()


SCENARIOS: dict[tuple[Phase | Input, Event], Callable[[ScriptedServer, Client], None]] = {
    (Phase.IDLE, Event.BEGUN): _answer,
    (Phase.IDLE, Event.SENT_IN_PART): _fill_the_kernel_with_a_continue,
    (Phase.IDLE, Event.FINISHED): _stop,
    (Phase.IDLE, Event.LEFT): _end_of(b""),
    (Phase.IDLE, Event.LOST): _leave(b""),
    (Phase.QUEUED, Event.BEGUN): _fill_the_pipeline,
    (Phase.QUEUED, Event.FINISHED): _drain_between_two_requests,
    (Phase.QUEUED, Event.LEFT): _leave_between_two_requests(Client.end),
    (Phase.QUEUED, Event.LOST): _leave_between_two_requests(Client.reset),
    (Phase.OPEN, Event.HELD): _answer_a_held_poll,
    (Phase.OPEN, Event.STREAMED): _stream,
    (Phase.OPEN, Event.SENT): _answer,
    (Phase.OPEN, Event.SENT_IN_PART): _fill_the_kernel,
    (Phase.OPEN, Event.LEFT): _end_of(get(b"/later")),
    (Phase.OPEN, Event.LOST): _leave(get(b"/later")),
    (Phase.HELD, Event.HELD): _hold_twice,
    (Phase.HELD, Event.STREAMED): _stream_what_was_held,
    (Phase.HELD, Event.SENT): _answer_a_held_poll,
    (Phase.HELD, Event.SENT_IN_PART): _fill_the_kernel_with_a_held_poll,
    (Phase.HELD, Event.LEFT): _end_of(get(b"/held")),
    (Phase.HELD, Event.LOST): _leave(get(b"/held")),
    (Phase.STREAMING, Event.SENT): _stream,
    (Phase.STREAMING, Event.SENT_IN_PART): _fill_the_kernel_with_a_stream,
    (Phase.STREAMING, Event.LEFT): _end_of(get(b"/stream")),
    (Phase.STREAMING, Event.LOST): _leave(get(b"/stream")),
    (Phase.SENDING, Event.FLUSHED): _fill_the_kernel,
    (Phase.SENDING, Event.LEFT): _end_while_sending,
    (Phase.SENDING, Event.LOST): _break_while_sending,
    (Phase.LINGERING, Event.LEFT): _end_of(get(b"/a", CLOSE)),
    (Phase.LINGERING, Event.LOST): _leave(get(b"/a", CLOSE)),
    (Phase.CLOSED, Event.SENT_IN_PART): _exceed_the_output_limit,
    (Phase.CLOSED, Event.FINISHED): _end_after_the_last_request,
    (Phase.CLOSED, Event.LOST): _close_twice,
    (Input.READING, Event.FULL): _fill_the_pipeline,
    (Input.READING, Event.LAST): _end_of(get(b"/a", CLOSE)),
    (Input.READING, Event.FINISHED): _stop,
    (Input.READING, Event.LEFT): _end_of(get(b"/later")),
    (Input.PAUSED, Event.NONE_WAITS): _fill_the_pipeline,
    (Input.PAUSED, Event.LAST): _exceed_both_limits_of_waiting_requests,
    (Input.PAUSED, Event.FINISHED): _drain_behind_a_full_pipeline,
    (Input.IGNORED, Event.LEFT): _end_after_the_last_request,
}
"""For each entry of the tables, what a client and the server do so that it happens."""

ALLOWED: Seen = {(phase, event) for phase, row in PHASES.items() for event in row}
CHANGES: Seen = {(state, event) for state, row in INPUTS.items() for event in row}


def test_the_tables_are_complete() -> None:
    """Every phase and every input has a row, and there is a scenario for each entry."""
    assert set(PHASES) == set(Phase)
    assert set(INPUTS) == set(Input)
    assert set(SCENARIOS) == ALLOWED | CHANGES


@pytest.mark.interpreted
@pytest.mark.parametrize(
    ("entry", "scenario"), SCENARIOS.items(), ids=[f"{event.name} in {state.name}" for state, event in SCENARIOS]
)
def test_each_event_happens(
    entry: tuple[Phase | Input, Event], scenario: Callable[[ScriptedServer, Client], None], seen: Seen
) -> None:
    server = serve(limits=EdgeLimits(output_limit_bytes=200_000, waiting_requests_limit_bytes=40_000))
    scenario(server, server.connect())
    assert entry in seen


@pytest.mark.parametrize("seed", range(40))
def test_no_other_event_happens(seed: int) -> None:
    """Whatever clients do, in whatever order: any event that is not in the tables would be a KeyError."""
    random = Random(seed)
    server = serve(limits=EdgeLimits(waiting_requests_limit_bytes=random.choice([2_000, 10_000, 10**6])))
    clients: list[Client] = []
    for _ in range(150):
        if not clients or random.random() < 0.1:
            clients.append(server.connect(random.choice([None, 1000])))
        act_at_random(random, random.choice(clients), server)
    server.edge.close()
    assert server.edge.connection_count == 0


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("input_", Input)
@pytest.mark.parametrize("phase", Phase)
def test_a_client_that_has_left(phase: Phase, input_: Input, waits: bool) -> None:
    """It waits for no message and keeps no connection open, and gets the responses to what it has requested."""
    for event in PHASES[phase]:
        following, ended = after(event, phase, Input.ENDED, waits=waits)
        assert ended is Input.ENDED
        assert following not in (Phase.IDLE, Phase.HELD, Phase.STREAMING, Phase.LINGERING)
        assert (after(event, phase, input_, waits=True)[0] is Phase.IDLE) is False


def test_a_second_response_is_a_defect() -> None:
    """Nothing is sent then, and the error names the phase."""
    server = serve()
    client = server.connect()
    client.send(get(b"/later"))
    (exchange,) = server.application.later
    exchange.respond(Response(204))
    client.reply()
    with pytest.raises(KeyError, match="IDLE"):
        exchange.respond(Response(204))
    with pytest.raises(KeyError, match="IDLE"):
        exchange.hold(Deferred())
    assert client.take() == b""
