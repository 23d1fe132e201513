"""The application is called about messages that were not read, with real servers that are killed, or have workers."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.blocking_backend import Question, Verdict, WebBackend, web_backend
from tests.server.caller import Caller, poll_path
from tests.server.conftest import Serve
from tests.server.server_process import wait_until
from tests.server.token_issuer import SETTINGS, TokenIssuer

SECRET = b"thirty-two bytes of the webhooks"
PUBLISHER = "the-key-of-a-publisher"
READER = "7"
"""The user of all tokens here."""


@pytest.fixture
def application() -> Iterator[WebBackend]:
    with web_backend() as application:
        application.answer = lambda question: Verdict(204)
        yield application


def settings(application: WebBackend) -> dict[str, Any]:
    key = "whsec_" + base64.b64encode(SECRET).decode()
    return {"publish_keys": PUBLISHER, "webhook_url": application.url, "webhook_key": key, **SETTINGS}


def publish(caller: Caller, after: float, *subjects: str, data: object = 1) -> str:
    """The id of a message on `a` that waits for these."""
    body = {"channels": ["a"], "data": data, "unread_after": after, "for": subjects}
    reply = caller.call("POST", "/v1/messages", body, {"Authorization": f"Bearer {PUBLISHER}"})
    assert reply.status == 201, reply
    id_: str = reply.value["id"]
    return id_


def check(call: Question, id_: str, subjects: list[str], data: object = 1) -> None:
    """It is signed (Standard Webhooks), about this message, and about these subjects."""
    headers, body = call.headers, json.loads(call.body)
    signed = f"{id_}.{headers['webhook-timestamp']}.".encode() + call.body
    signature = base64.b64encode(hmac.digest(SECRET, signed, hashlib.sha256)).decode()
    assert (call.method, headers["webhook-id"]) == ("POST", id_)
    assert headers["webhook-signature"] == f"v1,{signature}"
    assert abs(int(headers["webhook-timestamp"]) - time.time()) < 30
    message = body["data"]
    assert body["type"] == "message.unread"
    assert (message["id"], message["channels"], message["subjects"]) == (id_, ["a"], subjects)
    assert message["data"] == data


def test_a_server_that_was_killed_calls_when_it_is_back(serve: Serve, application: WebBackend, tmp_path: Path) -> None:
    """Who had read it before stays a reader."""
    journal = ("--broadcast", f"journal:{tmp_path / 'journal'}")
    with serve(*journal, **settings(application)) as server, server.caller() as caller:
        id_ = publish(caller, 2.0, READER, "bob")
        token = {"Authorization": f"Bearer {TokenIssuer(600, poll=['*']).token()}"}
        reply = caller.call("GET", poll_path("a", cursor=id_, timeout=0), headers=token)
        assert reply.status == 200, reply
        publish(caller, 2.0, "zoe")  # when that is in the journal, so is the reading
        server.end(signal.SIGKILL)
    assert not application.questions
    with serve(*journal, **settings(application)) as server:
        wait_until(lambda: application.count >= 2, "the calls")
        wait_until(lambda: server.metric("webhooks_waiting") == 0, "the end of what waits")
    calls = {call.headers["webhook-id"]: call for call in application.questions}
    check(calls[id_], id_, ["bob"])
    assert len(calls) == 2


def metrics(caller: Caller) -> str:
    return caller.call("GET", "/metrics").text


def waiting(page: str) -> bool:
    """Whether a worker knows of anything that waits."""
    return any(float(count) for count in re.findall(r"^pushup_webhooks_waiting\S* (\S+)$", page, re.MULTILINE))


def test_one_of_two_workers_calls(serve: Serve, application: WebBackend) -> None:
    """The other one leaves it alone until the application has answered."""

    def answer_slowly(question: Question) -> Verdict:
        time.sleep(1.2)  # each looks every second for what it can claim
        return Verdict(204)

    application.answer = answer_slowly
    with serve("--workers", "2", **settings(application)) as server, server.caller() as caller:
        ids = [publish(caller, 0.5, "ann", "bob") for _ in range(5)]
        wait_until(lambda: application.count >= 5, "the calls")
        wait_until(lambda: not waiting(metrics(caller)), "the end of what waits")
        assert sorted(call.headers["webhook-id"] for call in application.questions) == sorted(ids)
        for call in application.questions:
            check(call, call.headers["webhook-id"], ["ann", "bob"])
