"""The servers that the tests and the report check, and what the suite is told about each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from conformance.options import LIMITS, Options
from tests.server.caller import Caller
from tests.server.redis_cluster import cluster_at
from tests.server.redis_server import RedisServer
from tests.server.server_process import running, wait_until

HERE = Path(__file__).parent

KEY = "good-key-0123456789"

TOKEN = ("conformance", "pushup", "a-secret-of-32-or-more-characters")

WEBHOOK_KEY = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz"

ORIGIN = "https://app.example.org"

PATIENCE_SECONDS = 15.0
"""Ample for a server that shares two cores with other tests."""

CHECK_SECONDS = 150.0

SECONDS = 400.0
"""Limits for checks that hang, and for all of them."""

_HEARTBEAT = {**LIMITS, "stream_heartbeat_seconds": 2}
"""So that no check waits for long."""

CONFIGURATIONS = {
    "memory": Options(urls=("",), origin=ORIGIN, limits={**_HEARTBEAT, "request_timeout_seconds": 2}),
    "journal, keys and tickets": Options(
        urls=("",),
        publish_key=KEY,
        credentials=(("Cookie", "user=ann"),),
        token=TOKEN,
        url_tickets=True,
        webhooks=True,
        presence="room:",
        limits={**_HEARTBEAT, "presence_limit": 8, "presence_grace_seconds": 3, "presence_hidden_seconds": 15},
    ),
    "two nodes with Redis": Options(urls=("", ""), limits=_HEARTBEAT),
    "three workers": Options(urls=("",), several_nodes=True, origin=ORIGIN, limits=_HEARTBEAT),
    "strict": Options(urls=("",), strict=True, limits=_HEARTBEAT),
    "short retention": Options(urls=("",), limits={**LIMITS, "retention_seconds": 2}),
}
"""What the suite is told, without the URLs."""

ONLY = {"two nodes with Redis": ("cluster/*", "delivery/*", "cursors/*", "keys/*", "gaps/*", "streams/*"),
        "strict": ("publishing/*", "polling/*", "delivery/*", "channels/*", "limits/*", "names/*", "streams/*"),
        "short retention": ("gaps/*expired*", "gaps/are-not-reported-to-those-who-saw-all")}  # fmt: skip
"""The checks that are run where others would only be run once more, or make no sense."""


@contextmanager
def started(configuration: str, directory: Path) -> Iterator[Options]:
    """Run the servers of a configuration."""
    options = CONFIGURATIONS[configuration]
    settings: dict[str, object] = {"drain_seconds": 0.1}
    if options.origin:
        settings["cors_origins"] = options.origin
    if options.publish_key:
        settings |= {"publish_keys": KEY, "broadcast": f"journal:{directory / 'journal.db'}"}
    if options.credentials:
        settings["authorizer"] = "authorizer:may_poll"
    if options.token[0]:
        names = ("token_issuer", "token_audience", "token_secrets")
        settings |= dict(zip(names, options.token, strict=True))
    if options.url_tickets:
        settings |= {"token_url_tickets": "true", "ticket_key": KEY}
    if options.webhooks:
        settings |= {"webhook_url": "http://127.0.0.1:1/", "webhook_key": WEBHOOK_KEY}
    if options.several_nodes:
        settings["workers"] = 3
    if options.strict:
        settings["strict_channels"] = "true"
    settings |= {name: value for name, value in options.limits.items() if value != LIMITS[name]}
    with ExitStack() as stack:
        if len(options.urls) > 1:
            redis = stack.enter_context(RedisServer(directory / "redis"))
            cluster = stack.enter_context(cluster_at(redis, directory, 2, **settings))
            cluster.wait_until_publishing()
            wait_until(lambda: all(map(_lists_both, cluster.callers)), "both nodes to list both")
            urls = tuple(node.url for node in cluster.nodes)
        else:
            (directory / "pushup.toml").write_text(
                f'[[channels]]\nprefix = "{options.presence}"\npresence = true\n' if options.presence else ""
            )
            flags: tuple[str, ...] = ("--config", f"{directory}/pushup.toml")
            flags += tuple(part for name, value in settings.items() for part in ("--set", f"{name}={value}"))
            path = os.pathsep.join((str(HERE), os.environ.get("PYTHONPATH", "")))
            server = stack.enter_context(running(directory / "server.log", flags, {"PYTHONPATH": path}))
            urls = (server.url,)
        yield replace(options, urls=urls, patience=PATIENCE_SECONDS, check_seconds=CHECK_SECONDS)


def _lists_both(caller: Caller) -> bool:
    """Whether a node knows of the other, which takes a moment after their start."""
    return len(caller.call("GET", "/v1/nodes").value["nodes"]) == 2
