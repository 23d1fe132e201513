"""The policies of channels (`[[channels]]` in the settings): checked by themselves, and against the other settings.

What a table says about messages is part of the replicated state (`Limits`); who may poll and publish is not.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import fields

from pushup.core.errors import BadRequest
from pushup.core.limits import ChannelPolicy, Limits
from pushup.net.api.bodies import check_name
from pushup.net.api.channel_rules import PollRule, PublishRule

POLICIES_LIMIT = 100
"""Maximum number of policies: a new channel is compared with each, and nodes report all of them."""


class ChannelTable(ChannelPolicy, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A `[[channels]]` table: the policy of the channels whose names begin with a prefix, and who may use them.

    None: the applicable default (docs/guide/security.md).
    """

    poll: PollRule | None = None
    publish: PublishRule | None = None

    @property
    def policy(self) -> ChannelPolicy:
        """What it says about messages."""
        return ChannelPolicy(**{field.name: getattr(self, field.name) for field in fields(ChannelPolicy)})


class ChannelSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What holds for channels whose names begin with some prefix."""

    channels: tuple[ChannelTable, ...] = ()
    """What holds instead for channels whose names begin with some prefix."""


def policy_mistakes(
    tables: tuple[ChannelTable, ...], limits: Limits, message_limit_bytes: int
) -> Iterator[tuple[str, str]]:
    """Each place with a value that cannot be used, and why."""
    if len(tables) > POLICIES_LIMIT:
        yield "channels", f"there are {len(tables)} tables, and there can be at most {POLICIES_LIMIT}"
    numbers: dict[str, int] = {}
    for number, policy in enumerate(tables):
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


def rule_mistakes(
    tables: tuple[ChannelTable, ...], *, has_tokens: bool, has_keys: bool, asks: bool, calls: bool
) -> Iterator[tuple[str, str]]:
    """Each place where a table asks for what is not set.

    `asks`: whether the application is asked who may poll; `calls`: whether it is called about other things.
    """
    for number, table in enumerate(tables):
        poll, publish = [f"channels[{number}].{name} (for {table.prefix!r})" for name in ("poll", "publish")]
        if table.poll == "token" and not has_tokens:
            yield poll, "tokens are accepted from nobody; set token_issuer and its keys"
        if table.poll == "application" and not asks:
            yield poll, "the application is not asked; set authorize_url or authorizer"
        if table.publish == "key" and not has_keys:
            yield publish, "there are no publish keys, so anybody could publish there; set publish_keys"
        if table.occupancy_webhooks and not (table.presence and calls):
            place = f"channels[{number}].occupancy_webhooks (for {table.prefix!r})"
            yield place, "needs presence = true in this table, and a webhook_url"
