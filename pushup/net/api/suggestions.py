"""The name that was probably meant by one that does not exist: "did you mean ...?" in error details."""

from __future__ import annotations

from difflib import get_close_matches
from functools import lru_cache

NAME_LIMIT = 40
"""Characters of a name that is compared with others, which takes 0.1 ms at most; longer ones resemble none of ours."""

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


@lru_cache(maxsize=256)
def suggestion(name: str, known: tuple[str, ...]) -> str | None:
    """The known name that was probably meant, if any is like it."""
    name = name.lower().removesuffix("[]")
    if name in known:
        return name
    for right in known:
        if name in _SYNONYMS.get(right, ()):
            return right
    return next(iter(get_close_matches(name, known, 1)), None) if len(name) <= NAME_LIMIT else None
