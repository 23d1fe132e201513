"""Tokens with real processes: four issuers, keys from files and from a URL, rotation, and revocation of many polls."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.server.blocking_backend import Verdict, WebBackend, web_backend
from tests.server.conftest import Serve
from tests.server.raw_client import RawClient, get
from tests.server.redis_cluster import RedisCluster
from tests.server.redis_server import RedisServer
from tests.server.reloading import reload, secret
from tests.server.server_process import Server, wait_until
from tests.server.token_issuer import SETTINGS, TokenIssuer
from tests.tokens.evil_tokens import OTHER_SECRET, SECRET, jwk, jwks, key_for, pem, token

KEY = "a-publish-key-of-27-letters"
PUBLISHER = {"Authorization": f"Bearer {KEY}"}
WORKERS = 2
ISSUERS = {
    "HS256": "https://secret.example",
    "RS256": "https://pem.example",
    "ES256": "https://set.example",
    "EdDSA": "https://url.example",
}


@pytest.fixture
def issuer() -> Iterator[WebBackend]:
    """An issuer that publishes its keys at a URL, and does not at first."""
    with web_backend() as backend:
        backend.answer = lambda _: Verdict(500)
        yield backend


def signed(algorithm: str, number: int = 0, *, seconds: float = 600, **others: Any) -> str:
    """A token of the issuer with this algorithm, that is valid now."""
    now = time.time()
    said = {"iss": ISSUERS[algorithm], "iat": now, "exp": now + seconds, **others}
    return token(algorithm, number, **said)


def status(server: Server, text: str, channel: str = "user:7") -> int:
    """How a poll with this token is answered, by each worker alike."""
    found = set()
    for _ in range(20):  # so many connections are hardly ever all of one worker
        with server.connect() as client:
            client.send(get(f"/v1/poll?channel={channel}&timeout=0", f"Authorization: Bearer {text}"))
            found.add(client.read_response().status)
    return found.pop() if len(found) == 1 else 0


def write_settings(tmp_path: Path, url: str, *secrets: str) -> Path:
    """The settings file, and the files that it names."""
    secret(tmp_path / "rsa.pem", pem(key_for("RS256")))
    secret(tmp_path / "set.json", jwks(jwk("ES256", kid="one")).decode())
    keys = {
        "HS256": f"secrets = {list(secrets)}",
        "RS256": f'keys_file = "{tmp_path}/rsa.pem"',
        "ES256": f'keys_file = "{tmp_path}/set.json"',
        "EdDSA": f'jwks_url = "{url}"',
    }
    tables = [f'[[token_issuers]]\nissuer = "{ISSUERS[name]}"\naudience = "pushup"\n{keys[name]}\n' for name in keys]
    return secret(tmp_path / "pushup.toml", f'publish_keys = ["{KEY}"]\nworkers = {WORKERS}\n' + "\n".join(tables))


def test_four_issuers(serve: Serve, tmp_path: Path, issuer: WebBackend) -> None:
    """Keys of all kinds, on all workers; those at a URL come late, change, and cannot be fetched; secrets rotate."""
    config = write_settings(tmp_path, issuer.url, SECRET)
    with serve("--config", str(config)) as server:
        server.expect_log("the keys cannot be fetched")
        assert {name: status(server, signed(name)) for name in ISSUERS} == {
            "HS256": 200, "RS256": 200, "ES256": 200, "EdDSA": 503,
        }  # fmt: skip
        assert {name: status(server, signed(name), "user:8") for name in ("HS256", "RS256", "ES256")} == {
            "HS256": 403, "RS256": 403, "ES256": 403,
        }  # fmt: skip
        assert status(server, signed("RS256", iss=ISSUERS["ES256"])) == 401
        assert status(server, signed("RS256", 1)) == 401

        issuer.answer = lambda _: Verdict(body=jwks(jwk("EdDSA", kid="one")))
        one, two = signed("EdDSA", kid="one"), signed("EdDSA", 1, kid="two")
        wait_until(lambda: status(server, one) == 200, "the keys to be fetched again", 30)
        assert status(server, two) == 401

        issuer.answer = lambda _: Verdict(body=jwks(jwk("EdDSA", 1, kid="two")))
        secret(config, config.read_text().replace(str([SECRET]), str([SECRET, OTHER_SECRET])))
        assert reload(server).endswith("changed: token_issuers")
        wait_until(lambda: status(server, two) == 200, "the issuer's new key")
        assert status(server, one) == 401
        assert [status(server, signed("HS256", number)) for number in (0, 1)] == [200, 200]

        issuer.answer = lambda _: Verdict(404, b"gone")
        secret(config, config.read_text().replace(str([SECRET, OTHER_SECRET]), str([OTHER_SECRET])))
        assert reload(server).endswith("changed: token_issuers")
        failures = 2 * WORKERS  # one line for each change of state
        wait_until(
            lambda: "\n".join(server.log_lines()).count("the keys cannot be fetched") == failures, "a failed fetch"
        )
        assert [status(server, signed("HS256", number)) for number in (0, 1)] == [401, 200]
        assert status(server, two) == 200  # by the last good keys

        log = "\n".join(server.log_lines())
        for shown in (SECRET, OTHER_SECRET, one, two, one.split(".")[1]):
            assert shown not in log
        assert log.count("the keys cannot be fetched") == failures


def test_who_fetches_the_keys(serve: Serve, issuer: WebBackend) -> None:
    """The request has a User-Agent: firewalls, such as Cloudflare's, refuse those without."""
    issuer.answer = lambda _: Verdict(body=jwks(jwk("EdDSA")))
    with serve(token_issuer=ISSUERS["EdDSA"], token_audience="pushup", token_jwks_url=issuer.url):
        wait_until(lambda: issuer.count > 0, "a fetch")
    assert issuer.questions[0].headers.get("user-agent", "").startswith("PushUp/")


