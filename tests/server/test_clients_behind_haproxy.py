"""Who the log says it was, behind a trusted HAProxy that sends the requests of all clients through one connection."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.server.caller import Caller
from tests.server.proxies import haproxy
from tests.server.server_process import Server, running

KEY = "a-publish-key-of-27-letters"

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

OTHER, ONE = "127.0.0.2", "127.0.0.3"
"""Addresses of clients."""

SETTINGS = """
trusted_proxies = ["127.0.0.1"]
log_format = "json"
hosts = ["push.example"]
audit_channels = ["a*"]
"""

QUOTA = """
[[quotas]]
per = "address"
requests_per_second = 2
"""


@contextmanager
def behind_haproxy(folder: Path, settings: str) -> Iterator[tuple[Server, Caller, Caller]]:
    """The server, and two clients."""
    (folder / "pushup.toml").write_text(settings)
    with (
        running(folder / "log", ("--config", f"{folder}/pushup.toml")) as server,
        haproxy(folder, server.address) as address,
    ):
        host, _, port = address.partition(":")
        sockets = [http.client.HTTPConnection(host, int(port), 10, source_address=(ip, 0)) for ip in (OTHER, ONE)]
        with Caller(sockets[0]) as other, Caller(sockets[1]) as one:
            yield server, other, one


def refused(server: Server) -> list[tuple[str, str]]:
    """The kind and the client of each refusal that was logged."""
    fields = [json.loads(line).get("fields", {}) for line in server.log_lines()]
    return [(each["kind"], each["client"]) for each in fields if "kind" in each]


def test_who_is_refused(tmp_path: Path) -> None:
    """The client, not HAProxy and not the client of the request before; and not who the client says it is."""
    spoofed = {"Host": "push.example", "X-Forwarded-For": "198.51.100.1"}
    wanted = []
    with behind_haproxy(tmp_path, f'publish_keys = ["app {KEY}"]{SETTINGS}{QUOTA}') as (server, other, one):

        def ask(kind: str, status: int, method: str, path: str, body: Any = None, **headers: str) -> None:
            assert other.call("GET", "/healthz", headers={"Host": "push.example"}).status == 200
            assert one.call(method, path, body, spoofed | headers).status == status
            wanted.append((kind, ONE))

        ask("unauthorized", 401, "POST", "/v1/messages", {"channels": ["a"], "data": 1})
        ask("forbidden", 403, "POST", "/v1/messages", {}, Authorization="Bearer of-another-server")
        ask("host", 421, "GET", "/v1/cursor", Host="evil.example")
        while one.call("GET", "/v1/cursor", headers=spoofed).status == 200:
            pass
        ask("quota", 429, "GET", "/v1/cursor")
        assert refused(server) == wanted
    (tmp_path / "log").unlink()
    with behind_haproxy(tmp_path, SETTINGS) as (server, other, one):
        wanted.clear()
        ask("origin", 403, "POST", "/v1/messages", {"channels": ["a"], "data": 1}, Origin="http://evil.example")
        assert refused(server) == wanted


def test_who_has_published(tmp_path: Path) -> None:
    """The audit line has the key, the channels, the client, the id and the trace as fields."""
    with behind_haproxy(tmp_path, f'publish_keys = ["app {KEY}"]{SETTINGS}') as (server, other, one):
        head = {"Host": "push.example", "Authorization": f"Bearer {KEY}", "traceparent": TRACE}
        for client in (other, one):
            published = client.call("POST", "/v1/messages", {"channels": ["a1", "b", "a2"], "data": 1}, head)
        lines = [json.loads(line) for line in server.log_lines()]
        lines = [line for line in lines if line["where"] == "pushup.net.api.publishers"]
        assert [line["fields"]["client"] for line in lines] == [OTHER, ONE]
        id_ = published.value["id"]
        assert lines[1]["fields"] == {
            "count": 1, "id": id_, "channels": ["a1", "a2"], "more": 0, "key": "app", "user": "", "client": ONE,
            "traceparent": TRACE,
        }  # fmt: skip
        told = f"published 1 from {id_} on ['a1', 'a2'] by key app, user '', client {ONE}, traceparent {TRACE}"
        assert lines[1]["text"] == told
        assert server.trouble() == []
