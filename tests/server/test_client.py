"""Both clients against real servers and sockets: every call ends, idle connections, stops, tokens, nodes that die.

What they do when a server fails in other ways is tested without a network, in tests/client.
"""

from __future__ import annotations

import asyncio
import gc
import queue
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Literal

import pytest

from pushup.client import AsyncClient, Client, ClientError, Item, Message
from pushup.client.values import NotSent
from tests.client.both_clients import KINDS, MakeClient, making
from tests.server.certificates import write_certificate
from tests.server.conftest import Serve
from tests.server.document_samples import sample
from tests.server.hung_server import HANGS, hung_server
from tests.server.raw_client import WAIT_SECONDS
from tests.server.redis_server import RedisServer, free_port
from tests.server.server_process import Server, clean_environment, running, wait_until
from tests.server.token_issuer import SETTINGS, TokenIssuer

TRANSPORTS: tuple[Literal["stream", "poll"], ...] = ("stream", "poll")


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest) -> Iterator[MakeClient]:
    """Each test runs with both clients."""
    with making(request.param) as make_client:
        yield make_client


def data_of(item: Item) -> Any:
    assert isinstance(item, Message)
    return item.data


def test_every_method(serve: Serve, make: MakeClient) -> None:
    """Against a real server; the answers have what it says."""
    with serve() as server:
        client = make(server.url)
        begin = client.cursor()
        first = client.publish("a", {"n": 1}, event="x")
        second, third = client.publish_many(
            [{"channels": ["a", "b"], "data": 2}, {"channels": ["b"], "data": 3, "ephemeral": True}]
        )
        assert (second.cursor, third.cursor) == (third.id, third.id)
        assert client.publish("a", {"n": 1}, idempotency_key="k") == client.publish("a", {"n": 1}, idempotency_key="k")
        assert client.publish("a", 5, ack="stable").ack == "stable"
        answer = client.poll(["a", "b"], begin, limit=3)
        assert [(item.data, item.event, item.ephemeral) for item in answer.messages] == [
            ({"n": 1}, "x", False), (2, None, False), (3, None, True),
        ]  # fmt: skip
        assert answer.messages[0].id == first.id
        assert answer.more
        for transport in TRANSPORTS:
            items = client.follow(["a", transport], client.cursor(), transport=transport)
            client.publish(transport, 6)
            assert data_of(next(items)) == 6
            client.close_channel(transport)
            assert type(next(items)).__name__ == "Closed"
        created = client.create("c/d", 100.0)
        assert client.renew("c/d", 1000.0).expires > created.expires
        assert client.channel(created.id).ttl == 1000.0
        assert "c/d" in [channel.name for channel in client.channels()]
        with pytest.raises(ClientError) as caught:
            client.create("c/d")
        assert (caught.value.status, caught.value.type) == (409, "urn:pushup:channel-exists")
        client.close()


def test_a_body_that_is_refused_before_it_is_read(serve: Serve, make: MakeClient) -> None:
    """The client reads why, although the server closes the connection."""
    with serve() as server, pytest.raises(ClientError, match="413"):
        make(server.url).publish("a", "x" * 2_000_000)


def test_text_in_any_script(serve: Serve, make: MakeClient) -> None:
    """It is as long as for other clients, of which none escapes it. Half a character is refused by the server."""
    text = "ж\u2028" * 13_000  # 65,000 bytes of UTF-8, and 12 for each pair if they are escaped
    with serve() as server:
        client = make(server.url)
        client.publish("a", text)
        assert client.poll("a").messages[0].data == text
        error = error_of(lambda: client.publish("a", "\ud83d"))
        assert error is not None
        assert (error.status, error.type) == (400, "urn:pushup:bad-request")


def test_a_server_that_starts_later(tmp_path: Path, make: MakeClient) -> None:
    """The message is there once when the server is."""
    port = free_port()
    client = make(f"http://127.0.0.1:{port}")
    published: list[Any] = []
    thread = threading.Thread(target=lambda: published.append(client.publish(["a"], 1, patience=60.0)))
    thread.start()
    with running(tmp_path / "log", ("--listen", f"127.0.0.1:{port}")) as server:
        thread.join()
        with server.caller() as caller:
            assert [message["data"] for message in caller.poll("a")["messages"]] == [1]
        client.close()
    assert published[0].id.endswith("-1")


