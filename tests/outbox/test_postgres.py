"""The outbox with a real PostgreSQL, Django, the command, a real PushUp; and kills at random."""

from __future__ import annotations

import random
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psycopg
import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.pool import NullPool

from pushup.client import Client, Message
from pushup.outbox import Relay
from pushup.outbox.database import LISTEN_SECONDS, POSTGRES_OPTIONS, connector, poke_on_notify
from pushup.outbox.rows import Rows
from pushup.outbox.sqlalchemy import add, metadata, outbox, producer
from tests.outbox.kills import run
from tests.outbox.postgres_server import Postgres, postgres
from tests.outbox.simulated_pushup import SimulatedPushUp
from tests.server.document_samples import sample
from tests.server.server_process import Server, clean_environment, running, wait_until

pytestmark = pytest.mark.processes

KILLS = 12
TRANSACTIONS = 15
WAIT_SECONDS = 20.0

PAGE = "docs/guide/outbox.md"
DJANGO_SAMPLE = sample(PAGE, "from django.db")
DJANGO_RELAY = sample(PAGE, "python manage.py")
SQLALCHEMY_SAMPLE = sample(PAGE, "from pushup.outbox.sqlalchemy")
RELAY = sample(PAGE, "pushup outbox")
THREAD = sample(PAGE, "import threading")
NOTIFY = sample(PAGE, "CREATE FUNCTION pushup_outbox_notify")
IN_ORDER = sample(PAGE, "CREATE FUNCTION pushup_outbox_order")
DATABASE_URL = "postgresql://shop@localhost/shop"
PUSHUP_URL = "http://127.0.0.1:8080"


@pytest.fixture(scope="module")
def shared() -> Iterator[Postgres]:
    with postgres() as database:
        yield database


@pytest.fixture
def engine(shared: Postgres) -> Iterator[Engine]:
    """With empty tables."""
    engine = create_engine(shared.sqlalchemy_url, poolclass=NullPool)
    metadata.create_all(engine)
    yield engine
    metadata.drop_all(engine)


@pytest.fixture
def pushup(tmp_path: Path) -> Iterator[Server]:
    with running(tmp_path / "pushup.log", ()) as server:
        yield server
        assert server.trouble() == []


def step_until_idle(relay: Relay) -> None:
    while not relay.step():
        pass


def test_rows_that_become_visible_late_are_published_then(shared: Postgres, engine: Engine) -> None:
    """An id does not say when its transaction commits: nothing waits for a lower one, and none is left out."""
    server = SimulatedPushUp()
    relay = Relay(connector(shared.url), server.client())
    with Session(engine) as slow, Session(engine) as quick:
        add(slow, "news", "slow")
        slow.flush()
        add(quick, "news", "quick")
        quick.commit()
        step_until_idle(relay)
        assert server.messages == ["quick"]
        slow.commit()
    step_until_idle(relay)
    assert server.messages == ["quick", "slow"]
    relay.close()


def test_two_relays_give_no_number_twice(shared: Postgres, engine: Engine) -> None:
    """Also when both believe to have the lease, in several threads."""
    server = SimulatedPushUp()
    relays = [Relay(connector(shared.url), server.client()) for _ in range(3)]
    threads = [threading.Thread(target=relay.run) for relay in relays]
    for thread in threads:
        thread.start()
    for number in range(60):
        with Session(engine) as session, session.begin():
            add(session, "news", number)
            if number % 5 == 0:
                session.execute(producer.update().values(lease_until=0))
        relays[number % 3].poke()
    deadline = threading.Event()
    for _ in range(300):
        with Session(engine) as session:
            if session.query(outbox).count() == 0:
                break
        deadline.wait(0.1)
    for relay in relays:
        relay.stop()
    for thread in threads:
        thread.join()
    assert server.messages == list(range(60))


