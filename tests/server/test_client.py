"""`pushup.client`: every call ends, publishing with patience, stopping, and the sample in docs/guide/python.md."""

from __future__ import annotations

import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pushup.client import Client, ClientError
from pushup.client.client import LAST_SECONDS
from pushup.client.credentials import Credentials
from tests.server.certificates import write_certificate
from tests.server.conftest import Serve
from tests.server.document_samples import sample
from tests.server.hung_server import HANGS, hung_server
from tests.server.raw_client import WAIT_SECONDS
from tests.server.redis_server import free_port
from tests.server.server_process import Server, running, wait_until
from tests.server.token_issuer import SETTINGS, TokenIssuer


class Scripted(Client):
    """A client whose server does what the script says; it records the keys and the bodies that it sends."""

    def __init__(self, *script: dict[str, Any] | ClientError) -> None:
        super().__init__("http://127.0.0.1:1", retry_seconds=(0.001, 0.001))
        self._script = list(script)
        self.keys: list[str] = []
        self.bodies: list[Any] = []

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        *,
        timeout: float | None = None,
    ) -> dict[str, Any]:
        self.keys.append((headers or {}).get("Idempotency-Key", ""))
        self.bodies.append(body)
        reply = self._script.pop(0)
        if isinstance(reply, ClientError):
            raise reply
        return reply


def test_a_patient_publisher_tries_again_with_the_same_key() -> None:
    """Whatever may pass: no connection, 503, 502 and 504, of which nobody knows whether the message was published."""
    unavailable = [ClientError("", status) for status in (503, 502, 504)]
    client = Scripted(ClientError("cannot reach"), *unavailable, {"id": "e-1"})
    assert client.publish(["a"], 1, patience=5.0) == {"id": "e-1"}
    assert len(client.keys) == 5
    assert len(set(client.keys)) == 1
    assert len(client.keys[0]) > 20
    given = Scripted(ClientError("", 503), {"id": "e-2"})
    given.publish(["a"], 1, patience=5.0, idempotency_key="mine")
    assert given.keys == ["mine", "mine"]


def test_what_a_message_may_have_is_sent() -> None:
    """And nothing of what it does not have, so that an older server takes it."""
    client = Scripted({"id": "e-1"}, {"id": "e-2"})
    client.publish(["a"], 1)
    client.publish(["a"], 2, event="typing", ephemeral=True, ack="stable")
    assert client.bodies == [
        {"channels": ["a"], "data": 1},
        {"channels": ["a"], "data": 2, "event": "typing", "ephemeral": True, "ack": "stable"},
    ]


def test_what_the_server_refuses_is_raised_at_once() -> None:
    """Patience would not help."""
    client = Scripted(ClientError("413", 413), {"id": "e-1"})
    with pytest.raises(ClientError, match="413"):
        client.publish(["a"], 1, patience=5.0)


def test_without_patience_or_when_it_ends_the_error_is_raised() -> None:
    """Without it nothing is tried again; with it, until it ends."""
    client = Scripted(ClientError("cannot reach"))
    with pytest.raises(ClientError, match="cannot reach"):
        client.publish(["a"], 1)
    assert len(client.keys) == 1
    nowhere = Client(f"http://127.0.0.1:{free_port()}")
    began = time.monotonic()
    with pytest.raises(ClientError, match="cannot reach"):
        nowhere.publish(["a"], 1, patience=0.5)
    assert time.monotonic() >= began + 0.5 - LAST_SECONDS


def test_a_server_that_starts_later(tmp_path: Any) -> None:
    """The message is there once when the server is."""
    port = free_port()
    published: list[Any] = []
    with Client(f"http://127.0.0.1:{port}") as client:
        thread = threading.Thread(target=lambda: published.append(client.publish(["a"], 1, patience=30.0)))
        thread.start()
        with running(tmp_path / "log", ("--listen", f"127.0.0.1:{port}")) as server:
            thread.join()
            with server.caller() as caller:
                assert [message["data"] for message in caller.poll("a")["messages"]] == [1]
    assert published[0]["id"].endswith("-1")


