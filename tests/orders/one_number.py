"""The other cursor: one number for all logs, the time up to which a client has seen everything.

A node may only answer up to the *low-water mark*: the earliest time that one of the logs of these channels may still
give to an entry. So it asks each of their servers for its clock, and a log that cannot be reached holds back all. The
rest is the same model. An epoch that continues no other tells of the loss by the time at which it began.
"""

from __future__ import annotations

from types import ModuleType

from tests.orders import model
from tests.orders.model import Answer, Gap, Message, Node, Server, Unavailable, bits_of
from tests.orders.world import SKEW


class OneNumberNode(Node):
    def answer(self, channels: tuple[str, ...], cursor: str, limit: int) -> Answer:
        leaves = sorted({self.leaf(channel) for channel in channels})
        states = [self.follow(leaf) for leaf in leaves]
        low = min(self._mark(leaf) for leaf in leaves)
        after = {"earliest": -1, "now": low}.get(cursor)
        if after is None:
            after = int(cursor)
            low = max(low, after)
        gaps: list[Gap] = []
        found: dict[Message, list[str]] = {}
        for state in states:
            for name in [channel for channel in channels if bits_of(channel).startswith(state.prefix)]:
                channel = state.channels.get(name)
                if cursor not in ("earliest", "now"):
                    if after < state.began - 1:
                        gaps.append(Gap(name, "lost"))
                    elif channel and channel.dropped_at > after:
                        gaps.append(Gap(name, "evicted"))
                for message in channel.messages if channel else ():
                    if after < message.time <= low:
                        found.setdefault(message, []).append(name)
        taken = sorted(found)
        if len(taken) > limit:  # messages of one time come together
            low = taken[limit - 1].time
            taken = [message for message in taken if message.time <= low]
        names = {message: tuple(c for c in channels if c in found[message]) for message in taken}
        messages = tuple((message.id, message.data, names[message]) for message in taken)
        return Answer(str(low), messages, len(taken) < len(found), tuple(gaps))

    def _time(self, server: Server) -> int:
        """Later than any mark that another server can have given: clocks may differ by so much."""
        return server.clock + SKEW

    def _mark(self, leaf: str) -> int:
        server = self._server(leaf)
        log = server.log(leaf)
        if log is None:
            raise Unavailable
        if log.is_sealed:  # its children go on from there, by clocks that may be behind
            return log.time - 1
        return max(log.time, server.clock) - 1


def one_number() -> ModuleType:
    """The model with these nodes."""
    module = ModuleType("one_number")
    module.__dict__.update(vars(model), Node=OneNumberNode, ALLOWS_LATE=True)
    return module
