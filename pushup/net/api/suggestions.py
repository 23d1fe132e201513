"""Names that do not exist, as error details show them, and which was probably meant: "did you mean ...?"."""

from __future__ import annotations

from difflib import get_close_matches

NAME_LIMIT = 40
"""Characters of a name that is compared with others, which takes 0.1 ms at most; longer ones resemble
none of ours."""

SHOWN_NAME_LENGTH = 100
"""Characters of a name that an error shows."""

_SYNONYMS = {
    "data": ("body", "content", "message", "msg", "payload", "text", "value"),
    "channels": ("channel", "room", "rooms", "tag", "tags", "topic", "topics"),
    "channel": ("channels", "room", "rooms", "tag", "tags", "topic", "topics"),
    "cursor": ("after", "last_event_id", "last_id", "offset", "position", "since"),
    "timeout": ("hold", "wait"),
    "limit": ("count", "max", "n", "size"),
    "from": ("begin", "start"),
    "to": ("end", "until"),
    "ttl": ("expire", "expires", "expiry", "lifetime", "timeout"),
    "name": ("channel", "id"),
}
"""By our name for a thing, what other services call it."""


def shown_name(name: str) -> str:
    """A name of the client's, or its path or host, as an error shows it."""
    return name if len(name) <= SHOWN_NAME_LENGTH else name[:SHOWN_NAME_LENGTH] + "..."


def suggestion(name: str, known: tuple[str, ...]) -> str | None:
    """The known name that was probably meant, if any is like it."""
    if len(name) > NAME_LIMIT:
        return None
    name = name.lower().removesuffix("[]")
    if name in known:
        return name
    for right in known:
        if name in _SYNONYMS.get(right, ()):
            return right
    return next(iter(get_close_matches(name, known, 1)), None)