def test_a_thousand_held_polls_end(serve: Serve, tmp_path: Path, issuer: WebBackend) -> None:
    """On all workers, with the reason; those of another subject stay, and get what is published next."""
    config = write_settings(tmp_path, issuer.url, SECRET)
    count = 1000
    with serve("--config", str(config)) as server, ExitStack() as stack:
        server.expect_log("the keys cannot be fetched")
        mine = signed("HS256")
        other = signed("HS256", sub="8")
        polls = [stack.enter_context(server.connect()) for _ in range(count)]
        bystander = stack.enter_context(server.connect())
        for client in polls:
            _hold(client, mine)
        _hold(bystander, other)
        server.wait_for_held(count + 1)
        with server.caller() as caller:
            reply = caller.call("POST", "/v1/revoke", {"sub": "7"}, PUBLISHER)
            assert reply.status == 200
            caller.call("POST", "/v1/messages", {"channels": ["user:7"], "data": "after"}, PUBLISHER)
            replies = [client.read_response() for client in polls]
        assert {(reply.status, reply.value["type"]) for reply in replies} == {(401, "urn:pushup:revoked")}
        assert [message["data"] for message in bystander.read_response().value["messages"]] == ["after"]
        assert status(server, mine) == 401
        assert status(server, other) == 200


def test_a_thousand_held_polls_on_three_nodes_end(redis: RedisServer, tmp_path: Path, stack: ExitStack) -> None:
    """A second after a revocation at one node, no node holds a poll of the user, and none accepts the token."""
    redis.start()
    cluster = RedisCluster(redis, tmp_path, stack)
    settings = {**SETTINGS, "publish_keys": KEY}
    for _ in range(3):
        cluster.start(**settings)
    mine = TokenIssuer(600, poll=["user:7"]).token()
    polls = [stack.enter_context(node.connect()) for node in cluster.nodes for _ in range(334)]
    for client in polls:
        _hold(client, mine)
    wait_until(lambda: sum(node.metric("held_polls") for node in cluster.nodes) == len(polls), "held polls")
    began = time.monotonic()
    assert cluster.callers[0].call("POST", "/v1/revoke", {"sub": "7"}, PUBLISHER).status == 200
    replies = [client.read_response() for client in polls]
    assert time.monotonic() - began < 1
    assert {(reply.status, reply.value["type"]) for reply in replies} == {(401, "urn:pushup:revoked")}
    assert [status(node, mine) for node in cluster.nodes] == [401, 401, 401]


def _hold(client: RawClient, text: str) -> None:
    client.send(get("/v1/poll?channel=user:7&timeout=60&cursor=now", f"Authorization: Bearer {text}"))