def test_the_sample_in_the_documents(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    """It publishes a message and polls it."""
    exec(sample("docs/guide/python.md", "from pushup.client").replace("127.0.0.1:8080", server.address), {})
    assert "'data': {'text': 'hello'}" in capsys.readouterr().out


CALLS: dict[str, Callable[[Client], object]] = {
    "publish": lambda client: client.publish(["a"], 1),
    "publish with patience": lambda client: client.publish(["a"], 1, patience=0.7),
    "publish much": lambda client: client.publish(["a"], "x" * 8_000_000),
    "cursor": lambda client: client.cursor(),
    "cursor with a timeout": lambda client: client.cursor(timeout=0.2),
    "poll": lambda client: client.poll(["a"], timeout=0.2),
    "create": lambda client: client.create("a"),
    "channels": lambda client: list(client.channels()),
}


@pytest.fixture(params=HANGS)
def hung_url(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server that hangs, in each of the ways."""

    def use(look_up: Callable[..., object]) -> None:
        monkeypatch.setattr(socket, "getaddrinfo", look_up)

    with hung_server(request.param, use) as url:
        yield url


@pytest.mark.parametrize("name", CALLS)
def test_every_call_ends(hung_url: str, name: str) -> None:
    """However the server hangs, and although a timeout of the socket would begin anew with each byte."""
    with Client(hung_url, timeout=0.5) as client:
        ended = in_thread(lambda: error_of(lambda: CALLS[name](client)))
    assert "no response within" in str(ended)


@pytest.mark.parametrize("events", [False, True])
def test_a_follower_is_stopped(hung_url: str, events: bool) -> None:
    """By another thread, however the server hangs: it ends without an error and without a retry."""
    troubles: list[ClientError] = []
    with Client(hung_url) as client:
        follow = client.events if events else client.follow
        ended: queue.SimpleQueue[list[Any]] = queue.SimpleQueue()
        on_trouble = lambda error, pause: troubles.append(error)  # noqa: E731
        thread = threading.Thread(target=lambda: ended.put(list(follow(["a"], on_trouble=on_trouble))), daemon=True)
        thread.start()
        with pytest.raises(queue.Empty):
            ended.get(timeout=0.2)
        client.stop()
        assert ended.get(timeout=WAIT_SECONDS) == []
        thread.join()
        assert troubles == []
        with pytest.raises(ClientError, match="stopped"):
            client.cursor()


def test_a_follower_is_stopped_while_it_waits_before_a_retry() -> None:
    """And the iterator ends then, too."""
    client = Client(f"http://127.0.0.1:{free_port()}", retry_seconds=(1000.0, 1000.0))
    assert in_thread(lambda: list(client.follow(["a"], on_trouble=lambda error, pause: client.stop()))) == []


def test_a_follower_that_fails_very_often() -> None:
    """The pause has a limit also after 1,024 failures, when 2 to that power is no float."""
    client = Client(f"http://127.0.0.1:{free_port()}", retry_seconds=(1e-9, 1e-9))
    troubles: list[Exception] = []

    def on_trouble(error: Exception, pause: float) -> None:
        troubles.append(error)
        if len(troubles) == 1100:
            client.stop()

    assert in_thread(lambda: list(client.follow(["a"], on_trouble=on_trouble))) == []
    assert len(troubles) == 1100


def test_a_publication_over_a_connection_that_was_idle(serve: Serve) -> None:
    """The server has closed it: the publication is sent again, with the same key, and published once."""
    with serve(idle_timeout_seconds="1s") as server, Client(server.url) as client, server.caller() as caller:
        client.publish(["a"], 1)
        wait_until(lambda: server.metric("connections") == 1, "the idle connection to be closed")
        client.publish(["a"], 2)
        assert [message["data"] for message in caller.poll("a")["messages"]] == [1, 2]


def test_a_publication_whose_response_is_lost() -> None:
    """Sent again over a new connection, it has the same key."""
    keys: list[str] = []
    replies = iter([b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}", b"", b"HTTP/1.1 201 Created\r\n\r\n{}"])
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            for _ in range(2):
                sock, _ = listening.accept()
                with sock:
                    while request := _request(sock):
                        keys.append(request.partition(b"Idempotency-Key: ")[2].partition(b"\r\n")[0].decode())
                        reply = next(replies)
                        sock.sendall(reply)
                        if b"Length" not in reply:
                            break

        thread = threading.Thread(target=serve)
        thread.start()
        with Client(f"http://127.0.0.1:{listening.getsockname()[1]}") as client:
            client.publish(["a"], 1)
            client.publish(["a"], 2)
        thread.join(WAIT_SECONDS)
    first, second, third = keys
    assert first != second == third != ""


def test_a_client_over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The certificate is checked against the name in the URL."""
    certificate, key = write_certificate(tmp_path, "127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            sock, _ = listening.accept()
            with context.wrap_socket(sock, server_side=True) as wrapped:
                wrapped.recv(65536)
                wrapped.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 17\r\n\r\n{"cursor": "e-1"}')

        thread = threading.Thread(target=serve)
        thread.start()
        with Client(f"https://127.0.0.1:{listening.getsockname()[1]}") as client:
            assert client.cursor() == "e-1"
        thread.join(WAIT_SECONDS)


def test_a_host_that_cannot_be() -> None:
    """A name with a part of more than 63 characters cannot be looked up."""
    with pytest.raises(ClientError, match="cannot reach"):
        Client(f"http://{'a' * 64}.example").cursor()


def _request(sock: socket.socket) -> bytes:
    """The next request with a JSON object; empty at the end."""
    request = b""
    while not request.endswith(b"}") and (data := sock.recv(65536)):
        request += data
    return request


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


Follow = Callable[..., Iterator[dict[str, Any]]]

FOLLOWING: dict[str, Callable[[Client], Follow]] = {
    "polls": lambda client: client.follow,
    "streams": lambda client: client.events,
}


def data_of(answer: dict[str, Any]) -> list[Any]:
    """What an answer, or an event, delivers."""
    messages = answer["messages"] if "messages" in answer else [answer["data"]] if "data" in answer else []
    return [message["data"] for message in messages]


@pytest.mark.parametrize("by", FOLLOWING)
def test_a_follower_whose_tokens_end(serve: Serve, by: str) -> None:
    """Tokens of 2 s, one after the other, and one that is revoked: it gets everything, and hears of no trouble. Later
    tokens that are refused as well are an error."""
    issuer = TokenIssuer(2.0, poll=["a"])
    with serve(**SETTINGS) as server, Client(server.url, token=issuer.token) as client, server.caller() as caller:

        def fail(error: ClientError, pause: float) -> None:
            raise AssertionError(error)

        got: list[Any] = []
        following = FOLLOWING[by](client)(["a"], on_trouble=fail)
        for number in range(8):
            caller.publish(["a"], number)
            while number not in got:
                got += data_of(next(following))
            time.sleep(0.5)
        assert got == list(range(8))
        assert 2 <= issuer.count <= 6
        caller.call("POST", "/v1/revoke", {"sub": "7"})
        before = issuer.count
        caller.publish(["a"], 8)
        while 8 not in got:
            got += data_of(next(following))
        assert before < issuer.count <= before + 2  # the first may be of the second of the revocation
        issuer.issued_at = int(time.time()) - 1
        caller.call("POST", "/v1/revoke", {"sub": "7"})
        with pytest.raises(ClientError) as caught:
            list(following)
        assert caught.value.problem["type"] == "urn:pushup:revoked"


def test_a_token_is_replaced_when_the_server_says_that_it_ends() -> None:
    """Not before, and not only when it is refused."""
    tokens = iter(("one", "two"))
    credentials = Credentials(None, lambda: next(tokens), threading.Event())
    for expires_in, sent in ((60.0, "one"), (0.0, "one"), (60.0, "two"), (None, "two")):
        assert credentials.headers() == {"Authorization": f"Bearer {sent}"}
        credentials.accepted(expires_in)


def test_a_publisher_whose_token_ends(serve: Serve) -> None:
    """It publishes with the next one."""
    issuer = TokenIssuer(1.0, publish=["a"])
    with serve(**SETTINGS) as server, Client(server.url, token=issuer.token) as client:
        client.publish(["a"], 1)
        time.sleep(1.1)
        client.publish(["a"], 2)
        assert issuer.count == 2
        with pytest.raises(ClientError, match="403"):
            client.publish(["b"], 3)


def test_a_token_that_cannot_be_had_for_a_while(serve: Serve) -> None:
    """A follower says so, and tries again; any other call raises. No error shows a token."""
    issuer = TokenIssuer(60.0, poll=["a"])
    troubles: list[str] = []
    answers: list[Callable[[], str]] = [lambda: str(1 // 0), lambda: "no token\n", issuer.token]

    def token() -> str:
        return answers.pop(0)() if len(answers) > 1 else answers[0]()

    with serve(**SETTINGS) as server, server.caller() as caller:
        caller.publish(["a"], 1)
        with Client(server.url, token=token, retry_seconds=(0.01, 0.01)) as client:
            follower = client.follow(["a"], on_trouble=lambda error, pause: troubles.append(str(error)))
            assert data_of(next(follower)) == [1]
        assert troubles == [
            "cannot get a token: integer division or modulo by zero",
            "cannot get a token: the token is not valid; a token is printable ASCII without spaces",
        ]


def test_a_token_that_is_a_text(serve: Serve) -> None:
    """It is used until it ends; and not together with a key."""
    issuer = TokenIssuer(1.0, poll=["a"])
    with serve(**SETTINGS) as server, Client(server.url, token=issuer.token()) as client:
        client.poll(["a"], timeout=0)
        with pytest.raises(ClientError) as caught:
            list(client.follow(["a"], on_trouble=lambda error, pause: None))
        assert caught.value.problem["type"] == "urn:pushup:token-expired"
    with pytest.raises(ValueError, match="either a key or a token"):
        Client(server.url, "key", token="token")
    with pytest.raises(ValueError, match="not valid"):
        Client(server.url, token="a token")
