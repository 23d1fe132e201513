"""Defences of the outbox' relay, each switched off."""

from __future__ import annotations

from tests.planted_bugs.bug import Bug, Edit

ROWS, RELAY = "pushup/outbox/rows.py", "pushup/outbox/relay.py"
TESTS = "tests/outbox/test_relay.py"
WHY = "the relay of the simulation is a model of this one"
TWICE = "a relay that was thought dead goes on"

BUGS = (
    Bug(
        "numbers-without-the-epoch",
        "a relay that has lost its lease still gives numbers",
        TWICE,
        (Edit(ROWS, "AND epoch = ? AND holder = ? RETURNING", "AND ? >= 0 AND ? <> '' RETURNING"),),
        test=TESTS,
        why=WHY,
    ),
    Bug(
        "numbers-beside-numbers",
        "rows get numbers while others have some that are not acknowledged",
        "a batch that is published again must be the same",
        (Edit(ROWS, "sequence IS NOT NULL ORDER BY sequence", "sequence IS NOT NULL AND 1 = 0"),),
        test=TESTS,
        why=WHY,
    ),
    Bug(
        "deleted-before-acknowledged",
        "a batch is deleted although nobody knows whether it was published",
        "the transactional outbox: at least once",
        (
            Edit(
                RELAY,
                "            else:\n                raise\n",
                "            else:\n                rows.delete(batch)\n",
            ),
        ),
        test=TESTS,
        why=WHY,
    ),
    Bug(
        "a-new-name-with-old-numbers",
        "a producer begins under a new name, and its numbers go on",
        "a database that was restored",
        (Edit(ROWS, '"name = ?, next_sequence = 0"', '"name = ?"'),),
        test=TESTS,
        why=WHY,
    ),
    Bug(
        "a-poke-that-nobody-feels",
        "a poke does not wake the relay, which finds the rows at its next look",
        "an outbox that polls",
        (Edit(RELAY, "        self._woken.set()\n\n    def stop", "        pass\n\n    def stop"),),
        test=TESTS,
        why=WHY,
    ),
)
