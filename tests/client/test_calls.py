"""What both clients do when nodes fail in every way: bounds, retries, idempotency keys, tokens; without real time."""

from __future__ import annotations

import asyncio
import inspect
import os
import random
import socket
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from typing import Any, cast, get_type_hints

import pytest

from pushup.client import AsyncClient, Client, ClientError, Duplicate, Producer
from pushup.client.asyncio_driver import AsyncioDriver
from pushup.client.credentials import Credentials
from pushup.client.driver import Connection, in_thread, run
from pushup.client.exchange import IDLE_LIMIT, Node
from pushup.client.http1 import HttpConnection
from tests.client.both_clients import MakeClient, making
from tests.client.simulated_driver import (
    CLOSES,
    DRIPS,
    HANGS,
    HUGE,
    NOT_HTTP,
    REFUSED,
    RESET,
    Reply,
    SimulatedDriver,
    answer,
    event,
    polled,
    stream,
)

PUBLISHED = {"id": "e-1", "time": 1.0, "cursor": "e-1"}
DONE = answer(201, PUBLISHED)
UNAVAILABLE = answer(503, {"type": "urn:pushup:unavailable", "detail": "no"})

PASS = {
    "refused": REFUSED, "closed": CLOSES, "reset": RESET, "hangs": HANGS, "drips": DRIPS, "not HTTP": NOT_HTTP,
    "408": answer(408), "429": answer(429), "500": answer(500), "502": Reply([(0.0, b"HTTP/1.1 502 x\r\n\r\n<html>")],
    closes=True), "503": UNAVAILABLE, "503 later": answer(503, Retry_After="2"), "504": answer(504, after=0.5),
    "half an answer": Reply([(0.0, b"HTTP/1.1 201 x\r\nContent-Length: 9\r\n\r\n{")], closes=True),
}  # fmt: skip
"""Replies after which a retry may succeed."""

