"""The rules of the relay, with SQLite and a simulated PushUp: what is published, in which order, and how often."""

from __future__ import annotations

import logging
import random
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from pushup.outbox import Relay
from pushup.outbox import relay as relay_module
from pushup.outbox.database import connector
from pushup.outbox.rows import Rows
from pushup.outbox.sqlalchemy import add, metadata
from pushup.testing import InProcess, Recorder
from tests.client.simulated_driver import HANGS, REFUSED, RESET, Reply, answer
from tests.outbox.simulated_pushup import SimulatedPushUp


class Database:
    """A file of SQLite, with the application's side, and what a test does to the tables."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.engine: Engine = create_engine(f"sqlite:///{path}", poolclass=NullPool)
        event.listen(self.engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous = OFF"))
        metadata.create_all(self.engine)

    def connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path)
        connection.execute("PRAGMA synchronous = OFF")  # nothing here crashes the machine
        return connection

    def add(self, *data: Any, channels: str = "news") -> None:
        with Session(self.engine) as session, session.begin():
            for each in data:
                add(session, channels, each)

    def run(self, statement: str) -> list[Any]:
        with self.engine.begin() as connection:
            result = connection.execute(text(statement))
            return [tuple(row) for row in result] if result.returns_rows else []

    def end_lease(self) -> None:
        self.run("UPDATE pushup_outbox_producer SET lease_until = 0")


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database(tmp_path / "application.db")


@pytest.fixture
def server() -> SimulatedPushUp:
    return SimulatedPushUp()


@pytest.fixture
def start(database: Database, server: SimulatedPushUp, request: pytest.FixtureRequest) -> Callable[[], Relay]:
    def make() -> Relay:
        relay = Relay(database.connect, server.client())
        request.addfinalizer(relay.close)
        return relay

    return make


def until_idle(relay: Relay) -> None:
    """Step until nothing is left to do, or nothing can be done now."""
    assert any(relay.step() for _ in range(1000)), "it does not become idle"


def test_what_is_committed_is_published_in_order_and_deleted(
    database: Database, server: SimulatedPushUp, start: Callable[[], Relay]
) -> None:
    """And nothing that was rolled back. A publication has at most 100 messages."""
    with Session(database.engine) as session:
        add(session, "news", "rolled back")
    database.add(*range(250))
    until_idle(start())
    assert server.messages == list(range(250))
    assert server.sizes == [100, 100, 50]
    assert database.run("SELECT * FROM pushup_outbox") == []


def test_a_publication_is_limited_in_bytes(
    database: Database, server: SimulatedPushUp, start: Callable[[], Relay]
) -> None:
    """Below the limit of a request's body; a row that is larger goes alone."""
    database.add("x" * 100_000, "x" * 100_000, "y" * 100_000, "z" * 300_000, "end")
    until_idle(start())
    assert server.sizes == [2, 1, 1, 1]


def test_fields_arrive_as_they_were_added(
    database: Database, server: SimulatedPushUp, start: Callable[[], Relay]
) -> None:
    """Several channels, an event, any JSON, who should see it until when."""
    with Session(database.engine) as session, session.begin():
        add(session, ["a", "b"], {"text": "\u00fc\u0000", "n": [1.5, None]}, event="answer")
        add(session, "a", None, unread_after=1.5, unread_for=("ann", "b\u00f6b"))
    until_idle(start())
    [(_, _, messages, _)] = server.producers.values()
    assert messages == [
        {"channels": ["a", "b"], "data": {"text": "\u00fc\u0000", "n": [1.5, None]}, "event": "answer"},
        {"channels": ["a"], "data": None, "unread_after": 1.5, "for": ["ann", "b\u00f6b"]},
    ]


def test_what_the_server_would_refuse_is_refused_at_once(database: Database) -> None:
    """In the application's transaction, not later."""
    with Session(database.engine) as session:
        with pytest.raises(ValueError, match="JSON"):
            add(session, "news", float("nan"))
        with pytest.raises(ValueError, match="unread_for is empty"):
            add(session, "news", 1, unread_for=[])


def test_an_async_session_is_refused() -> None:
    """The transaction would be committed without the row. The error says what to write."""
    engine = create_async_engine("postgresql+psycopg://nowhere")
    for asynchronous in (AsyncSession(engine), async_scoped_session(async_sessionmaker(engine), int)):
        with pytest.raises(TypeError, match=r"await session\.run_sync\(add, \.\.\.\)"):
            add(asynchronous, "news", 1)  # type: ignore[arg-type]


class Killed(BaseException):
    """The relay's process is gone."""


