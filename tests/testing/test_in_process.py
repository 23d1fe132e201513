"""The server in the process of a test: no sockets, no processes, and no real time."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from datetime import date

import pytest

from pushup.client import Answer, AsyncClient, Client, ClientError, Closed, Gap, Message
from pushup.client.driver import run
from pushup.settings.settings import SettingsError
from pushup.testing import InProcess, Recorder
from pushup.testing.in_process import URL
from tests.server.token_issuer import SECRET, SETTINGS, TokenIssuer


@pytest.fixture
def server() -> InProcess:
    return InProcess()


@pytest.fixture
def client(server: InProcess) -> Client:
    return Client(URL, driver=server.driver)


def test_a_blocking_wait_ends_at_once(server: InProcess, client: Client) -> None:
    """Time passes up to its end: the poll is held, and answered at its deadline."""
    before = server.now()
    assert client.poll("a", timeout=30).messages == []
    assert 25 <= server.now() - before <= 30


def test_time_passes(server: InProcess, client: Client) -> None:
    """Messages expire, and channels."""
    cursor = client.cursor()
    client.create("short", ttl=10)
    client.publish("a", 1)
    server.advance(9)
    assert [channel.name for channel in client.channels()] == ["short", "a"]
    server.advance(600)
    assert [gap.reason for gap in client.poll("a", cursor, timeout=0).gaps] == ["expired"]
    with pytest.raises(ClientError) as refused:
        client.channel("short")
    assert refused.value.status == 404


def test_the_record_lacks_ephemeral_messages(client: Client) -> None:
    """Also while the server still keeps them: a test's result must not depend on how long it takes."""
    recorder = Recorder(client)
    client.publish("a", "typing", ephemeral=True)
    client.publish("a", "hello")
    assert [message.data for message in recorder.published()] == ["hello"]
    with pytest.raises(AssertionError, match='"typing" on a was not published, but'):
        recorder.assert_published("a", "typing")


def test_who_has_not_read_a_message(client: Client, server: InProcess) -> None:
    """The test sees the calls, without a `webhook_url`."""
    id_ = client.publish("a", "lunch?", unread_after=60, unread_for=["ann"]).id
    server.advance(55)
    assert server.webhooks == []
    server.advance(10)
    (call,) = server.webhooks
    assert (call["type"], call["data"]["id"], call["data"]["subjects"]) == ("message.unread", id_, ["ann"])
    assert call["data"]["data"] == "lunch?"
    server.advance(3600)
    assert len(server.webhooks) == 1


def test_who_has_read_a_message() -> None:
    """By polling again, with a token of theirs."""
    server = InProcess(publish_keys=["app secret-secret-secret"], **{**SETTINGS, "token_secrets": [SECRET]})
    published = server.client("secret-secret-secret").publish("a", 1, unread_after=60, unread_for=["ann", "bob"])
    ann = TokenIssuer(600, "ann", poll=["*"])
    server.client(token=ann.token).poll("a", published.id, timeout=0)
    server.advance(65)
    assert [call["data"]["subjects"] for call in server.webhooks] == [["bob"]]


def test_following(client: Client) -> None:
    """A stream, with a gap, a closing and messages."""
    cursor = client.cursor()
    client.publish("a", 1)
    client.close_channel("a")
    items = client.follow("a", cursor)
    kinds = {type(next(items)) for _ in range(2)}
    assert kinds == {Gap, Closed}
    client.publish("a", 2)
    item = next(items)
    assert isinstance(item, Message)
    assert item.data == 2


def test_in_asyncio_tasks_wait_for_each_other(server: InProcess) -> None:
    """A held poll is answered by what another task publishes."""

    async def main() -> Answer:
        async with AsyncClient(URL, driver=server.asyncio_driver) as client:
            await client.create("a")
            poll = asyncio.create_task(client.poll("a", await client.cursor(), timeout=60))
            while not (await client.channel("a")).subscribers:
                await asyncio.sleep(0)
            await client.publish("a", "hello")
            return await poll

    assert [message.data for message in asyncio.run(main()).messages] == ["hello"]


def test_in_asyncio_the_test_lets_time_pass(server: InProcess) -> None:
    async def main() -> Answer:
        async with server.async_client() as client:
            poll = asyncio.create_task(client.poll("a", timeout=3600))
            while not poll.done():
                await asyncio.sleep(0)
                server.advance(10)
            return await poll

    assert asyncio.run(main()).messages == []


def test_in_asyncio_time_passes_as_outside(server: InProcess) -> None:
    """So nothing hangs that would not with a real server."""

    async def main() -> None:
        await server.asyncio_driver.sleep(0.01)

    before = server.now()
    asyncio.run(main())
    assert server.now() >= before + 0.01


def test_in_asyncio_a_wait_takes_its_time_beside_others(server: InProcess) -> None:
    """However often others publish meanwhile, and if another wait began earlier."""

    async def main() -> float:
        client = server.async_client()
        cursor = await client.cursor()

        async def publish() -> None:
            while True:
                await client.publish("a", 1)
                await asyncio.sleep(0.02)

        publishing = asyncio.create_task(publish())
        earlier = asyncio.create_task(client.poll("b", cursor, timeout=0.4))
        await asyncio.sleep(0.3)
        began = time.monotonic()
        await asyncio.wait_for(client.poll("c", cursor, timeout=0.4), 10.0)
        assert earlier.done()
        publishing.cancel()
        return time.monotonic() - began

    assert 0.3 <= asyncio.run(main()) < 2.0