def test_a_relay_whose_machine_is_gone(shared: Postgres, engine: Engine) -> None:
    """It holds no lock for long, also if it was in a transaction: PostgreSQL hears nothing of its end."""
    taken: list[int | None] = []

    class SilentCursor(psycopg.Cursor[Any]):
        def execute(self, query: Any, *given: Any, **more: Any) -> Any:
            if "SET next_sequence" in query:
                taken.append(others.take(3.0))
            return super().execute(query, *given, **more)

    other = psycopg.connect(shared.url, options="-c lock_timeout=20s")
    with closing(psycopg.connect(shared.url, cursor_factory=SilentCursor)) as gone, closing(other):
        rows, others = Rows(gone, "gone"), Rows(other, "other")
        epoch = rows.take(0.0) or 0
        with suppress(psycopg.Error):
            rows.batch(epoch, 0.0)
    assert taken == [epoch + 1]


def test_a_database_whose_machine_is_gone(shared: Postgres) -> None:
    """libpq gives it up by these options: by themselves, relays would wait for TCP, and none could take over."""
    with closing(connector(shared.url)()) as connection:
        given = connection.info.get_parameters()
    assert given.items() >= {name: str(value) for name, value in POSTGRES_OPTIONS.items()}.items()
    mark = "&" if "?" in shared.url else "?"
    with closing(connector(f"{shared.url}{mark}keepalives_idle=60")()) as connection:
        assert connection.info.get_parameters()["keepalives_idle"] == "60"
    with pytest.raises(ValueError, match="not a URL of PostgreSQL"):
        connector("postgresql://host/name?nothing=1")


@pytest.fixture
def function(engine: Engine) -> Iterator[Callable[[str], None]]:
    """Runs a sample that creates a function and a trigger."""

    def run(statements: str) -> None:
        name = statements.split("(")[0].split()[-1]
        with engine.begin() as connection:
            connection.exec_driver_sql(statements)
        names.append(name)

    names: list[str] = []
    yield run
    with engine.begin() as connection:
        for name in names:
            connection.exec_driver_sql(f"DROP FUNCTION {name} CASCADE")


def test_the_order_of_commits(shared: Postgres, engine: Engine, function: Callable[[str], None]) -> None:
    """Ids are given before a transaction waits for a lock of the application: the commits have another order.

    Each thread has several rows and locks in one transaction; none is aborted because of a deadlock.
    """
    function(IN_ORDER)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE counter AS SELECT id, 0 AS value FROM generate_series(0, 2) AS id")
        connection.exec_driver_sql("CREATE TABLE place (name text, id int, value int)")
    server = SimulatedPushUp()
    relay = Relay(connector(shared.url), server.client())
    relaying = threading.Thread(target=relay.run)
    threads = [threading.Thread(target=_commit_in_another_order, args=(engine, number)) for number in range(6)]
    try:
        for thread in [relaying, *threads]:
            thread.start()
        for thread in threads:
            thread.join()
        wait_until(lambda: len(server.messages) == 6 * TRANSACTIONS * 2, "all rows to be published")
        with engine.connect() as connection:
            places = connection.exec_driver_sql("SELECT name, id, value FROM place").all()
    finally:
        relay.stop()
        relaying.join()
        with engine.begin() as connection:
            connection.exec_driver_sql("DROP TABLE counter, place")
    assert [f"{name}, again" for name in server.messages[::2]] == server.messages[1::2]
    at = {name: number for number, name in enumerate(server.messages)}
    for counter in range(3):
        committed = [name for name, _, _ in sorted((p for p in places if p[1] == counter), key=lambda place: place[2])]
        assert committed == sorted(committed, key=at.__getitem__)


def _commit_in_another_order(engine: Engine, number: int) -> None:
    rng = random.Random(number)
    for turn in range(TRANSACTIONS):
        name = f"{number}-{turn}"
        with Session(engine) as session, session.begin():
            add(session, rng.choice(["a", "b"]), name)
            session.flush()
            time.sleep(rng.uniform(0.0, 0.02))
            for counter in sorted(rng.sample(range(3), 2)):
                bump = text("UPDATE counter SET value = value + 1 WHERE id = :id RETURNING value")
                value = session.execute(bump, {"id": counter}).scalar_one()
                place = text("INSERT INTO place VALUES (:name, :id, :value)")
                session.execute(place, {"name": name, "id": counter, "value": value})
            add(session, rng.choice(["a", "b"]), f"{name}, again")


