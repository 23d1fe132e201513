"""Who is there: a list that `presence` returns, and that the messages of the channel keep up to date."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pushup.client.values import Gap, Item, Message, unexpected, value_of


@dataclass(frozen=True, slots=True)
class Member:
    """A user who follows the channel. `data` comes from the user's token, or from the application."""

    subject: str
    since: float
    data: Any


class Members:
    """Who follows `channel`. Follow it from `cursor`, and `update` this with what comes.

    `members`: by subject, in the order of joining; None while there are more than the server lists.
    """

    def __init__(self, given: dict[str, Any]) -> None:
        """From the server's answer. Raises: ClientError if it is not one."""
        try:
            self.channel: str = given["channel"]
            self.cursor: str = given["cursor"]
            self.count: int = given["count"]
        except KeyError:
            raise unexpected("Members") from None
        self.members: dict[str, Member] | None = _by_subject(given["members"]) if "members" in given else None

    def update(self, item: Item) -> bool:
        """Take into account what `follow` yielded. False: call `presence` again, and follow from its cursor."""
        if isinstance(item, Gap):
            return item.channel != self.channel
        if not isinstance(item, Message) or item.event != "presence" or self.channel not in item.channels:
            return True
        changed = _by_subject([*item.data.get("joins", []), *item.data.get("updates", [])])
        left = item.data.get("leaves", [])
        self.count = item.data["count"]
        if self.members is not None:
            self.members.update(changed)
            for subject in left:
                self.members.pop(subject, None)
            if len(self.members) == self.count:
                return True
        if changed or left:
            return False
        self.members = None
        return True


def _by_subject(given: list[Any]) -> dict[str, Member]:
    members = [value_of(Member, each) for each in given]
    return {member.subject: member for member in members}
