"""The limits of connections and requests, as settings."""

from __future__ import annotations

from msgspec import Struct


class EdgeLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of connections."""

    connections_limit: int = 100_000
    """Maximum number of open connections; further ones get 503, except for operators (`reserve`)."""
    output_limit_bytes: int = 1024 * 1024
    """Maximum number of unsent bytes for one client; beyond it the connection is closed (Hsu §3.2)."""
    unsent_limit_bytes: int = 256 * 1024 * 1024
    """Maximum memory for the unsent bytes of all clients; beyond it those who cost most are disconnected."""
    request_timeout_seconds: float = 10.0
    """Maximum time from the first to the last byte of a request."""
    waiting_requests_limit_bytes: int = 64 * 1024 * 1024
    """Maximum memory for incomplete requests and those that wait behind another one on their connection."""
    idle_timeout_seconds: float = 75.0
    """Maximum time between two requests, and without progress when sending to a client."""


class RequestLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of one request."""

    target_limit_bytes: int = 8 * 1024
    """Maximum size of the request target; nginx and HAProxy allow about the same."""
    header_limit_bytes: int = 16 * 1024
    """Maximum size of all header fields and the target together."""
    body_limit_bytes: int = 1024 * 1024
    """Maximum size of a request body. `poll_body_limit_bytes` limits some calls further."""
