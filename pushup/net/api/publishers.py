"""Who publishes how much: counted by key, limited for the users of tokens, and written to the log if wanted."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import islice

from twisted.logger import Logger

from pushup.core.commands import Publish, Published
from pushup.core.errors import QuotaExceeded
from pushup.core.grant import Grant, scope_of
from pushup.metrics import Metrics

BURST_SECONDS = 5.0
"""A user may publish at once what is allowed in so many seconds."""

NAMES_LIMIT = 10_000
"""Users of whom is known how much they have published lately: some 1.5 MB."""

SHOWN_CHANNELS = 10
"""Channels that a line of the log names; a publication can have 1,000."""

TOKENS = "(token)"
"""What stands for the name of a key where there is none: a token; or nothing, as no key is needed."""
NOBODY = "(none)"

_log = Logger()


class Rate:
    """Allows each name so many units a second, and those of `BURST_SECONDS` at once (a token bucket).

    Kept for each name: when what it has used will be allowed again. Once that has passed, the name may be forgotten.
    """

    def __init__(self, per_second: float, seconds: Callable[[], float]) -> None:
        """`seconds` of a monotonic clock."""
        self._per_second = per_second
        self._seconds = seconds
        self._even_at: dict[str, float] = {}

    def wait(self, name: str, units: int) -> float:
        """Use these units, however many: 0; or, if the name has used too many before, the seconds until it may."""
        now = self._seconds()
        even_at = max(now, self._even_at.get(name, now))
        too_early = even_at - now - BURST_SECONDS
        if too_early > 0:
            return too_early
        if len(self._even_at) >= NAMES_LIMIT:
            self._forget(now)
        self._even_at[name] = even_at + units / self._per_second
        return 0.0

    def _forget(self, now: float) -> None:
        """Forget who has not used anything lately; if that is not half of them, the oldest as well."""
        kept = {name: even_at for name, even_at in self._even_at.items() if even_at > now}
        self._even_at = dict(islice(kept.items(), max(0, len(kept) - NAMES_LIMIT // 2), None))


class Publishers:
    """Knows who has published what."""

    def __init__(
        self,
        metrics: Metrics,
        seconds: Callable[[], float],
        *,
        messages_per_second: float = math.inf,
        audited: tuple[str, ...] = (),
    ) -> None:
        """`messages_per_second`: of one user. `audited`: the channels whose publications are logged, as in a scope.

        Raises: ValueError, if one of these is none.
        """
        self._counts = metrics.messages_by_key
        self._rate = Rate(messages_per_second, seconds)
        self._audited = scope_of(list(audited))
        self.audit = bool(audited)
        """Whether any publications are logged."""

    def check_rate(self, grant: Grant, count: int) -> None:
        """Check that whoever has this token may publish so many messages now. Raises: QuotaExceeded."""
        seconds = self._rate.wait(grant.names[0], count)
        if seconds > 0:
            raise QuotaExceeded(
                "this user has published too many messages lately (subject_messages_per_second)",
                retry_after=math.ceil(seconds),
            )

    def audited_channels(self, command: Publish) -> tuple[str, ...]:
        """Those of its channels whose publications are logged."""
        names = [name for draft in command.messages for name in draft.channels]
        return tuple([name for name in names if self._audited.covers((name,))])

    def published(self, grant: Grant, published: Published, audited: tuple[str, ...]) -> None:
        """Messages were published by whoever has this grant, also on these channels, which are audited."""
        name = grant.key_name or (TOKENS if grant.is_of_token else NOBODY)
        self._counts[name] = self._counts.get(name, 0) + published.count
        if audited:
            names = list(dict.fromkeys(audited))
            more = f" and {len(names) - SHOWN_CHANNELS} more" if len(names) > SHOWN_CHANNELS else ""
            _log.info(
                "published {count} from {epoch}-{sequence} on {channels}{more} by key {key}, user {user!r}",
                count=published.count,
                epoch=published.epoch,
                sequence=published.sequence,
                channels=", ".join(map(repr, names[:SHOWN_CHANNELS])),
                more=more,
                key=name,
                user=grant.subject,
            )
