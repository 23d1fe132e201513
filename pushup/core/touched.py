"""What an entry has done to channels, for those who hold polls on them."""

from __future__ import annotations

from pushup.core.channel import Channel


class Touched:
    """What an entry did that concerns polls: channels with something new, and channels that came or went."""

    __slots__ = ("continued_after", "forgotten", "opened", "woken")

    def __init__(self) -> None:
        self.woken: list[Channel] = []
        """Published to, or closed."""
        self.opened: list[Channel] = []
        self.forgotten: list[Channel] = []
        """As they were when they were forgotten."""
        self.continued_after: int | None = None
        """If the order has a new epoch name: the last sequence up to which cursors of the old one are valid."""

    def clear(self) -> None:
        self.woken.clear()
        self.continued_after = None
        if self.opened:
            self.opened.clear()
        if self.forgotten:
            self.forgotten.clear()