def test_a_relay_that_listens(shared: Postgres, engine: Engine, function: Callable[[str], None]) -> None:
    """It publishes when a transaction commits, also after PostgreSQL has ended its connection."""
    function(NOTIFY)
    server = SimulatedPushUp()
    relay = Relay(connector(shared.url), server.client())
    woken = threading.Event()
    with patch.object(relay, "poke", woken.set):
        listening = threading.Thread(target=poke_on_notify, args=(connector(shared.url), relay))
        listening.start()
        try:
            for number in range(2):
                assert woken.wait(WAIT_SECONDS), "it listens"
                until = time.monotonic() + WAIT_SECONDS
                delays: list[float] = []
                while len(delays) < 3 and time.monotonic() < until:
                    woken.clear()
                    began = time.monotonic()
                    with Session(engine) as session, session.begin():
                        add(session, "news", number)
                    if woken.wait(LISTEN_SECONDS / 2):
                        delays.append(time.monotonic() - began)
                assert len(delays) == 3, "notifications come sooner than it looks by itself"
                with engine.begin() as connection:
                    others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%%'"
                    assert connection.exec_driver_sql(others).all() == [(True,)]
                woken.clear()
        finally:
            relay.stop()
            listening.join()
    relay.close()


@pytest.mark.parametrize("command", ["pushup", "module"])
def test_the_relay_as_a_process(command: str, shared: Postgres, engine: Engine, pushup: Server) -> None:
    """It publishes to a real PushUp, polls, and ends within seconds after SIGTERM."""
    line = {
        "pushup": [sys.executable, "-m", *shlex.split(RELAY.replace(DATABASE_URL, shared.url)), "--listen"],
        "module": [sys.executable, "-m", "pushup.outbox", shared.url, pushup.url],
    }[command]
    line = [each.replace(PUSHUP_URL, pushup.url) for each in line]
    with subprocess.Popen(line, env=clean_environment(), stderr=subprocess.PIPE) as process:
        try:
            with Session(engine) as session, session.begin():
                for number in range(3):
                    add(session, "news", number, event="answer")
            assert followed(pushup, 3) == [0, 1, 2]
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
        finally:
            process.kill()
    with Client(pushup.url) as client:
        relay = Relay(connector(shared.url), client)
        step_until_idle(relay)  # it may have been stopped before it got the answer; then this one gets it
        relay.close()
        assert [message.data for message in client.poll("news", timeout=0).messages] == [0, 1, 2]
    with Session(engine) as session:
        assert session.query(outbox).count() == 0


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("mysql://host/name", "is not the URL of a database with an outbox"),
        ("sqlite://", "sqlite:///PATH"),
        ("sqlite:///app.db?timeout=20", "remove ?timeout=20 from the URL"),
    ],
)
def test_another_database_is_refused(url: str, says: str) -> None:
    """With what can be used instead."""
    for line in (["pushup", "outbox", url], ["pushup.outbox", url, "http://127.0.0.1:1"]):
        result = subprocess.run([sys.executable, "-m", *line], capture_output=True, text=True, env=clean_environment())
        assert result.returncode == 1
        assert says in result.stderr


def test_another_url_is_refused() -> None:
    """PushUp's, as that of the database."""
    line = [sys.executable, "-m", "pushup.outbox", "sqlite:///none", "127.0.0.1:8080"]
    result = subprocess.run(line, capture_output=True, text=True, env=clean_environment(), check=False)
    assert result.stderr.splitlines()[1:] == [
        "'127.0.0.1:8080' is not a valid URL; write one such as http://127.0.0.1:8080 or unix:/run/pushup.sock"
    ]


