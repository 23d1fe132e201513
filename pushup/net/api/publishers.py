"""Who publishes how much: counted by key, and written to the log if wanted."""

from __future__ import annotations

from collections.abc import Callable

from twisted.logger import Logger

from pushup.core.commands import Publish, Published
from pushup.core.grant import Grant, scope_of
from pushup.metrics import Metrics
from pushup.net.application_interface import Exchange

SHOWN_CHANNELS = 10
"""Channels that a line of the log names; a publication can have 1,000."""

TOKENS = "(token)"
"""What stands for the name of a key where there is none: a token; or nothing, as no key is needed."""
NOBODY = "(none)"

_log = Logger(__name__)


class Publishers:
    """Knows who has published what."""

    def __init__(self, metrics: Metrics, seconds: Callable[[], float], audited: tuple[str, ...] = ()) -> None:
        """`seconds` of a monotonic clock; `audited`: the channels whose publications are logged, as in a scope.

        Raises: ValueError, if it is none.
        """
        self.seconds = seconds
        self._counts = metrics.messages_by_key
        self._audited = scope_of(list(audited))
        self.audit = bool(audited)
        """Whether any publications are logged."""

    def audited_channels(self, command: Publish) -> tuple[str, ...]:
        """Those of its channels whose publications are logged."""
        names = dict.fromkeys([name for draft in command.messages for name in draft.channels])
        return tuple([name for name in names if self._audited.covers((name,))])

    def published(
        self, grant: Grant, published: Published, audited: tuple[str, ...], exchange: Exchange, traceparent: str
    ) -> None:
        """Messages were published by whoever has this grant; on these channels, if any are `audited`."""
        name = grant.key_name or (TOKENS if grant.is_of_token else NOBODY)
        self._counts[name] = self._counts.get(name, 0) + published.count
        if not audited:
            return
        more = max(0, len(audited) - SHOWN_CHANNELS)
        _log.info(
            "published {count} from {id} on {channels}"
            + " and {more} more" * (more > 0)
            + " by key {key}, user {user!r}, client {client}"
            + ", traceparent {traceparent}" * bool(traceparent),
            count=published.count,
            id=f"{published.epoch}-{published.sequence}",
            channels=list(audited[:SHOWN_CHANNELS]),
            more=more,
            key=name,
            user=grant.subject,
            client=exchange.client,
            traceparent=traceparent or None,
        )