FINAL = {
    "400": answer(400, {"detail": "bad"}), "403": answer(403), "404": answer(404), "413": answer(413),
    "redirect": answer(307, Location="http://other/"), "huge": HUGE,
    "another server": Reply([(0.0, b"HTTP/1.1 404 x\r\nContent-Length: 6\r\n\r\n<html>")]),
    "no JSON": Reply([(0.0, b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>")]),
    "deep": Reply([(0.0, b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100_000)], closes=True), "not ours": answer(200, {"a": 1}),
}  # fmt: skip
"""Replies after which no retry may succeed."""

TEXTS = {
    "redirect": "redirect to 'http://other/'",
    "400": "bad",
    "another server": "404 x: that is not PushUp's answer",
    "huge": "larger than",
}
"""What the error says, of some of them."""


def error_of(call: Any) -> ClientError:
    with pytest.raises(ClientError) as caught:
        call()
    return caught.value


@pytest.mark.parametrize("name", PASS)
def test_what_may_pass_is_tried_again_with_the_same_key(make: MakeClient, name: str) -> None:
    """And the message is published."""
    driver = SimulatedDriver(a=[PASS[name], PASS[name], DONE])
    client = make("unix:a", driver=driver)
    published = client.publish("a", 1, patience=30.0)
    assert (published.id, published.cursor) == ("e-1", "e-1")
    assert len({sent.headers["idempotency-key"] for sent in driver.sent}) == 1
    assert len(driver.slept) == 2


@pytest.mark.parametrize("name", FINAL)
def test_what_will_not_pass_is_raised_at_once(make: MakeClient, name: str) -> None:
    """With one request, and without a pause."""
    driver = SimulatedDriver(a=[FINAL[name], DONE])
    error = error_of(lambda: make("unix:a", driver=driver).publish("a", 1, patience=30.0))
    assert not error.may_pass
    assert (len(driver.sent), driver.slept, driver.time) == (1, [], 1000.0)
    assert TEXTS.get(name, "") in str(error)


def test_what_was_sent_is_not_repeated_if_that_may_do_harm(make: MakeClient) -> None:
    """A channel may have been created. If nothing was sent, it was not."""
    for reply in (CLOSES, UNAVAILABLE, HANGS):
        driver = SimulatedDriver(a=[reply, answer(201, {"id": 1, "name": "x", "expires": 2.0})])
        with pytest.raises(ClientError):
            make("unix:a", driver=driver).create("x")
        assert len(driver.sent) == 1
    driver = SimulatedDriver(a=[REFUSED, answer(201, {"id": 1, "name": "x", "expires": 2.0})])
    assert make("unix:a", driver=driver).create("x").id == 1
    driver = SimulatedDriver(a=[UNAVAILABLE, DONE])
    make("unix:a", driver=driver).call("POST", "/v1/messages", {}, {"Idempotency-Key": "k"})  # that does no harm


def test_pauses_grow_and_are_random_up_to_a_limit(make: MakeClient) -> None:
    """From 0 to `first * 2^failures`, at most `longest`."""
    driver = SimulatedDriver(a=[UNAVAILABLE] * 8 + [DONE])
    make("unix:a", driver=driver, retry_seconds=(1.0, 30.0)).publish("a", 1, patience=1000.0)
    assert driver.slept == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
    driver = SimulatedDriver(7, a=[UNAVAILABLE] * 100 + [DONE])
    make("unix:a", driver=driver, retry_seconds=(8.0, 8.0)).publish("a", 1, patience=10_000.0)
    assert min(driver.slept) < 1.0 < 7.0 < max(driver.slept) <= 8.0


@pytest.mark.parametrize(
    ("value", "date", "seconds"),
    [
        ("2", "", 2.0),
        ("Wed, 25 Nov 2026 12:00:09 GMT", "Wed, 25 Nov 2026 12:00:05 GMT", 4.0),
        ("Wed, 25 Nov 2026 12:00:09 GMT", "", 0.0),
        ("Wed, 25 Nov 2026 12:00:01 GMT", "Wed, 25 Nov 2026 12:00:05 GMT", 0.0),
        ("soon", "", 0.0),
        ("-3", "", 0.0),
        ("9" * 400, "", 3600.0),
    ],
)
def test_retry_after(make: MakeClient, value: str, date: str, seconds: float) -> None:
    """It is waited for, as seconds or as a date beside that of the server; nonsense is ignored."""
    driver = SimulatedDriver(a=[answer(429, Retry_After=value, Date=date), DONE])
    make("unix:a", driver=driver, retry_seconds=(0.5, 0.5)).publish("a", 1, patience=5000.0)
    assert driver.slept == [seconds + 0.5]
    driver = SimulatedDriver(a=[answer(429, Retry_After=value, Date=date)])
    assert error_of(make("unix:a", driver=driver, patience=0.0).cursor).retry_after == seconds


def test_a_retry_after_beyond_the_patience_ends_the_call_at_once(make: MakeClient) -> None:
    """Nobody waits for an error that is certain."""
    driver = SimulatedDriver(a=[answer(503, Retry_After="60"), DONE])
    error = error_of(lambda: make("unix:a", driver=driver).publish("a", 1, patience=30.0))
    assert (error.retry_after, driver.time) == (60.0, 1000.0)


def test_a_long_pause_leaves_time_for_another_try(make: MakeClient) -> None:
    """As much as it takes."""
    driver = SimulatedDriver(a=[UNAVAILABLE, DONE])
    make("unix:a", driver=driver, retry_seconds=(30.0, 30.0)).publish("a", 1, patience=10.0)
    assert driver.slept == [5.0]


def test_no_patience(make: MakeClient) -> None:
    """Each node is tried once."""
    for patience in ({"patience": 0.0}, {}):
        driver = SimulatedDriver(a=[UNAVAILABLE, DONE], b=[UNAVAILABLE, DONE])
        client = make(["unix:a", "unix:b"], driver=driver, patience=0.0)
        error_of(lambda client=client, patience=patience: client.publish("a", 1, **patience))
        assert [sent.node for sent in driver.sent] == ["a", "b"]
        assert driver.slept == []


@pytest.mark.parametrize("reply", [HANGS, DRIPS, UNAVAILABLE, REFUSED, CLOSES], ids=str)
@pytest.mark.parametrize(("timeout", "patience"), [(5.0, None), (5.0, 2.0), (5.0, 12.0)])
@pytest.mark.parametrize("nodes", [1, 2, 3])
def test_a_call_is_bounded(make: MakeClient, reply: Reply, timeout: float, patience: float | None, nodes: int) -> None:
    """Whatever the nodes do. Each is tried."""
    names = ["a", "b", "c"][:nodes]
    driver = SimulatedDriver(None, **{name: [reply] * 10_000 for name in names})
    client = make([f"unix:{name}" for name in names], driver=driver, timeout=timeout)
    error_of(lambda: client.publish("a", 1, patience=patience))
    bound = timeout if patience is None else patience
    assert bound - 0.2 <= driver.time - 1000.0 <= bound + 1e-6
    assert reply is REFUSED or {sent.node for sent in driver.sent} == set(names)
    client.close()
    assert driver.open == set()


@pytest.mark.parametrize(
    ("patience", "timeout", "bound"), [(None, 60.0, 60.0), (30.0, 1.0, 1.0), (2.0, 60.0, 2.0), (0.0, 60.0, 60.0)]
)
def test_a_call_with_a_timeout_of_its_own(
    make: MakeClient, patience: float | None, timeout: float, bound: float
) -> None:
    """It may be longer than that of the client, or shorter than its patience."""
    driver = SimulatedDriver(a=[])
    client = make("unix:a", driver=driver, patience=patience)
    error_of(lambda: client.call("GET", "/v1/nodes", timeout=timeout))
    assert driver.time == 1000.0 + bound


def test_the_next_node_is_tried_within_its_share_of_the_time(make: MakeClient) -> None:
    """The first hangs. The next call begins with the node that answered, on the connection that is open."""
    driver = SimulatedDriver(a=[HANGS] * 9, b=[DONE] * 9)
    client = make(["unix:a", "unix:b"], driver=driver, timeout=5.0)
    client.publish("a", 1)
    assert [(sent.node, sent.at) for sent in driver.sent] == [("a", 1000.0), ("b", 1002.5)]
    client.publish("a", 2)
    assert (driver.sent[-1].node, driver.time, driver.connections) == ("b", 1002.5, 2)


def test_a_connection_is_used_again(make: MakeClient) -> None:
    """Unless the server wants to close it, or the client has closed it, or it was idle for long."""
    closing = answer(201, PUBLISHED, Connection="close")
    driver = SimulatedDriver(a=[DONE, closing, DONE, DONE, DONE])
    client = make("unix:a", driver=driver)
    for _ in range(3):
        client.publish("a", 1)
    client.close()
    client.publish("a", 1)
    driver.time += 31.0
    client.publish("a", 1)
    assert [sent.connection for sent in driver.sent] == [1, 1, 2, 3, 4]
    assert driver.open == {4}


@pytest.mark.parametrize("reply", [CLOSES, RESET])
def test_a_connection_that_was_closed_while_it_was_idle(make: MakeClient, reply: Reply) -> None:
    """The request is sent again on a new one, at once and with the same key, also without patience. A request that must
    not be repeated is sent on a new one from the beginning."""
    driver = SimulatedDriver(a=[DONE, reply, DONE, answer(201, {"id": 1, "name": "x", "expires": 2.0})])
    client = make("unix:a", driver=driver, patience=0.0)
    client.publish("a", 1)
    client.publish("a", 2)
    first, second, third = driver.sent
    assert first.headers["idempotency-key"] != second.headers["idempotency-key"] == third.headers["idempotency-key"]
    assert [sent.connection for sent in driver.sent] == [1, 1, 2]
    client.create("x")
    assert driver.sent[-1].connection == 3


def test_blocking_methods() -> None:
    """They have the arguments of the others, and whatever looks through wrappers finds no coroutine function."""
    for name in ("publish", "poll", "call"):
        method = getattr(Client, name)
        assert inspect.signature(method) == inspect.signature(getattr(AsyncClient, name), eval_str=True)
        assert get_type_hints(method) == get_type_hints(getattr(AsyncClient, name))
        assert not inspect.iscoroutinefunction(inspect.unwrap(method))


class Resolving(SimulatedDriver):
    """Looks up names at once. An address that is `silent` takes no connection in time."""

    async def wait(self, future: Future[Any], until: float) -> Any:
        return future.result()

    async def connect(self, family: int, address: Any, tls: Any, host: str, until: float) -> Connection:
        if address == "silent":
            self.pass_time(float("inf"), until)
        return await super().connect(family, address, tls, host, until)


def resolve(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in addresses]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://push.example.org/path/", "push.example.org"),
        ("https://push.example.org:443/path", "push.example.org"),
        ("https://push.example.org:80/path", "push.example.org:80"),
        ("http://[::1]:8080/path", "[::1]:8080"),
    ],
)
def test_a_server_behind_a_path(make: MakeClient, monkeypatch: pytest.MonkeyPatch, url: str, host: str) -> None:
    """Each request goes there, also on a connection that is used again."""
    resolve(monkeypatch, "a")
    driver = Resolving(a=[DONE, DONE])
    client = make(url, driver=driver)
    client.publish("a", 1)
    client.publish("a", 2)
    assert [(sent.target, sent.connection) for sent in driver.sent] == [("/path/v1/messages", 1)] * 2
    assert driver.sent[0].headers["host"] == host


def test_a_name_with_several_addresses(make: MakeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is tried within its share of the time: `localhost` may be `::1` first, where no server listens."""
    resolve(monkeypatch, "silent", "b", "a")
    driver = Resolving(a=[DONE], b=[REFUSED])
    make("http://localhost", driver=driver, timeout=6.0).publish("a", 1)
    assert driver.sent[0].at == 1002.0


def test_a_url_with_a_password(make: MakeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """No error shows it."""
    resolve(monkeypatch, "a")
    for url in ("http://ann:secret@a", "http://ann:secret@a:x"):
        error = error_of(lambda url=url: make(url, driver=Resolving(a=[REFUSED]), patience=0.0).cursor())
        assert "secret" not in str(error)


def test_a_program_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it publishes at its exit is sent, although no thread can look up the server's name."""

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", start)
    assert in_thread(lambda: 7).result() == 7


def test_what_a_message_may_have_is_sent(make: MakeClient) -> None:
    """And nothing of what it does not have, so that an older server takes it."""
    driver = SimulatedDriver(
        a=[DONE, DONE, answer(201, {"ids": ["e-1", "e-2"], "time": 1.0, "cursor": "e-2"}), DONE, DONE]
    )
    client = make("unix:a", "key", driver=driver)
    client.publish("a", 1)
    client.publish(["a"], 2, event="typing", ephemeral=True, ack="stable", idempotency_key="a key")
    many = client.publish_many([{"channels": ["a"], "data": None}, {"channels": ["b"], "data": 1, "event": "x"}])
    client.publish("a", 3, unread_after=60, unread_for=("ann", "bob"))
    client.publish("a", 4, unread_after=60, unread_for="ann")
    assert [sent.body for sent in driver.sent] == [
        {"channels": ["a"], "data": 1},
        {"channels": ["a"], "data": 2, "event": "typing", "ephemeral": True, "ack": "stable", "ack_timeout": 5.0},
        {"messages": [{"channels": ["a"], "data": None}, {"channels": ["b"], "data": 1, "event": "x"}]},
        {"channels": ["a"], "data": 3, "unread_after": 60, "for": ["ann", "bob"]},
        {"channels": ["a"], "data": 4, "unread_after": 60, "for": ["ann"]},
    ]
    assert [(each.id, each.cursor) for each in many] == [("e-1", "e-2"), ("e-2", "e-2")]
    assert driver.sent[1].headers["idempotency-key"] == "a key"
    assert {sent.headers["authorization"] for sent in driver.sent} == {"Bearer key"}


def test_a_producer_is_sent_instead_of_a_key(make: MakeClient) -> None:
    """With each try; a publication that is known to be an earlier one has no ids to return."""
    lost = answer(201, {"ids": ["e-1"], "time": 1.0, "cursor": "e-1", "after_loss": True})
    driver = SimulatedDriver(a=[UNAVAILABLE, lost, DONE, answer(200, {"duplicate": True})])
    client = make("unix:a", driver=driver)
    producer: Producer = {"name": "shop", "epoch": 1, "sequence": 7}
    assert client.publish_many([{"channels": ["a"], "data": 1}], producer=producer)[0].after_loss
    assert not client.publish("a", 1, producer=producer).after_loss
    with pytest.raises(Duplicate):
        client.publish("a", 1, producer=producer)
    assert [sent.body["producer"] for sent in driver.sent] == [producer] * 4
    assert not any("idempotency-key" in sent.headers for sent in driver.sent)


def test_the_time_for_an_acknowledgement_comes_on_top(make: MakeClient) -> None:
    """The server may wait for it as long as it was asked to."""
    driver = SimulatedDriver(a=[answer(201, PUBLISHED | {"ack": "accepted"}, after=9.0)])
    assert make("unix:a", driver=driver, timeout=1.0).publish("a", 1, ack="stable", ack_timeout=8.5).ack == "accepted"


def test_channels_are_read_page_by_page(make: MakeClient) -> None:
    """By their ids."""
    pages = [[{"id": 3, "name": "a", "expires": 1.0, "new": 1}], [{"id": 7, "name": "b", "expires": 2.0, "ttl": 5.0}]]
    driver = SimulatedDriver(
        a=[answer(200, {"channels": pages[0], "more": True}), answer(200, {"channels": pages[1], "more": False})]
    )
    assert [(each.name, each.ttl) for each in make("unix:a", driver=driver).channels()] == [("a", None), ("b", 5.0)]
    assert [sent.target for sent in driver.sent] == ["/v1/channels?after=0", "/v1/channels?after=3"]


def test_a_poll(make: MakeClient) -> None:
    """What is in the answer; only the last item has the cursor after it. The ticket is sent with the next poll, and not
    when the server refuses it, which is no reason for another token."""
    gap = {"channel": "a", "reason": "lost", "until": "e-2"}
    first = polled("e-5", 3, 4, gaps=[gap], closed=["b"], more=True, ticket="t")
    refused = answer(401, {"type": "urn:pushup:ticket-expired"}, after=10.0)
    driver = SimulatedDriver(a=[first, refused, polled("e-6"), polled("e-6")])
    client = make("unix:a", driver=driver, token=tokens("1"))
    answered = client.poll(["a", "b"], "e-1", timeout=20.0, limit=2)
    assert [type(item).__name__ for item in answered.items] == ["Gap", "Closed", "Message", "Message"]
    assert [item.cursor for item in answered.items] == ["e-1", "e-1", "e-1", "e-5"]
    assert (answered.cursor, answered.more) == ("e-5", True)
    client.poll(["b", "a"], "e-5", timeout=20.0)
    client.poll(["a", "b"], "e-6")
    assert [(sent.body["timeout"], sent.headers.get("pushup-ticket")) for sent in driver.sent] == [
        (20.0, None), (20.0, "t"), (10.0, None), (25.0, None),
    ]  # fmt: skip


def test_a_poll_takes_its_timeout_and_that_of_the_client(make: MakeClient) -> None:
    """At all nodes together; the next is asked to hold it for as long as is left."""
    driver = SimulatedDriver(a=[answer(503, after=4.0)], b=[HANGS])
    error_of(lambda: make(["unix:a", "unix:b"], driver=driver, timeout=5.0).poll("a", timeout=20.0))
    assert [(sent.node, sent.body["timeout"]) for sent in driver.sent] == [("a", 20.0), ("b", 16.0)]
    assert driver.time == 1025.0


def test_a_poll_without_any_time_left(make: MakeClient) -> None:
    """It is not held, by the next node or when the ticket was refused; servers refuse a time below 0."""
    refused = answer(401, {"type": "urn:pushup:ticket-expired"}, after=1.0)
    driver = SimulatedDriver(
        a=[polled("e-1", ticket="t"), answer(503, after=3.0)],
        b=[refused, polled("e-1")],
    )
    client = make(["unix:a", "unix:b"], driver=driver, timeout=5.0)
    for _ in range(2):
        client.poll("a", timeout=2.0)
    assert [(sent.node, sent.body["timeout"]) for sent in driver.sent] == [
        ("a", 2.0), ("a", 2.0), ("b", 0.0), ("b", 0.0),
    ]  # fmt: skip


def test_a_ticket_is_kept_while_a_server_is_unavailable(make: MakeClient) -> None:
    """And the poll is not sent again without it."""
    driver = SimulatedDriver(a=[polled("e-1", ticket="t"), UNAVAILABLE, polled("e-1")])
    client = make("unix:a", driver=driver)
    client.poll("a")
    error_of(lambda: client.poll("a"))
    client.poll("a")
    assert [sent.headers.get("pushup-ticket") for sent in driver.sent] == [None, "t", "t"]


@pytest.mark.parametrize("hangs", [HANGS, DRIPS])
def test_a_poll_at_a_node_that_hangs(make: MakeClient, hangs: Reply) -> None:
    """The next one is polled in time, and first from then on."""
    driver = SimulatedDriver(a=[hangs], b=[polled("e-1"), polled("e-1")])
    client = make(["unix:a", "unix:b"], driver=driver, timeout=5.0)
    assert client.poll("a", timeout=20.0).cursor == "e-1"
    client.poll("a", timeout=20.0)
    assert [(sent.node, sent.at, sent.body["timeout"]) for sent in driver.sent] == [
        ("a", 1000.0, 20.0), ("b", 1022.5, 0.0), ("b", 1022.5, 20.0),
    ]  # fmt: skip


def test_a_body_that_is_refused_before_it_is_read(make: MakeClient) -> None:
    """The server has closed the connection, but its answer came before that."""

    class Closing(SimulatedDriver):
        async def connect(self, *given: Any) -> Connection:
            connection = await super().connect(*given)
            send = connection.send

            async def send_and_break(data: bytes, until: float) -> None:
                await send(data, until)
                raise BrokenPipeError("broken pipe")

            any_connection: Any = connection
            any_connection.send = send_and_break
            return connection

    driver = Closing(a=[answer(413, {"detail": "too large"}), DONE])
    assert "too large" in str(error_of(lambda: make("unix:a", driver=driver).publish("a", 1)))
    assert len(driver.sent) == 1


def test_an_error_without_a_text(make: MakeClient) -> None:
    """Is named."""
    driver = SimulatedDriver(a=[Reply([(0.0, ConnectionResetError())])])
    error = error_of(lambda: make("unix:a", driver=driver, patience=0.0).cursor())
    assert str(error) == "cannot reach the server at unix:a: ConnectionResetError"


def test_after_a_stop_every_call_fails(make: MakeClient) -> None:
    """At once, and without a retry."""
    driver = SimulatedDriver(a=[DONE])
    client = make("unix:a", driver=driver)
    client.stop()
    assert "stopped" in str(error_of(client.cursor))
    assert (driver.sent, driver.slept) == ([], [])


def tokens(*given: Any) -> Any:
    """A function that returns one after the other, and raises what is an error. `None`: it hangs."""
    each = iter(given)

    def token() -> Any:
        value = next(each)
        if isinstance(value, Exception):
            raise value
        return value

    return token


REFUSALS = {
    "expired": answer(401, {"type": "urn:pushup:token-expired"}),
    "revoked": answer(401, {"type": "urn:pushup:revoked"}),
    "invalid": answer(401, {"type": "urn:pushup:invalid-token"}),
}


@pytest.mark.parametrize(
    ("replies", "result", "sent", "slept"),
    [
        ([DONE, "expired", DONE], "e-1", ["1", "1", "2"], []),
        ([DONE, "revoked", DONE], "e-1", ["1", "1", "2"], [2.0]),
        ([DONE, "revoked", "revoked", DONE], "urn:pushup:revoked", ["1", "1", "2"], [2.0]),
        ([DONE, "invalid", "invalid", DONE], "urn:pushup:invalid-token", ["1", "1", "2"], []),
    ],
)
def test_a_token_that_is_refused(
    make: MakeClient, replies: list[Any], result: str, sent: list[str], slept: list[float]
) -> None:
    """One that was accepted before is replaced, at once, or after a pause if it was revoked; the next one must do."""
    driver = SimulatedDriver(a=[REFUSALS[reply] if isinstance(reply, str) else reply for reply in replies])
    client = make("unix:a", token=tokens("1", "2", "3"), driver=driver)
    client.publish("a", 1)
    try:
        found = client.publish("a", 2).id
    except ClientError as error:
        found = error.type
    assert found == result
    assert [each.headers["authorization"] for each in driver.sent] == [f"Bearer {each}" for each in sent]
    assert driver.slept == slept


def test_a_token_that_is_revoked_when_little_time_is_left(make: MakeClient) -> None:
    """The call ends at once: another token would come too late."""
    driver = SimulatedDriver(a=[DONE, REFUSALS["revoked"]])
    client = make("unix:a", token=tokens("1", "2"), driver=driver, timeout=1.0)
    client.publish("a", 1)
    assert error_of(lambda: client.publish("a", 2)).type == "urn:pushup:revoked"
    assert driver.slept == []


def test_a_poll_whose_tokens_are_refused(make: MakeClient) -> None:
    """It is held for what is left of its time, however often it was sent."""
    slow = [replace(REFUSALS[kind], pieces=[(5.0, REFUSALS[kind].pieces[0][1])]) for kind in ("expired", "revoked")]
    driver = SimulatedDriver(a=[polled("e-1"), *slow, polled("e-1")])
    client = make("unix:a", token=tokens("1", "2", "3"), driver=driver)
    for _ in range(2):
        client.poll("a", timeout=20.0)
    assert [each.body["timeout"] for each in driver.sent] == [20.0, 20.0, 15.0, 8.0]


def test_a_first_token_that_is_refused(make: MakeClient) -> None:
    """There is no reason why another one should be accepted. One that is a text cannot be replaced."""
    driver = SimulatedDriver(a=[REFUSALS["invalid"], DONE])
    client = make("unix:a", token=tokens("1", "2"), driver=driver)
    assert error_of(lambda: client.publish("a", 1)).status == 401
    client.publish("a", 1)
    driver = SimulatedDriver(a=[DONE, REFUSALS["expired"], DONE])
    client = make("unix:a", token="text", driver=driver)
    client.publish("a", 1)
    assert error_of(lambda: client.publish("a", 1)).type == "urn:pushup:token-expired"


def test_a_token_that_ended_in_an_outage(make: MakeClient) -> None:
    """It was fetched while no node could be reached, so none has accepted it. It is replaced; a new one must do."""
    driver = SimulatedDriver(a=[*[REFUSED] * 12, REFUSALS["expired"], stream(event(1))])
    client = make("unix:a", token=tokens("1", "2"), driver=driver)
    assert next(client.follow("a"))
    assert [sent.headers["authorization"] for sent in driver.sent] == ["Bearer 1", "Bearer 2"]
    driver = SimulatedDriver(a=[answer(503), REFUSALS["expired"]])
    assert error_of(lambda: make("unix:a", token=tokens("1", "2"), driver=driver).publish("a", 1)).status == 401


def test_a_token_is_replaced_when_the_server_says_that_it_ends(make: MakeClient) -> None:
    """Not before, and not only when it is refused."""
    driver = SimulatedDriver(a=[polled("e-1", expires_in=60.0), polled("e-1"), polled("e-1")])
    client = make("unix:a", token=tokens("1", "2"), driver=driver)
    for _ in range(3):
        client.poll("a")
        driver.time += 40.0
    assert [sent.headers["authorization"] for sent in driver.sent] == ["Bearer 1", "Bearer 1", "Bearer 2"]


def test_what_a_server_says_of_the_token_before(make: MakeClient) -> None:
    """On a stream, or in the answer to a poll, that began with it. The next one has not ended."""
    first = stream(event(1), {"event": "expiry", "data": {"expires_in": 0.0}}, event(2), closes=False)
    driver = SimulatedDriver(a=[first, REFUSALS["expired"], DONE, DONE])
    client = make("unix:a", token=tokens("1", "2", "3"), driver=driver)
    items = client.follow("a")
    for _ in range(2):
        next(items)
        client.publish("a", 1)
    assert [sent.headers["authorization"] for sent in driver.sent] == [f"Bearer {each}" for each in "1122"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (ZeroDivisionError("no database"), "cannot get a token: no database"),
        ("no token", "cannot get a token: the token is not valid; a token is printable ASCII without spaces"),
        (7, "cannot get a token: the token is not valid; a token is printable ASCII without spaces"),
        (None, "cannot get a token: token() did not return in time"),
    ],
)
def test_a_token_that_cannot_be_had(make: MakeClient, value: Any, text: str) -> None:
    """The error says so, in time, and shows no token; it may pass. Nothing is sent."""
    driver = SimulatedDriver(a=[DONE])
    client = make("unix:a", token=tokens(value, "2"), driver=driver, patience=0.0)
    error = error_of(lambda: client.publish("a", 1))
    assert (str(error), error.may_pass, driver.sent) == (text, True, [])
    assert driver.time <= 1005.0


def test_a_token_function_that_hangs_is_not_called_again_meanwhile(make: MakeClient) -> None:
    """Whoever calls next waits for the same call."""
    calls: list[int] = []
    driver = SimulatedDriver(a=[DONE])
    client = make("unix:a", token=lambda: calls.append(1), driver=driver)
    for _ in range(3):
        error_of(lambda: client.publish("a", 1))
    assert (len(calls), driver.time) == (1, 1015.0)


def test_a_fork_while_a_token_is_fetched(make: MakeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that fetches it is only in the parent, so the child fetches one itself."""
    driver = SimulatedDriver(a=[DONE])
    client = make("unix:a", token=tokens(None, "2"), driver=driver, patience=0.0)
    error_of(lambda: client.publish("a", 1))
    monkeypatch.setattr(os, "getpid", lambda: 0)
    assert client.publish("a", 1).id == "e-1"


def test_a_token_that_another_thread_finds_refused() -> None:
    """While this one is about to send it: it sends what it has, never nothing."""

    class Slow(SimulatedDriver):
        def now(self) -> float:
            refuse()
            return super().now()

    def refuse() -> None:
        credentials.retry_pause(ClientError("", 401, {"type": "urn:pushup:token-expired"}), "1")

    credentials = Credentials(None, tokens("1"), Slow())
    assert run(credentials.get(2000.0)) == "1"
    assert run(credentials.get(2000.0)) == "1"


def test_a_task_that_is_cancelled_while_it_waits_for_a_token() -> None:
    """The others get the token for which they all wait."""
    may = threading.Event()

    def token() -> str:
        may.wait()
        return "1"

    async def wait() -> str | None:
        credentials = Credentials(None, token, AsyncioDriver())
        first, second = [asyncio.create_task(credentials.get(time.monotonic() + 60.0)) for _ in range(2)]
        await asyncio.sleep(0.0)
        first.cancel()
        await asyncio.wait([first])
        may.set()
        return await second

    assert asyncio.run(wait()) == "1"


def test_a_token_that_came_too_late(make: MakeClient) -> None:
    """The next call has it at once, and another one if it has ended meanwhile. One that was cancelled never comes; what
    failed meanwhile is no reason to fail now."""
    fetching = [Future[str]() for _ in range(4)]

    class Slow(SimulatedDriver):
        def start(self, function: Callable[[], Any]) -> Future[Any]:
            future: Future[Any] = function()
            return future

    driver = Slow(a=[REFUSALS["expired"], DONE])
    client = make("unix:a", token=tokens(*fetching), driver=driver, patience=0.0)
    error_of(lambda: client.publish("a", 1))
    fetching[0].cancel()
    error_of(lambda: client.publish("a", 1))
    fetching[1].set_exception(ConnectionError("no database"))
    error_of(lambda: client.publish("a", 1))
    fetching[2].set_result("1")
    fetching[3].set_result("2")
    driver.time += 3600.0
    assert client.publish("a", 1).id == "e-1"
    assert [sent.headers["authorization"] for sent in driver.sent] == ["Bearer 1", "Bearer 2"]


class Idle(HttpConnection):
    """One that could be used again. `closed`: how often it was closed."""

    may_be_used_again = True

    def __init__(self) -> None:
        super().__init__(cast(Connection, None))
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def test_many_idle_connections_are_not_kept() -> None:
    """After many threads have called at once."""
    node, idle = Node("unix:a"), Idle()
    for _ in range(IDLE_LIMIT + 1):
        node.keep(idle, 0.0)
    assert idle.closed == 1


def test_threads_that_close_idle_connections() -> None:
    """As when a server restarts: each finds that its own is closed, and closes the others."""
    node, idle = Node("unix:a"), Idle()
    until = time.monotonic() + 0.5

    def work(_: int) -> None:
        while time.monotonic() < until:
            for _ in range(3):
                node.keep(idle, 0.0)
            node.close()

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))
    finally:
        sys.setswitchinterval(before)


def test_what_cannot_be(make: MakeClient) -> None:
    """Says why."""
    for url in ("127.0.0.1:8080", "ftp://a", "http://", "http://a:x", "http://a b", "http://a/?b", "http://a\n"):
        assert "is not a valid URL" in str(error_of(lambda url=url: make(url)))
    for given, text in (
        ({"key": "a", "token": "b"}, "either a key or a token"),
        ({"token": "a token"}, "the token is not valid"),
        ({"key": "a\nb"}, "the key is not valid"),
    ):
        with pytest.raises(ValueError, match=text):
            make("http://a", **given)
    with pytest.raises(ValueError, match="at least one node"):
        make([])
    driver = SimulatedDriver(a=[])
    with pytest.raises(ValueError, match="not valid"):
        make("unix:a", driver=driver).publish("a", 1, idempotency_key="a\nb")
    with pytest.raises(ValueError, match="stream"):
        make("unix:a", driver=driver).follow("a", transport="websocket")  # type: ignore[arg-type]
    assert driver.open == set()


def test_many_tickets_are_not_kept() -> None:
    """Each set of channels may have one, and a program may poll any number of sets."""
    driver = SimulatedDriver(a=[polled("e-1", ticket="t")] * 1003)
    client = Client("unix:a", driver=driver)
    for number in (*range(1001), 0, 1000):
        client.poll(str(number))
    assert [sent.headers.get("pushup-ticket") for sent in driver.sent[1001:]] == [None, "t"]


@pytest.mark.parametrize("batch", range(8))
def test_random_faults(batch: int) -> None:
    """Both clients do the same; and whatever happens, a call is bounded, ends with the first final answer, sends one
    key, and respects `Retry-After`."""
    for seed in range(100 * batch, 100 * batch + 100):
        assert trace_of_faults("blocking", seed) == trace_of_faults("asyncio", seed)


def trace_of_faults(kind: str, seed: int) -> object:
    """What a client did, and what came of it."""
    rng = random.Random(seed)
    names = ["a", "b", "c"][: rng.randint(1, 3)]
    choices = [*PASS.values(), *PASS.values(), DONE, rng.choice(list(FINAL.values()))]
    scripts = {name: rng.choices(choices, k=rng.randint(1, 12)) for name in names}
    timeout, patience = rng.choice([0.5, 5.0]), rng.choice([None, 0.0, 1.0, 20.0, 100.0])
    driver = SimulatedDriver(seed, **{name: list(script) for name, script in scripts.items()})
    with making(kind) as make:
        client = make([f"unix:{name}" for name in names], driver=driver, timeout=timeout, patience=patience)
        try:
            result = client.publish("a", 1, idempotency_key="k").id
        except ClientError as error:
            result = f"{error} {error.may_pass}"
    assert driver.time - 1000.0 <= (patience or timeout) + 1e-6
    assert {sent.headers["idempotency-key"] for sent in driver.sent} <= {"k"}
    assert "stopped" not in result
    for name in names:
        for sent, after in pairwise(sent for sent in driver.sent if sent.node == name):
            assert after.at >= sent.at + (2.0 if sent.reply is PASS["503 later"] else 0.0)
    ends = (DONE, *FINAL.values())
    assert not any(sent.reply in ends for sent in driver.sent[:-1])
    return result, driver.sent, driver.slept
