"""Five pages are one conversation with a server; this test replays it word for word.

Ids, cursors, channel ids and times differ each time: the documents' epoch stands for the server's, and a number that
the documents have under `time`, `expires` or `id` stands for any.
"""

from __future__ import annotations

import http.client
import json
import os
import re
from itertools import pairwise
from typing import Any

from tests.server.document_samples import ROOT, SESSION, samples
from tests.server.server_process import Server

EPOCH = "k3f9"
_BLOCK = re.compile(r"```http(?: (held|answer))?\n(.*?)```", re.DOTALL)


def test_every_example_of_the_interface_is_as_documented(server: Server) -> None:
    """Each request in the documents gets the response that follows it, and the held poll its answer later."""
    epoch = _call(server, "GET /v1/cursor HTTP/1.1\n\n").body["cursor"].partition("-")[0]
    open_calls: list[http.client.HTTPConnection] = []
    held: http.client.HTTPConnection | None = None
    examples = 0
    session = "\n".join((ROOT / page).read_text() for page in SESSION)
    for kind, text in _BLOCK.findall(session):
        if kind == "held":
            held = _send(server, text.replace(f"{EPOCH}-", f"{epoch}-"))
            server.wait_for_held(1)
        elif not text.startswith("HTTP/"):
            open_calls.append(_send(server, text.replace(f"{EPOCH}-", f"{epoch}-")))
        else:
            connection = held if kind == "answer" else open_calls.pop()
            assert connection is not None
            response = _receive(connection)
            expected = _Response.parse(text)
            assert response.status == expected.status, (text, response.body)
            assert _without_what_differs(response.body, epoch) == _without_what_differs(expected.body, EPOCH)
            assert {name: response.headers[name] for name in expected.headers} == expected.headers
            examples += 1
    assert not open_calls
    assert examples > 20


def test_every_example_belongs_to_the_session() -> None:
    """No other page has requests or responses that nothing replays, and each page links to the next one."""
    assert {each.document for each in samples() if each.kind.startswith("http")} == set(SESSION)
    for page, following in pairwise(SESSION):
        assert f"({os.path.relpath(following, os.path.dirname(page))}" in (ROOT / page).read_text(), page


class _Response:
    def __init__(self, status: int, headers: dict[str, str], body: Any) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @classmethod
    def parse(cls, text: str) -> _Response:
        head, _, body = text.partition("\n\n")
        status, *fields = head.splitlines()
        headers = dict(field.split(": ", 1) for field in fields)
        return cls(int(status.split()[1]), headers, json.loads(body) if body.strip() else None)


def _send(server: Server, text: str) -> http.client.HTTPConnection:
    head, _, body = text.partition("\n\n")
    method, target, _ = head.splitlines()[0].split(" ")
    headers = dict(field.split(": ", 1) for field in head.splitlines()[1:])
    connection = http.client.HTTPConnection(server.address, timeout=30)
    connection.request(method, target, body.strip().encode() or None, headers)
    return connection


def _receive(connection: http.client.HTTPConnection) -> _Response:
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return _Response(response.status, dict(response.getheaders()), json.loads(body) if body else None)


def _call(server: Server, text: str) -> _Response:
    return _receive(_send(server, text))


def _without_what_differs(value: Any, epoch: str) -> Any:
    if isinstance(value, dict):
        return {
            name: "a number"
            if name in ("time", "expires", "id") and isinstance(each, int | float)
            else _without_what_differs(each, epoch)
            for name, each in value.items()
        }
    if isinstance(value, list):
        return [_without_what_differs(each, epoch) for each in value]
    if isinstance(value, str):
        return value.replace(f"{epoch}-", "<epoch>-")
    return value
