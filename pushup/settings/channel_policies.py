"""Checks the policies of channels (`[[channels]]` in the settings): each by itself, and against the other settings."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

from msgspec.structs import replace

from pushup.core.errors import BadRequest
from pushup.core.limits import ChannelPolicy, Limits
from pushup.net.api.bodies import check_name

POLICIES_LIMIT = 100
"""Maximum number of policies: a new channel is compared with each, and nodes report all of them."""


def policy_mistakes(limits: Limits, message_limit_bytes: int) -> Iterator[tuple[str, str]]:
    """Each place with a value that cannot be used, and why."""
    if len(limits.channels) > POLICIES_LIMIT:
        yield "channels", f"there are {len(limits.channels)} tables, and there can be at most {POLICIES_LIMIT}"
    numbers: dict[str, int] = {}
    for number, policy in enumerate(limits.channels):
        if (text := _prefix_mistake(policy.prefix)) is not None:
            yield f"channels[{number}].prefix", text
        first = numbers.setdefault(policy.prefix, number)
        if first != number:
            yield f"channels[{number}].prefix", f"channels[{first}] has {policy.prefix!r}, too; remove one of them"
        for name, text in _value_mistakes(policy, limits, message_limit_bytes):
            yield f"channels[{number}].{name} (for {policy.prefix!r})", text


def _prefix_mistake(prefix: str) -> str | None:
    beginning = prefix.rstrip("*")
    if not beginning:
        return f"{prefix!r} would be all channels; write what is to hold for all outside of [[channels]]"
    if "*" in beginning:
        return f"{prefix!r} contains *; a prefix is how names begin, not a pattern"
    if prefix != beginning:
        return f"{prefix!r} needs no *; write {beginning!r}"
    if "," in prefix:
        return f"{prefix!r} contains a comma; write a [[channels]] table for each prefix"
    try:
        check_name(prefix, "prefix")
    except BadRequest as error:
        return f"no channel's name begins with {prefix!r}: {error}"
    return None


def _value_mistakes(policy: ChannelPolicy, limits: Limits, message_limit_bytes: int) -> Iterator[tuple[str, str]]:
    size = policy.retention_bytes
    if size is not None and size < message_limit_bytes:
        yield (
            "retention_bytes",
            f"must be at least message_limit_bytes ({message_limit_bytes}), to hold one message; it is {size}",
        )
    seconds = limits.retention_seconds if policy.retention_seconds is None else policy.retention_seconds
    ttl = policy.channel_ttl_seconds
    if ttl is not None and ttl < seconds:
        yield (
            "channel_ttl_seconds",
            f"must be at least retention_seconds ({seconds:g}), because a channel that closes drops its messages; "
            f"it is {ttl:g}",
        )


def in_order(limits: Limits) -> Limits:
    """With the policies by prefix: two nodes have the same limits, in whichever order their files have them."""
    return replace(limits, channels=tuple(sorted(limits.channels, key=attrgetter("prefix"))))