def test_several_threads(server: InProcess, client: Client) -> None:
    def publish(name: str) -> None:
        for number in range(50):
            client.publish(name, number)

    recorder = Recorder(client)
    threads = [threading.Thread(target=publish, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in "abc":
        assert [message.data for message in recorder.published(name)] == list(range(50))


def test_an_answer(server: InProcess, client: Client) -> None:
    """What waits in the background for somebody who stops it lets no time pass, in which the pieces would expire. It
    ends with the answer."""
    before = threading.active_count()
    with client.answer("a") as answer:
        for word in ("Forty", "-", "two"):
            answer.write(word)
    assert "".join(client.follow_answer("a")) == "Forty-two"
    with client.answer("b") as answer:
        client.stop_answer("b")
        for _ in range(10_000):
            answer.write("word ")
            time.sleep(0.001)
    assert client.read_answer("b").end == "stopped"
    assert server.now() < 10.0
    until = time.monotonic() + 60.0
    while threading.active_count() > before and time.monotonic() < until:
        time.sleep(0.01)
    assert threading.active_count() <= before


def test_what_comes_before_a_wait_begins_ends_it(server: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """As another thread may publish between the look at a connection and the wait for more."""
    wake_later, is_polling = server.wake_later, False

    def publish_before(wake: Callable[[], None]) -> None:
        nonlocal is_polling
        if is_polling:
            is_polling = False
            server.client().publish("a", "hello")
        wake_later(wake)

    async def main() -> Answer:
        nonlocal is_polling
        client = server.async_client()
        cursor = await client.cursor()
        is_polling = True
        return await client.poll("a", cursor, timeout=60)

    monkeypatch.setattr(server, "wake_later", publish_before)
    assert [message.data for message in asyncio.run(main()).messages] == ["hello"]
    assert server.now() < 0.1


def test_settings() -> None:
    """They are those of a real server, by their names, and checked like them."""
    with_key = InProcess(publish_keys=["app secret-secret-secret"])
    with pytest.raises(ClientError) as refused:
        with_key.client().publish("a", 1)
    assert refused.value.status == 401
    assert with_key.client("secret-secret-secret").publish("a", 1).id
    with pytest.raises(SettingsError, match="retention_second"):
        InProcess(retention_second=1)


def test_a_stopped_client_waits_no_more(server: InProcess, client: Client) -> None:
    client.stop()
    with pytest.raises(ClientError, match="stopped"):
        run(server.driver.sleep(1))
    with pytest.raises(ClientError, match="stopped"):
        client.poll("a")


def test_a_stopped_client_is_the_only_one(server: InProcess) -> None:
    server.client().stop()
    assert server.client().poll("a", timeout=1.0).cursor
    server.async_client().stop()
    assert asyncio.run(server.async_client().poll("a", timeout=0.01)).cursor


def test_what_was_published(client: Client) -> None:
    """Since the recorder began, in order, a message on two channels once; of all channels, or of some."""
    client.publish("a", "before")
    recorder = Recorder(client)
    client.publish(["a", "b"], 1)
    client.publish("b", 2)
    client.publish("c", 3)
    assert [message.data for message in recorder.published()] == [1, 2, 3]
    assert [message.data for message in recorder.published("a", "c")] == [1, 3]
    assert recorder.assert_published(["b", "a"], 1).channels == ["a", "b"]


def test_what_was_published_is_compared_as_json(client: Client) -> None:
    """A test gives the data that the application gives: tuples, and numbers as keys."""
    recorder = Recorder(client)
    data = {7: ("shipped", None)}
    client.publish("a", data)
    assert recorder.assert_published("a", data).data == {"7": ["shipped", None]}


def test_what_was_not_published(client: Client) -> None:
    """The error says what was."""
    recorder = Recorder(client)
    with pytest.raises(AssertionError, match=r'^"shipped" on a was not published, nor anything else$'):
        recorder.assert_published("a", "shipped")
    client.publish(["b", "a"], "shipped")
    with pytest.raises(AssertionError, match=r'^"shipped" on a was not published, but\n    "shipped" on a, b$'):
        recorder.assert_published("a", "shipped")
    with pytest.raises(AssertionError, match=r"datetime.date\(2026, 11, 27\).* was not published"):
        recorder.assert_published("a", {"shipped": date(2026, 11, 27)})  # which is not JSON


def test_the_record_lacks_what_was_closed_or_deleted(client: Client) -> None:
    """Also if the channel has been opened again."""
    recorder = Recorder(client)
    client.publish("game", "of the first game")
    client.close_channel("game")
    mistake = client.publish("game", "a mistake")
    client.publish("game", "of the second")
    client.call("DELETE", f"/v1/messages/{mistake.id}")
    assert [message.data for message in recorder.published()] == ["of the second"]


def test_a_recorder_sees_more_channels_than_a_poll_may_have(client: Client) -> None:
    """Where the limit is the default one."""
    recorder = Recorder(client)
    for number in range(101):
        client.publish(f"order:{number}", number)
    assert [message.data for message in recorder.published()] == [*range(101)]


def test_a_record_with_holes_is_refused() -> None:
    client = InProcess(retention_messages=1).client()
    recorder = Recorder(client)
    client.publish("a", 1)
    client.publish("a", 2)
    with pytest.raises(AssertionError, match=r"dropped messages: .*evicted"):
        recorder.published()
