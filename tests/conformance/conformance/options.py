"""What the command line says about the server."""

from __future__ import annotations

from dataclasses import dataclass, field

LIMITS = {
    "message_limit_bytes": 65536,
    "body_limit_bytes": 1048576,
    "poll_body_limit_bytes": 65536,
    "target_limit_bytes": 8192,
    "header_limit_bytes": 16384,
    "batch_limit": 100,
    "message_channels_limit": 100,
    "publication_channels_limit": 1000,
    "poll_channels_limit": 100,
    "poll_limit": 100,
    "answer_limit_bytes": 262144,
    "retention_messages": 1000,
    "retention_seconds": 300,
    "request_timeout_seconds": 10,
    "stream_heartbeat_seconds": 15,
    "presence_limit": 200,
    "presence_grace_seconds": 30,
    "presence_hidden_seconds": 90,
}
"""The limits of the server, with PushUp's defaults; `--limit NAME=VALUE` sets another."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to reach and judge a server."""

    urls: tuple[str, ...]
    """The node to check, and perhaps a second one of the same service."""
    publish_key: str = ""
    origin: str = ""
    """An origin that the server allows (CORS)."""
    credentials: tuple[tuple[str, str], ...] = ()
    """Header fields that authorize polls, if an application decides about them."""
    token: tuple[str, str, str] = ("", "", "")
    """Issuer, audience and secret (HS256) of tokens that the server accepts; empty: none."""
    url_tickets: bool = False
    """Whether it issues URL tickets for them."""
    webhooks: bool = False
    """Whether it calls an application about messages that were not read."""
    presence: str = ""
    """How the names of channels with presence begin; empty: there are none."""
    strict: bool = False
    """Whether channels have to be created."""
    several_nodes: bool = False
    """Whether the connections to one address lead to several nodes: a load balancer, or several workers."""
    limits: dict[str, int] = field(default_factory=lambda: dict(LIMITS))
    patience: float = 5.0
    """Seconds within which what must happen at once has to have happened."""
    check_seconds: float = 40.0
    """Seconds after which a check gives up."""
