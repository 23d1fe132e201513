"""`pushup.client`: publishing with patience, and the sample in docs/http.md."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from pushup.client import Client, ClientError
from pushup.client import client as client_module
from tests.server.document_samples import sample
from tests.server.redis_server import free_port
from tests.server.server_process import Server, running


class Scripted(Client):
    """A client whose server does what the script says; it records the keys that it sends."""

    def __init__(self, *script: dict[str, Any] | ClientError) -> None:
        super().__init__("http://127.0.0.1:1")
        self._script = list(script)
        self.keys: list[str] = []

    def call(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> dict[str, Any]:
        self.keys.append((headers or {}).get("Idempotency-Key", ""))
        reply = self._script.pop(0)
        if isinstance(reply, ClientError):
            raise reply
        return reply


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "RETRY_SECONDS", (0.001, 0.001))


@pytest.mark.usefixtures("soon")
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


@pytest.mark.usefixtures("soon")
def test_what_the_server_refuses_is_raised_at_once() -> None:
    """Patience would not help."""
    client = Scripted(ClientError("413", 413), {"id": "e-1"})
    with pytest.raises(ClientError, match="413"):
        client.publish(["a"], 1, patience=5.0)


def test_without_patience_or_when_it_ends_the_error_is_raised() -> None:
    """Without it no key is sent, and nothing is tried again."""
    client = Scripted(ClientError("cannot reach"))
    with pytest.raises(ClientError, match="cannot reach"):
        client.publish(["a"], 1)
    assert client.keys == [""]
    nowhere = Client(f"http://127.0.0.1:{free_port()}")
    began = time.monotonic()
    with pytest.raises(ClientError, match="cannot reach"):
        nowhere.publish(["a"], 1, patience=0.5)
    assert time.monotonic() >= began + 0.5


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
    exec(sample("docs/http.md", "from pushup.client").replace("127.0.0.1:8080", server.address), {})
    assert "'data': {'text': 'hello'}" in capsys.readouterr().out
