"""Bugs in how messages are erased."""

from __future__ import annotations

from tests.planted_bugs.bug import Bug, Edit

CACHE = "pushup/core/message_cache.py"

BUGS = (
    Bug(
        "erased-from-one-channel",
        "a message that is deleted stays on all of its channels but the first",
        "a message that is on several channels",
        (
            Edit(
                CACHE,
                "        for name in message.channels:\n"
                "            channel = self._channels.find(name)\n"
                "            if channel is not None and channel.drop(message, reason):\n",
                "        for name in message.channels[:1]:\n"
                "            channel = self._channels.find(name)\n"
                "            if channel is not None and channel.drop(message, reason):\n",
            ),
        ),
        test="tests/core/test_erasure.py",
        why="a call that deletes a channel's messages never ends then",
    ),
    Bug(
        "erased-without-a-gap",
        "a reader who has not seen a deleted message is not told that there was one",
        "most servers that can delete messages",
        (
            Edit(
                "pushup/core/channel.py",
                "            self.erased_sequence = max(self.erased_sequence, message.sequence)\n",
                "            pass\n",
            ),
        ),
        needs=("erase",),
        family="e",
    ),
    Bug(
        "erased-message-stays-in-the-checkpoint",
        "a node that starts from a checkpoint has the deleted message again",
        "as snapshot-without-a-field",
        (
            Edit(
                CACHE,
                "            self._messages.remove(message.sequence)\n            self._changes.note(message.sequence)\n",
                "            self._messages.remove(message.sequence)\n"
                '            if reason != "deleted":\n'
                "                self._changes.note(message.sequence)\n",
            ),
        ),
        needs=("erase",),
        family="e",
    ),
)
