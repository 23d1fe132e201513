"""The limits of connections and requests, as settings."""

from __future__ import annotations

from msgspec import Struct


class EdgeLimits(Struct, frozen=True, kw_only=True):
    """The limits of connections."""

    connections_limit: int = 100_000
    """Maximum number of connections; further clients get 503."""
    output_limit_bytes: int = 1024 * 1024
    """Maximum of unsent bytes for one client; beyond it the connection has failed (Hsu §3.2)."""
    request_timeout_seconds: float = 10.0
    """From the first byte of a request to its last."""
    waiting_requests_limit_bytes: int = 64 * 1024 * 1024
    """All requests together that are incomplete, or wait behind another on their connection."""
    idle_timeout_seconds: float = 75.0
    """Between two requests, and between two bytes that a client accepts."""


class RequestLimits(Struct, frozen=True, kw_only=True):
    """The limits of one request."""

    target_limit_bytes: int = 8 * 1024
    """The request target; nginx and HAProxy allow about as much."""
    header_limit_bytes: int = 16 * 1024
    """All header fields together, with the target."""
    body_limit_bytes: int = 1024 * 1024
    """The body of any request; that of a poll has a smaller limit."""
