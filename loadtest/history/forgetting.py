"""Which gaps may be reported without a loss because a channel was forgotten.

Of channels that were forgotten, a server remembers one number: the highest sequence at which any of them could have had
something. A cursor from before it gets a gap on every channel that does not exist. No client is told that number, so
this reckons when a channel can have been forgotten at the earliest, and how far the number can have got by then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loadtest.history.checker import Checker
    from loadtest.history.clients import Follower

SLACK_SECONDS = 1.0
"""Servers go by the times of entries, which may differ from those of the history by the way to the server."""


def may_forget(checker: Checker, follower: Follower) -> bool:
    """Whether some channel may have been forgotten, at a place after this follower's cursor.

    A channel is closed `channel_ttl_seconds` after a publication at the earliest, and forgotten `retention_seconds`
    later, or at once if very many are remembered. It is unknown which channel that was, so the smallest values of any
    count. It can have had nothing after its closing. So a cursor is safe if it has passed a message whose publication
    began after that.
    """
    if not checker.clock_is_true:
        return True
    assumed, publications = checker.assumed, checker.publications.values()
    channels = {channel for publication in publications for channels in publication.channels for channel in channels}
    remembered = assumed.closed_seconds if len(channels) <= assumed.channels_limit else 0.0
    closed_by = checker.now - remembered + SLACK_SECONDS
    if not any(publication.began_at < closed_by - assumed.channel_ttl_seconds for publication in publications):
        return False
    if "-" not in follower.cursor:
        return True
    place_of = checker.order.place
    here = place_of(follower.cursor)
    return not any(
        publication.began_at > closed_by and place_of(publication.ids[0]) <= here
        for publication in publications
        if publication.ids
    )
