"""The limits of the replicated state, and those of the polls that one node holds."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct


class ChannelPolicy(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What holds for the channels whose names begin with `prefix`; of several policies, the one with the longest.

    None: the setting of the same name in `Limits`. For the lifetime of channels, at least `retention_seconds`.
    """

    prefix: str
    retention_seconds: float | None = None
    retention_messages: int | None = None
    retention_bytes: int | None = None
    """Maximum size of all messages of these channels together; None: only the maximum for all channels."""
    channel_ttl_seconds: float | None = None
    presence: bool = False
    """Whether subjects that follow one of these channels are its members."""
    occupancy_webhooks: bool = False
    """Whether the application is told when one of them gets its first member, and when its last one leaves."""
    share: float = 1.0
    """Weight when the cache is full: the messages that take most for their share are dropped first."""


class Limits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Retention, and the size of the replicated state.

    All nodes of a cluster need the same values: what the state contains depends on them.
    """

    retention_seconds: float = 300.0
    """Maximum age of a message; older ones are dropped."""
    retention_messages: int = 1000
    """Maximum number of messages kept per channel."""
    retention_bytes: int = 256 * 1024 * 1024
    """Maximum size of all messages together, each with `MESSAGE_OVERHEAD_BYTES`. Beyond it, the oldest are dropped of
    the class and the publisher that take most."""
    ephemeral_bytes: int = 16 * 1024 * 1024
    """Maximum size of all ephemeral messages together."""
    channel_ttl_seconds: float = 3600.0
    """A channel closes after this time without a publication (PushUp §3.3)."""
    channels_limit: int = 200_000
    """Maximum number of open channels."""
    keys_limit: int = 100_000
    """Maximum number of idempotency keys remembered; the oldest are forgotten first."""
    token_lifetime_limit_seconds: float = 86_400.0
    """Maximum lifetime of a token or ticket, and so for how long a revocation is needed."""
    revocations_limit: int = 100_000
    """Maximum number of revocations kept; further ones get 503."""
    unread_limit: int = 100_000
    """Maximum number of subjects that messages wait for, each counted for each channel of its message."""
    members_limit: int = 100_000
    """Maximum number of members of all channels together; others do not appear."""
    presence_limit: int = 200
    """With more members than this, a channel tells only their number."""
    answer_limit_bytes: int = 256 * 1024
    """Maximum size of the messages in one answer, with their channel names; one message always fits."""
    strict_channels: bool = False
    """Channels must be created before clients can publish on them or poll them."""
    channels: tuple[ChannelPolicy, ...] = ()
    """What holds instead for channels whose names begin with some prefix."""


class HoldLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of the polls that one node holds. Beyond them, a poll that cannot be answered immediately is refused."""

    awaited_channels_limit: int = 200_000
    """Maximum number of channels that do not exist but that held polls wait for."""
    held_limit_bytes: int = 512 * 1024 * 1024
    """Maximum memory for all held polls: the channel names of each, and 350 bytes for each of these channels."""
    hold_jitter: float = 0.15
    """A held poll ends early by a random share of its timeout up to this, so that clients do not return in step."""

    def mistakes(self) -> Iterator[tuple[str, str]]:
        """Each setting whose value cannot be used, and why."""
        if self.hold_jitter >= 1:
            yield "hold_jitter", "must be below 1: it is a share of the timeout"
