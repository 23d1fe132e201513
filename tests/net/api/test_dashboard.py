"""`GET /dashboard`: its files, where they are served, and what the calls of the page need at `operator_listen`."""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path

import pytest

import pushup
from pushup.client import ClientError
from pushup.net.api.application import Api
from pushup.testing.in_process import InProcess
from tests.net.in_memory_node import InMemoryNode

FILES = Path(pushup.__file__).parent / "dashboard"

TARGETS = ("/dashboard", "/dashboard/dashboard.js", "/dashboard/dashboard.css")

KEYS = (f"ops {'o' * 20} operate", f"site {'s' * 20} publish")


def test_its_files() -> None:
    """They are small, and the page may run nothing else; what the page loads is among them."""
    node, sizes = InMemoryNode(), 0
    for target, name, kind in zip(
        TARGETS,
        ("dashboard.html", "dashboard.js", "dashboard.css"),
        (b"text/html", b"text/javascript", b"text/css"),
        strict=True,
    ):
        (response,) = node.begin("GET", target).responses
        assert (response.status, response.content_type) == (200, kind + b"; charset=utf-8")
        assert response.body == (FILES / name).read_bytes()
        headers = dict(response.headers)
        assert headers[b"Content-Security-Policy"].startswith(
            b"default-src 'none'; script-src 'self'; style-src 'self'"
        )
        assert headers[b"X-Content-Type-Options"] == b"nosniff"
        sizes += len(response.body)
    assert sizes < 40_000
    loaded = re.findall(r'(?:src|href)="([^"]+)"', (FILES / "dashboard.html").read_text())
    assert sorted(f"/{path}" for path in loaded if path != "data:,") == sorted(TARGETS[1:])


def test_it_never_makes_html_of_text() -> None:
    """Names and messages are hostile."""
    text = (FILES / "dashboard.js").read_text()
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|\.style\b", text)
    assert "style=" not in (FILES / "dashboard.html").read_text()


@pytest.mark.parametrize("target", TARGETS)
def test_where_others_can_listen(target: str) -> None:
    """It is not there, and the answer says where it may be."""
    answer = InMemoryNode(api={"shows_dashboard": False}).call("GET", target)
    assert answer.status == 404
    assert "operator_listen" in answer.json["detail"]


@pytest.mark.parametrize(
    ("listen", "is_there"),
    [
        (["127.0.0.1:8080", "[::1]:8080", "unix:/run/pushup.sock"], True),
        (["0.0.0.0:8080"], False),
        (["127.0.0.1:8080", "10.0.0.5:8080"], False),
    ],
)
def test_which_servers_have_it(listen: list[str], is_there: bool) -> None:
    """Those that other machines cannot reach. HEAD is answered without the page."""
    refusal = nullcontext() if is_there else pytest.raises(ClientError, match="404")
    with InProcess(listen=listen, publish_keys=KEYS[0]).client() as client, refusal:
        client.call("HEAD", "/dashboard")


def test_the_addresses_of_operators() -> None:
    """They have the calls of the page. Polls need the right `operate` there, publishing its own."""
    node = InMemoryNode(publish_keys=KEYS, api={"only_for_operators": True})
    assert isinstance(node.api, Api)
    poll = {"channels": ["a"], "timeout": 0}
    ops, site = ({"authorization": f"Bearer {key.split()[1]}"} for key in KEYS)
    assert node.call("GET", "/dashboard").status == 200
    assert node.call("GET", "/v1/pushup.js").status == 200
    for headers, expected in (({}, 401), (site, 403)):
        assert node.call("POST", "/v1/poll", poll, **headers).status == expected
        assert node.call("POST", "/v1/events", {"channels": ["a"]}, **headers).status == expected
    assert len(node.begin("POST", "/v1/poll", poll, **ops).answers) == 1
    assert node.call("POST", "/v1/messages", {"channels": ["a"], "data": 1}, **ops).status == 403
    assert node.call("POST", "/v1/messages", {"channels": ["a"], "data": 1}, **site).status == 201
    assert node.call("DELETE", "/v1/messages?owner=a", **ops).status == 405
    assert node.call("GET", "/v1/cursor").status == 404
