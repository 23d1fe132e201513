"""What the checker knows of each publication, and of each chain of cursors."""

from __future__ import annotations

from collections.abc import Iterator

from loadtest.history import events


class Publication:
    """A publication, and what its publisher was told of it."""

    def __init__(self, event: events.Publish) -> None:
        self.name = event.publication
        self.channels = [message.channels for message in event.messages]
        self.data = [message.data for message in event.messages]
        self.ephemeral = [message.ephemeral for message in event.messages]
        self.key = event.key
        self.began_at = event.at
        self.began_after = ""
        """The last id that anybody had been acknowledged when it began."""
        self.ids: tuple[str, ...] = ()
        """What it was acknowledged with; empty if it was not."""
        self.acknowledged_at = 0.0
        self.refused = False

    @property
    def leaves_no_key(self) -> bool:
        """Whether it is published again if it is tried again: all its messages are ephemeral."""
        return all(self.ephemeral)

    def lasting_on(self, channel: str) -> Iterator[str]:
        """The data of its messages on a channel that are not ephemeral: what a gap may be about."""
        for data, channels, is_ephemeral in zip(self.data, self.channels, self.ephemeral, strict=True):
            if channel in channels and not is_ephemeral:
                yield data


class Step:
    """One answer that a subscriber got."""

    def __init__(self, before: str, after: str, gaps: tuple[events.Gap, ...], at: float) -> None:
        self.before = before
        self.after = after
        self.gaps = {gap.channel: gap.reason for gap in gaps}
        self.ends = {gap.channel: gap.until for gap in gaps if gap.until and gap.reason != "lost"}
        """Where gaps end, as cursors; those with a loss are about another order than the messages behind them."""
        self.at = at

    @property
    def tells_of_loss(self) -> bool:
        return "lost" in self.gaps.values()


class Follower:
    """One chain of cursors: what a subscriber asked for and was told."""

    def __init__(self, name: str, channels: tuple[str, ...], cursor: str) -> None:
        self.name = name
        self.channels = channels
        self.cursor = cursor
        self.received: dict[str, str] = {}
        """The id of each message, by its data."""
        self.last_id = ""
        """The id of the last message received since the last loss."""
        self.steps: list[Step] = []
        self.polls = False
        """Whether it waits for an answer."""
        self.has_left = False

    def fork(self, name: str) -> Follower:
        """A copy with another name: the same cursor, and the same messages received."""
        other = Follower(name, self.channels, self.cursor)
        other.received, other.last_id, other.steps = dict(self.received), self.last_id, list(self.steps)
        return other

    @property
    def starts(self) -> bool:
        """Whether it has no cursor of a server yet."""
        return not self.steps