@pytest.mark.parametrize("seed", range(40))
def test_every_row_is_published_once(
    seed: int, database: Database, server: SimulatedPushUp, start: Callable[[], Relay]
) -> None:
    """Whatever is lost or killed, and while a relay that believes to have the lease goes on."""
    rng = random.Random(seed)

    def fault(publish: Callable[[], Reply]) -> Reply:
        match rng.randrange(8):
            case 0:
                return rng.choice([HANGS, REFUSED, RESET, answer(503), answer(429), answer(401)])
            case 1:
                publish()
                return rng.choice([HANGS, RESET, answer(500)])
            case 2:
                raise Killed
            case 3:
                publish()
                raise Killed
        return publish()

    server.fault = fault
    relays = [start(), start()]
    added = 0
    for _ in range(60):
        match rng.randrange(4):
            case 0:
                new = range(added, added + rng.choice([1, 3, 120]))
                database.add(*new)
                added = new.stop
            case 1:
                database.end_lease()
            case _:
                index = rng.randrange(2)
                try:
                    relays[index].step()
                except Killed:
                    relays[index].close()
                    relays[index] = start()
    server.fault = lambda publish: publish()
    database.end_lease()
    last = start()
    until_idle(last)
    assert server.messages == list(range(added))
    assert database.run("SELECT * FROM pushup_outbox") == []
    assert len(server.producers) <= 1


def test_a_refused_row_is_marked_and_the_others_go_on(
    database: Database, server: SimulatedPushUp, start: Callable[[], Relay], caplog: pytest.LogCaptureFixture
) -> None:
    """Its number is given back, so no hole is left; set to NULL, it is tried again, in a later place."""
    database.add(0, 1, "large", 3)
    database.add("secret", channels="closed")
    database.add(5)
    for data in ("no JSON", "[" * 100_000 + "]" * 100_000):
        database.run(f"INSERT INTO pushup_outbox (channels, data) VALUES ('[\"news\"]', '{data}')")
    database.add(*range(8, 150))
    relay = start()
    until_idle(relay)
    assert server.messages == [0, 1, 3, 5, *range(8, 150)]
    assert [row[0] for row in database.run("SELECT id FROM pushup_outbox WHERE error IS NOT NULL")] == [3, 5, 7, 8]
    assert len(server.producers) == 1
    assert [record.levelno for record in caplog.records].count(logging.ERROR) == 4
    assert server.sizes[-1] > 1, "rows are published together again"
    database.run("UPDATE pushup_outbox SET error = NULL, data = '2' WHERE id = 3")
    until_idle(relay)
    assert server.messages[-1] == 2


def test_a_limit_below_what_rows_need(database: Database) -> None:
    """Rows that need more together are published alone, and one that needs more is refused. Others wait for room."""
    server = InProcess(unread_limit=4, channels_limit=3)
    recorder = Recorder(server.client())
    with Session(database.engine) as session, session.begin():
        for number in range(3):
            add(session, "a", number, unread_after=60, unread_for=["ann", "bob"])
        add(session, "a", "too many users", unread_after=60, unread_for=list("abcde"))
        add(session, list("abcd"), "too many channels")
        add(session, ["b", "c"], 3)
    with closing(Relay(database.connect, server.client(patience=0))) as relay:
        until_idle(relay)
        assert [message.data for message in recorder.published()] == [0, 1]
        assert database.run("SELECT id FROM pushup_outbox WHERE error IS NOT NULL") == []
        server.advance(65.0)
        until_idle(relay)
    assert [message.data for message in recorder.published()] == [0, 1, 2, 3]
    assert database.run("SELECT id, error FROM pushup_outbox") == [
        (4, "400 Bad Request: unread_limit is 4, and subjects times channels are 5 here"),
        (5, "400 Bad Request: channels_limit is 3, and these are 4 channels"),
    ]


def test_an_attempt_that_arrives_after_its_numbers_were_taken_back(
    database: Database, server: SimulatedPushUp, start: Callable[[], Relay]
) -> None:
    """Publishes nothing: the next publication has used the first of these numbers."""
    under_way: list[Callable[[], Reply]] = []

    def refuse_the_first(publish: Callable[[], Reply]) -> Reply:
        if under_way:
            return publish()
        under_way.append(publish)
        return answer(413, {"type": "urn:pushup:message-too-large", "field": "messages[1].data"})

    server.fault = refuse_the_first
    database.add("a", "b")
    relay = start()
    relay.step(), relay.step()
    under_way[0]()
    until_idle(relay)
    under_way[0]()
    assert server.messages == ["a", "b"]
    assert len(server.producers) == 1


