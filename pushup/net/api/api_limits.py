"""What one request can ask for."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct


class PollLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of a poll. A client that asks for more time or messages gets the maximum."""

    poll_timeout_seconds: float = 25.0
    """Default wait when a poll gives no timeout."""
    poll_timeout_limit_seconds: float = 60.0
    """Maximum wait."""
    poll_channels_limit: int = 100
    """Maximum number of channels in one poll."""
    poll_limit: int = 100
    """Maximum number of messages in one answer."""
    poll_body_limit_bytes: int = 64 * 1024
    """Maximum size of the body of a poll, or of a call that creates or renews a channel. 100 names of 255 bytes fit."""

    def mistakes(self) -> Iterator[tuple[str, str]]:
        """Each setting whose value cannot be used, and why."""
        if self.poll_timeout_seconds > self.poll_timeout_limit_seconds:
            yield "poll_timeout_seconds", "must not exceed poll_timeout_limit_seconds"


class PublicationLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of one publication."""

    message_limit_bytes: int = 64 * 1024
    """Maximum size of one message's data, as JSON text."""
    batch_limit: int = 100
    """Maximum number of messages in one publication."""
    message_channels_limit: int = 100
    """Maximum number of channels of one message."""
    publication_channels_limit: int = 1000
    """Maximum number of channels of all messages in one publication together, a channel counted for each of its
    messages. A publication is applied in one go, on each node: 1000 take up to 6 ms."""