def test_a_relay_in_a_thread(shared: Postgres, engine: Engine, pushup: Server) -> None:
    """The samples for SQLAlchemy, and of a relay within the application."""

    class Base(DeclarativeBase):
        pass

    class Order(Base):
        __tablename__ = "orders"
        id: Mapped[int] = mapped_column(primary_key=True)

    Base.metadata.create_all(engine)
    try:
        exec(SQLALCHEMY_SAMPLE, {"Session": Session, "engine": engine, "order": Order(id=7)})
        names: dict[str, Any] = {}
        program = THREAD.replace(DATABASE_URL, shared.url).replace(PUSHUP_URL, pushup.url)
        start, stop, _ = program.partition("relay.stop()")
        before = threading.active_count()
        exec(start, names)
        try:
            assert followed(pushup, 1, "order:7") == [{"state": "shipped"}]
        finally:
            exec(stop, names)
            wait_until(lambda: threading.active_count() == before, "the end of the thread")
    finally:
        Base.metadata.drop_all(engine)


DJANGO = """
import django, sys
from django.conf import settings
settings.configure(INSTALLED_APPS=["pushup.outbox.django"], DATABASES={"default": DATABASE}, USE_TZ=True)
django.setup()
from django.core.management import call_command, execute_from_command_line

class Order:
    pk = 7
    def save(self): pass

order = Order()
call_command("migrate", verbosity=0)
call_command("makemigrations", "--check", "--dry-run", verbosity=0)
SAMPLE
try:
    with transaction.atomic():
        publish("order:7", "rolled back")
        raise KeyError
except KeyError:
    publish(["order:7", "other"], 2, event="answer")
with transaction.atomic():
    from pushup.outbox.django.models import OutboxMessage

    publish("order:7", 3, unread_after=60, unread_for=["ann"])
    row = OutboxMessage.objects.latest("id")
    assert (row.unread_after, row.unread_for) == (60, '["ann"]')
    row.delete()
execute_from_command_line(sys.argv)
"""


@pytest.mark.parametrize("kind", ["postgresql", "sqlite3"])
def test_django(kind: str, shared: Postgres, pushup: Server, tmp_path: Path) -> None:
    """The migration, `publish` in a transaction, and the command, which runs until SIGTERM."""
    database: dict[str, Any] = {"ENGINE": f"django.db.backends.{kind}", "NAME": str(tmp_path / "application.db")}
    if kind == "postgresql":
        database |= {"NAME": "postgres", "USER": "postgres", "HOST": shared.url.partition("host=")[2]}
    program = DJANGO.replace("DATABASE}", f"{database}}}").replace("SAMPLE", DJANGO_SAMPLE)
    arguments = DJANGO_RELAY.replace(PUSHUP_URL, pushup.url).split()[2:]
    with subprocess.Popen([sys.executable, "-c", program, *arguments], env=clean_environment()) as process:
        try:
            assert followed(pushup, 2, "order:7") == [{"state": "shipped"}, 2]
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
        finally:
            process.kill()
    if kind == "postgresql":
        metadata.drop_all(create_engine(shared.sqlalchemy_url, poolclass=NullPool))


@pytest.mark.parametrize("nodes", [1, 2])
def test_every_committed_message_is_seen_once_whatever_is_killed(
    nodes: int, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """With two nodes, Redis is killed as well; with one, a page follows, too.

    `python -m tests.outbox.kills 300` does it for longer.
    """
    result = run(KILLS, tmp_path, seed=3, nodes=nodes, with_page=nodes == 1)
    record_property("messages", len(result.committed))
    assert result.faults() == []
    assert (result.gaps, result.renamed) == (0, 0)
    assert len(result.committed) > KILLS


def followed(server: Server, count: int, channel: str = "news") -> list[Any]:
    """The data of the first messages on a channel."""
    client = Client(server.url)
    found: list[Any] = []
    for item in client.follow(channel):
        if isinstance(item, Message):
            found.append(item.data)
        if len(found) == count:
            client.stop()
    return found