@pytest.mark.parametrize(
    "change",
    [*[f"next_sequence = {number}" for number in (0, 1, 4, 9)], "epoch = epoch - 2, lease_until = 0"],
    ids=["duplicate", "overlap", "other messages", "hole", "epoch"],
)
def test_a_restored_database_loses_no_rows(
    change: str,
    database: Database,
    server: SimulatedPushUp,
    start: Callable[[], Relay],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It has other numbers than the server, which takes new rows for old ones; or an earlier epoch. With a new name
    they are known as new."""
    relay = start()
    for each in range(5):
        database.add(each)
        until_idle(relay)
    database.run(f"UPDATE pushup_outbox_producer SET {change}")
    database.add("new 1", "new 2")
    until_idle(relay)
    until_idle(relay)  # with the lease again
    assert server.messages == [0, 1, 2, 3, 4, "new 1", "new 2"]
    assert database.run("SELECT * FROM pushup_outbox") == []
    assert "restored or copied" in caplog.text


def test_a_server_that_has_lost_the_order_gets_the_rest(
    database: Database, server: SimulatedPushUp, start: Callable[[], Relay], caplog: pytest.LogCaptureFixture
) -> None:
    """With the same name; it is logged."""
    relay = start()
    for each in range(3):
        database.add(each)
        until_idle(relay)
    server.producers.clear()
    database.add("new")
    until_idle(relay)
    assert server.messages[-1] == "new"
    assert "does not know what" in caplog.text


@pytest.mark.parametrize(
    "trouble",
    [
        answer(401, {"type": "urn:pushup:unauthorized"}),
        answer(403, {"type": "urn:pushup:forbidden"}),
        answer(404),
        answer(503),
        REFUSED,
        answer(400, {"type": "urn:pushup:bad-request", "field": "producer"}),
        answer(405),
        answer(400),
    ],
    ids=["401", "key", "other path", "503", "refused connection", "old server", "other server", "port for TLS"],
)
def test_what_is_not_the_rows_fault_only_waits(
    trouble: Reply,
    database: Database,
    server: SimulatedPushUp,
    start: Callable[[], Relay],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is logged once each time that it begins, and no row is marked."""
    relay = start()
    database.add("a", "b")
    server.fault = lambda publish: trouble
    assert [relay.step() > 0 for _ in range(3)] == [True] * 3
    assert [record.levelno for record in caplog.records].count(logging.WARNING) == 1
    assert database.run("SELECT error FROM pushup_outbox") == [(None,), (None,)]
    server.fault = lambda publish: publish()
    until_idle(relay)
    assert server.messages == ["a", "b"]
    database.add("c")
    server.fault = lambda publish: trouble
    relay.step()
    assert [record.levelno for record in caplog.records].count(logging.WARNING) == 2


def test_one_relay_works_at_a_time(database: Database, server: SimulatedPushUp, start: Callable[[], Relay]) -> None:
    """The other takes over when the lease ends, or at once when it is given back."""
    one, other = start(), start()
    until_idle(one)
    database.add("a")
    until_idle(other)
    assert server.messages == []
    until_idle(one)
    one.close()
    database.add("b")
    until_idle(other)
    assert server.messages == ["a", "b"]


def test_a_clock_that_was_set_back_keeps_nobody_waiting(
    database: Database, server: SimulatedPushUp, start: Callable[[], Relay]
) -> None:
    """The lease of a relay that is gone would last until the clock is there again, in an hour."""
    until_idle(start())
    database.run("UPDATE pushup_outbox_producer SET lease_until = lease_until + 3600")
    database.add("a")
    until_idle(start())
    assert server.messages == ["a"]


def test_one_relay_works_at_a_time_in_a_restored_database(
    database: Database, server: SimulatedPushUp, start: Callable[[], Relay]
) -> None:
    """Its epoch went back, so that another takes the one that the first has."""
    one, other = start(), start()
    until_idle(one)
    database.run("UPDATE pushup_outbox_producer SET epoch = epoch - 1, lease_until = 0, holder = 'before'")
    until_idle(other)
    database.add("a")
    until_idle(one)
    assert server.messages == []
    until_idle(other)
    assert server.messages == ["a"]


def test_a_relay_that_was_overtaken_changes_nothing(
    database: Database, server: SimulatedPushUp, start: Callable[[], Relay]
) -> None:
    """It hangs while it publishes; meanwhile another takes over and goes on; then its publication arrives."""
    one, other = start(), start()
    database.add("a", "b")
    late: list[Callable[[], Reply]] = []

    def hang(publish: Callable[[], Reply]) -> Reply:
        server.fault = lambda publish: publish()
        database.end_lease()
        until_idle(other)
        database.add("c", "d")
        late.append(publish)
        return publish()

    server.fault = hang
    until_idle(one)
    assert late
    assert server.messages == ["a", "b"]
    until_idle(other)
    assert server.messages == ["a", "b", "c", "d"]
    assert len(server.producers) == 1


def test_only_what_was_published_is_deleted(database: Database) -> None:
    """Also late, when another relay has given the same numbers to other rows, under a new name."""
    with closing(database.connect()) as connection:
        rows = Rows(connection, "one")
        epoch = rows.take(0.0) or 0
        database.add("a", "b", "c")
        database.run("UPDATE pushup_outbox SET id = 9 WHERE id = 2")  # its transaction has not been committed yet
        published = rows.batch(epoch, 3.0, 2)
        database.run("UPDATE pushup_outbox SET id = 2 WHERE id = 9")
        rows.rename(epoch)
        assert [row.id for row in rows.batch(epoch, 3.0).rows] == [1, 2, 3]
        rows.delete(published)
        assert (2,) in database.run("SELECT id FROM pushup_outbox")


def test_an_idle_relay_keeps_its_lease(database: Database, start: Callable[[], Relay]) -> None:
    """It renews it in time, and only then writes."""
    relay = start()
    until_idle(relay)
    before = database.run("SELECT lease_until, epoch FROM pushup_outbox_producer")
    until_idle(relay)
    assert database.run("SELECT lease_until, epoch FROM pushup_outbox_producer") == before
    database.run("UPDATE pushup_outbox_producer SET lease_until = lease_until - 2")
    until_idle(relay)
    [(lease, epoch)] = database.run("SELECT lease_until, epoch FROM pushup_outbox_producer")
    assert (lease >= before[0][0], epoch) == (True, before[0][1])


def test_a_database_that_fails_is_opened_again(
    database: Database, server: SimulatedPushUp, start: Callable[[], Relay], caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged once; the work goes on where it was."""
    relay = start()
    until_idle(relay)
    database.add("a")
    database.run("ALTER TABLE pushup_outbox RENAME TO gone")
    assert [relay.step() > 0 for _ in range(3)] == [True] * 3
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1
    database.run("ALTER TABLE gone RENAME TO pushup_outbox")
    until_idle(relay)
    assert server.messages == ["a"]


def test_the_url_of_a_database(database: Database, tmp_path: Path) -> None:
    """As SQLAlchemy has it. What it says of PostgreSQL comes before what the relay wants."""
    (tmp_path / "application.db").rename(tmp_path / "an application.db")
    with closing(connector(f"sqlite+pysqlite:///{tmp_path}/an%20application.db")()) as connection:
        assert connection.execute("SELECT * FROM pushup_outbox").fetchall() == []
    for scheme in ("postgresql", "postgres", "postgresql+psycopg2"):
        made: Any = connector(f"{scheme}://ann@db/shop?connect_timeout=9")
        given = {name: made.keywords[name] for name in ("host", "dbname", "user", "connect_timeout", "keepalives_idle")}
        assert [*given.values()] == ["db", "shop", "ann", "9", 5]


def test_a_database_that_ends_the_transaction(
    database: Database, server: SimulatedPushUp, start: Callable[[], Relay], caplog: pytest.LogCaptureFixture
) -> None:
    """The log has its reason, and not that there is nothing to roll back any more."""
    relay = start()
    database.add("a")
    reason = "BEFORE UPDATE ON pushup_outbox BEGIN SELECT RAISE(ROLLBACK, 'the disk is full'); END"
    database.run(f"CREATE TRIGGER broken {reason}")
    until_idle(relay)
    assert "the disk is full" in caplog.text
    database.run("DROP TRIGGER broken")
    until_idle(relay)
    assert server.messages == ["a"]


def test_run_ends_after_stop(
    database: Database, server: SimulatedPushUp, start: Callable[[], Relay], caplog: pytest.LogCaptureFixture
) -> None:
    """Also while it publishes, which is no trouble; the rows stay for the next one."""
    relay = start()
    database.add("a")

    def stop(publish: Callable[[], Reply]) -> Reply:
        relay.stop()
        return HANGS

    server.fault = stop
    relay.run()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    server.fault = lambda publish: publish()
    until_idle(start())
    assert server.messages == ["a"]


def test_a_poke_wakes_it(
    database: Database, server: SimulatedPushUp, start: Callable[[], Relay], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row is published at once, and not at the next look. A poke before `run` waits counts as well."""
    monkeypatch.setattr(relay_module, "POLL_SECONDS", 20.0)
    relay = start()
    thread = threading.Thread(target=relay.run)
    thread.start()
    try:
        for number in range(3):
            database.add(number)
            relay.poke()
            end = time.monotonic() + 5.0
            while len(server.messages) <= number and time.monotonic() < end:
                time.sleep(0.01)
    finally:
        relay.stop()
        relay.poke()
        thread.join()
    assert server.messages == [0, 1, 2]


def test_stop_takes_no_lock(start: Callable[[], Relay]) -> None:
    """A signal handler that takes one which its own thread holds never returns (decision 33)."""
    relay = start()
    with patch("threading.Event.set") as setting:
        relay.stop()
    setting.assert_not_called()