CALLS: dict[str, Callable[[Client], object]] = {
    "publish": lambda client: client.publish(["a"], 1),
    "publish much": lambda client: client.publish(["a"], "x" * 8_000_000),
    "poll": lambda client: client.poll(["a"], timeout=0.2),
    "create": lambda client: client.create("a"),
    "cursor": lambda client: client.cursor(),
    "publish with patience": lambda client: client.publish(["a"], 1, patience=0.5),
}


@pytest.fixture(params=HANGS)
def hung_url(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server that hangs, in each of the ways."""

    def use(look_up: Callable[..., object]) -> None:
        monkeypatch.setattr(socket, "getaddrinfo", look_up)

    with hung_server(request.param, use) as url:
        yield url


@pytest.mark.parametrize("name", CALLS)
def test_every_call_ends(hung_url: str, make: MakeClient, name: str) -> None:
    """However the server hangs, and although a timeout of the socket would begin anew with each byte."""
    client = make(hung_url, timeout=0.5)
    assert "in time" in str(in_thread(lambda: error_of(lambda: CALLS[name](client))))


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_follower_is_stopped(hung_url: str, make: MakeClient, transport: Literal["stream", "poll"]) -> None:
    """By another thread, however the server hangs: it ends without an error and without a retry."""
    troubles: list[ClientError] = []
    client = make(hung_url)
    ended: queue.SimpleQueue[list[Any]] = queue.SimpleQueue()
    items = client.follow("a", transport=transport, on_trouble=lambda error, pause: troubles.append(error))
    thread = threading.Thread(target=lambda: ended.put(list(items)), daemon=True)
    thread.start()
    with pytest.raises(queue.Empty):
        ended.get(timeout=0.2)
    client.stop()
    assert ended.get(timeout=WAIT_SECONDS) == []
    thread.join()
    assert troubles == []
    with pytest.raises(ClientError, match="stopped"):
        client.cursor()


WORKER = """
import asyncio, signal, sys
from pushup.client import AsyncClient, Client

kind, url, transport = sys.argv[1:]
client = (Client if kind == "blocking" else AsyncClient)(url)
signal.signal(signal.SIGTERM, lambda number, frame: client.stop())

async def follow():
    async for item in client.follow("a", transport=transport):
        print(item.data, flush=True)

if kind == "blocking":
    for item in client.follow("a", transport=transport):
        print(item.data, flush=True)
else:
    asyncio.run(follow())
print("ended")
"""


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_signal_handler_stops_a_worker(serve: Serve, kind: str, transport: str) -> None:
    """In the midst of a wait."""
    with serve() as server, server.caller() as caller:
        caller.publish(["a"], 7)
        command = [sys.executable, "-W", "error", "-X", "dev", "-c", WORKER, kind, server.url, transport]
        with subprocess.Popen(
            command, env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as worker:
            assert worker.stdout is not None
            assert worker.stdout.readline() == b"7\n"
            server.wait_for_held(1)
            worker.send_signal(signal.SIGTERM)
            assert worker.communicate(timeout=WAIT_SECONDS) == (b"ended\n", b"")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_task_that_is_cancelled(serve: Serve, transport: Literal["stream", "poll"]) -> None:
    """Ends at once, and closes its connection; others that use the client go on."""

    async def follow(client: AsyncClient, channel: str) -> list[Any]:
        return [data_of(item) async for item in _until_done(client.follow(channel, transport=transport))]

    async def both(server: Server) -> list[Any]:
        async with AsyncClient(server.url) as client:
            one, other = asyncio.create_task(follow(client, "a")), asyncio.create_task(follow(client, "b"))
            await asyncio.to_thread(server.wait_for_held, 2)
            one.cancel()
            with pytest.raises(asyncio.CancelledError):
                await one
            await asyncio.to_thread(server.wait_for_held, 1)
            await client.publish("b", "done")
            return await other

    with serve() as server:
        assert asyncio.run(both(server), debug=True) == ["done"]
        wait_until(lambda: server.metric("connections") == 1, "the connections to be closed")


async def _until_done(items: Any) -> Any:
    async for item in items:
        yield item
        if data_of(item) == "done":
            await items.aclose()
            return


@pytest.mark.filterwarnings("ignore:unclosed transport:ResourceWarning")
def test_one_event_loop_after_the_other(serve: Serve) -> None:
    """As in tests of an application: connections of the one before are not used."""
    with serve() as server, server.caller() as caller:
        client = AsyncClient(server.url, patience=0.0)
        for number in range(3):
            asyncio.run(client.publish("a", number))
        assert [message["data"] for message in caller.poll("a")["messages"]] == [0, 1, 2]
        client.close()
        del client
        gc.collect()


def test_many_tasks_and_many_threads_use_one_client(serve: Serve) -> None:
    """Each gets its own answers."""

    async def tasks(url: str) -> None:
        async with AsyncClient(url) as client:
            published = await asyncio.gather(*[client.publish(f"c{n}", n) for n in range(50)])
            polled = await asyncio.gather(*[client.poll(f"c{n}") for n in range(50)])
        assert [answer.messages[0].id for answer in polled] == [each.id for each in published]

    with serve() as server:
        asyncio.run(tasks(server.url))
        found: dict[int, Any] = {}
        with Client(server.url) as client:

            def work(number: int) -> None:
                for _ in range(20):
                    client.publish(f"t{number}", number)
                found[number] = [message.data for message in client.poll(f"t{number}").messages]

            threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert found == {number: [number] * 20 for number in range(8)}


@pytest.mark.parametrize("call", ["publish", "create"])
def test_a_connection_that_was_idle(serve: Serve, make: MakeClient, call: str) -> None:
    """The server has closed it: the next call succeeds all the same, and once."""
    with serve(idle_timeout_seconds="1s") as server, server.caller() as caller:
        client = make(server.url, patience=0.0)
        client.publish("a", 1)
        wait_until(lambda: server.metric("connections") == 1, "the idle connection to be closed")
        if call == "create":
            assert client.create("b").name == "b"
        else:
            client.publish("a", 2)
            assert [message["data"] for message in caller.poll("a")["messages"]] == [1, 2]
        client.close()


FORK = """
import asyncio, gc, os, sys
from pushup.client import AsyncClient, Client

kind, url, uses = sys.argv[1:]
client, follower = [(Client if kind == "blocking" else AsyncClient)(url) for _ in range(2)]
before = loop = asyncio.new_event_loop()

def result(value):
    return value if kind == "blocking" else loop.run_until_complete(value)

def next_item():
    return (next(items) if kind == "blocking" else result(anext(items))).data

def answers():
    return all(result(client.channel(name)).name == name for _ in range(100))

result(client.publish(["parent", "child"], 0))
items = follower.follow("parent")
next_item()
child = os.fork()
name = "parent" if child else "child"
if not child and not uses:
    del client
    gc.collect()
    os._exit(0)
if not child:
    loop = asyncio.new_event_loop()
    os._exit(not (answers() and next_item() == 1))
same = answers()
result(client.publish("parent", 1))
failed = os.waitpid(child, 0)[1] != 0
os._exit(failed or not (same and answers() and next_item() == 1))
"""


@pytest.mark.parametrize("uses", ["uses", ""])
@pytest.mark.parametrize("kind", KINDS)
def test_a_client_in_a_process_that_forks(serve: Serve, kind: str, uses: str) -> None:
    """As a web server that loads the application first: parent and child do not get each other's answers and messages,
    and the parent goes on with its connections and its event loop; also if the child does not use the client."""
    with serve() as server:
        command = [sys.executable, "-c", FORK, kind, server.url, uses]
        ended = subprocess.run(command, env=clean_environment(), capture_output=True, timeout=WAIT_SECONDS, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_a_node_that_dies(make: MakeClient, tmp_path: Path, stack: ExitStack) -> None:
    """In the midst of publishing and following: the other one is used, and nothing is lost."""
    redis = stack.enter_context(RedisServer(tmp_path / "redis"))
    dies, lives = (
        stack.enter_context(running(tmp_path / name, ("--listen", "127.0.0.1:0", "--broadcast", redis.url)))
        for name in ("dies", "lives")
    )
    client = make([dies.url, lives.url], timeout=4.0)
    client.publish("a", 1)
    following = [client.follow("a", transport=transport) for transport in TRANSPORTS]
    for items in following:
        assert data_of(next(items)) == 1
    dies.signal(signal.SIGSTOP)
    for number in (2, 3, 4):
        client.publish("a", number)
    dies.end(signal.SIGKILL)
    for items in following:
        assert [data_of(next(items)) for _ in range(3)] == [2, 3, 4]
    client.close()


def test_a_client_over_tls(tmp_path: Path, make: MakeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """The certificate is checked against the name in the URL."""
    certificate, key = write_certificate(tmp_path, "127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]

        def serve() -> None:
            for _ in range(2):
                sock, _ = listening.accept()
                with (
                    sock,
                    suppress(ssl.SSLError, ConnectionError),
                    context.wrap_socket(sock, server_side=True) as wrapped,
                ):
                    wrapped.recv(65536)
                    wrapped.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 17\r\n\r\n{"cursor": "e-1"}')
                    wrapped.recv(1)

        thread = threading.Thread(target=serve)
        thread.start()
        client = make(f"https://127.0.0.1:{port}")
        assert client.cursor() == "e-1"
        client.close()
        with pytest.raises(ClientError, match="certificate"):
            make(f"https://localhost:{port}", patience=0.0).cursor()
        client.stop()
        thread.join(WAIT_SECONDS)


def test_a_unix_socket_whose_backlog_is_full(make: MakeClient, tmp_path: Path) -> None:
    """Nothing was sent, so that every call may be tried again."""
    path = str(tmp_path / "full")
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as first:
        listener.bind(path)
        listener.listen(0)
        first.connect(path)
        with pytest.raises(NotSent):
            make(f"unix:{path}", patience=0.0).create("a")


def test_a_unix_socket(serve: Serve, make: MakeClient, tmp_path: Path) -> None:
    """And a name that nobody can look up."""
    with serve("--listen", f"unix:{tmp_path}/socket") as server:
        client = make(server.url)
        assert client.publish("a", 1).id.endswith("-1")
        client.close()
    with pytest.raises(ClientError, match="cannot reach the server at http://no-such-host"):
        make("http://no-such-host.invalid", patience=0.0).cursor()


def in_thread(function: Callable[[], Any]) -> Any:
    """What the function returns; fails if it does not end."""
    results: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=lambda: results.put(function()), daemon=True).start()
    return results.get(timeout=WAIT_SECONDS)


def error_of(call: Callable[[], object]) -> ClientError | None:
    try:
        call()
    except ClientError as error:
        return error
    return None


def never(error: ClientError, pause: float) -> None:
    raise AssertionError(error)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_follower_whose_tokens_end(serve: Serve, make: MakeClient, transport: Literal["stream", "poll"]) -> None:
    """Tokens of 2 s, one after the other, and one that is revoked: it gets everything, and hears of no trouble. Later
    tokens that are refused as well are an error."""
    issuer = TokenIssuer(2.0, poll=["a"])
    with serve(**SETTINGS) as server, server.caller() as caller:
        items = make(server.url, token=issuer.token).follow("a", transport=transport, on_trouble=never)
        for number in range(8):
            caller.publish(["a"], number)
            assert data_of(next(items)) == number
            time.sleep(0.5)
        assert 2 <= issuer.count <= 6
        caller.call("POST", "/v1/revoke", {"sub": "7"})
        before = issuer.count
        caller.publish(["a"], 8)
        assert data_of(next(items)) == 8
        assert before < issuer.count <= before + 2  # the first may be of the second of the revocation
        issuer.issued_at = int(time.time()) - 1
        caller.call("POST", "/v1/revoke", {"sub": "7"})
        with pytest.raises(ClientError) as caught:
            list(items)
        assert caught.value.type == "urn:pushup:revoked"


def test_a_publisher_whose_token_ends(serve: Serve, make: MakeClient) -> None:
    """It publishes with the next one."""
    issuer = TokenIssuer(1.0, publish=["a"])
    with serve(**SETTINGS) as server:
        client = make(server.url, token=issuer.token)
        client.publish("a", 1)
        time.sleep(1.1)
        client.publish("a", 2)
        assert issuer.count == 2
        with pytest.raises(ClientError, match="403"):
            client.publish("b", 3)
        client.close()


@pytest.mark.parametrize("how", ["hangs", "hangs, async"])
def test_a_token_function_that_hangs(serve: Serve, how: str) -> None:
    """The call ends in time. A function may be async for asyncio, and then its result is used."""
    over = threading.Event()
    issuer = TokenIssuer(60.0, publish=["a"])

    async def never_ends() -> str:
        await asyncio.sleep(1000.0)
        return ""

    async def works() -> str:
        return issuer.token()

    async def publish(url: str) -> None:
        async with AsyncClient(url, token=never_ends if "async" in how else hangs, timeout=0.5) as client:
            with pytest.raises(ClientError, match="did not return in time"):
                await client.publish("a", 1)
        async with AsyncClient(url, token=works) as client:
            await asyncio.gather(*[client.publish("a", 1) for _ in range(5)])
        assert issuer.count == 1  # one call for all

    def hangs() -> str:
        over.wait()
        return ""

    with serve(**SETTINGS) as server:
        asyncio.run(publish(server.url))
        with Client(server.url, token=hangs, timeout=0.5) as client, pytest.raises(ClientError, match="in time"):
            client.publish("a", 1)
    over.set()


# The samples in docs/guide/python.md.


def test_the_first_sample(serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    """It publishes a message and polls it."""
    with serve() as server:
        exec(
            sample("docs/guide/python.md", "from pushup.client import Client").replace(
                "127.0.0.1:8080", server.address
            ),
            {},
        )
    assert capsys.readouterr().out == "{'text': 'hello'}\n"


def test_the_asynchronous_sample(serve: Serve) -> None:
    """The handler of a request publishes."""
    handlers: list[Callable[[int], Any]] = []

    class App:
        def post(self, path: str) -> Callable[[Callable[[int], Any]], None]:
            return handlers.append

    with serve() as server, server.caller() as caller:
        names: dict[str, Any] = {"app": App()}
        exec(
            sample("docs/guide/python.md", "from pushup.client import Async").replace("127.0.0.1:8080", server.address),
            names,
        )

        async def request() -> None:
            await handlers[0](7)
            names["pushup"].close()
            await asyncio.sleep(0)

        asyncio.run(request())
        assert [message["data"] for message in caller.poll("order:7")["messages"]] == ["shipped"]


def test_the_worker(serve: Serve, tmp_path: Path) -> None:
    """It is killed after a job, or before there is any, and continues with the next one; a gap is told."""
    text = sample("docs/guide/python.md", "from pathlib import Path")
    assert len(text.splitlines()) <= 11
    stored = tmp_path / "cursor"
    with serve(retention_messages=2) as server, server.caller() as caller:
        command = [sys.executable, "-u", "-c", text.replace("127.0.0.1:8080", server.address)]
        for jobs, lines in (
            ([], []),
            (["a", "b", "c"], ["some are missing: evicted", "work on b", "work on c"]),
            (["d", "e"], ["work on d", "work on e"]),
        ):
            for job in jobs:
                caller.publish(["jobs"], job)
            with subprocess.Popen(
                command, env=clean_environment(), cwd=tmp_path, stdout=subprocess.PIPE, text=True
            ) as worker:
                assert worker.stdout is not None
                try:
                    assert [worker.stdout.readline().strip() for _ in lines] == lines
                    last = caller.call("GET", "/v1/cursor").value["cursor"]
                    wait_until(lambda end=last: stored.exists() and stored.read_text() == end, "it to be stored")  # type: ignore[misc]
                finally:
                    worker.kill()
