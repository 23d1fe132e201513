"""Bugs in how the numbers of producers are kept."""

from __future__ import annotations

from tests.planted_bugs.bug import Bug, Edit

PRODUCERS, STATE = "pushup/core/producers.py", "pushup/core/state.py"

MODEL = "tests/core/test_core_model.py"
HONEST = "simulated producers do not make this mistake"

BUGS = (
    Bug(
        "fenced-by-its-own-epoch",
        "a producer may publish once in each epoch",
        "off by one",
        (Edit(PRODUCERS, "        if producer.epoch < row.epoch:\n", "        if producer.epoch <= row.epoch:\n"),),
        family="p",
    ),
    Bug(
        "never-fenced",
        "an earlier epoch of a producer goes on publishing after a later one",
        "a writer that stood still, and does not know that another has taken over",
        (Edit(PRODUCERS, "        if producer.epoch < row.epoch:\n", "        if False:\n"),),
        family="p",
    ),
    Bug(
        "epoch-of-a-repetition-forgotten",
        "a later epoch that repeats the last publication does not end the earlier one",
        "a check that is made only where something is published",
        (Edit(PRODUCERS, "        if known is not None and producer.epoch > row.epoch:\n", "        if False:\n"),),
        family="p",
    ),
    Bug(
        "epoch-of-a-repetition-not-saved",
        "a later epoch that repeats the last publication is not in the next checkpoint",
        "as snapshot-without-a-field",
        (
            Edit(
                PRODUCERS,
                "            self._set(replace(row, epoch=producer.epoch))",
                "            self._rows[row.row_name] = replace(row, epoch=producer.epoch)",
            ),
        ),
        test="tests/core/test_changes.py",
        why="the producer must not publish again before a node starts from that checkpoint",
    ),
    Bug(
        "repetition-moves-its-producer",
        "a producer whose last publication is repeated is forgotten later on some nodes than on others",
        "as expiry-in-insertion-order",
        (
            Edit(
                PRODUCERS,
                "            self._set(replace(row, epoch=producer.epoch))",
                "            self._keep(replace(row, epoch=producer.epoch))",
            ),
        ),
        test="tests/core/test_producer_model.py",
        why="the simulated producers are too few to be forgotten",
    ),
    Bug(
        "hole-accepted",
        "a producer may leave out numbers in an order that is complete",
        "a server that only looks for repetitions",
        (Edit(PRODUCERS, "        elif producer.sequence > row.next and not is_lost:\n", "        elif False:\n"),),
        test=MODEL,
        why=HONEST,
    ),
    Bug(
        "number-used-twice",
        "numbers of the last publication are published again if others are with them",
        "a server that compares whole batches",
        (
            Edit(
                PRODUCERS,
                "        elif producer.sequence < row.next:\n",
                "        elif producer.sequence < row.next and end <= row.next:\n",
            ),
        ),
        family="p",
    ),
    Bug(
        "loss-forgotten-when-repeated",
        "a repeated publication is answered without `after_loss`",
        "an answer that is made of a part of what is stored",
        (
            Edit(
                STATE,
                "            self.producers.add(command, producer, outcome)\n",
                "            self.producers.add(\n"
                "                command, producer, Published(outcome.epoch, outcome.sequence, outcome.count, outcome.time)\n"
                "            )\n",
            ),
        ),
        test=MODEL,
        why="a producer that got no answer does not know whether one was after a loss",
    ),
    Bug(
        "producers-forgotten-at-a-restart",
        "producers are not restored from the checkpoint",
        "as key-forgotten-at-a-restart",
        (
            Edit(
                "pushup/core/state_transfer.py",
                "    for name, table in state.bounded.items():\n        for some in",
                '    for name, table in state.bounded.items():\n        if name == "producers":\n'
                "            continue\n        for some in",
            ),
        ),
        family="p",
    ),
    Bug(
        "earlier-row-of-two-states",
        "a new epoch that begins with two states has the producers of the last, though the other went further",
        "a merge that does not compare",
        (Edit(PRODUCERS, "        return row.epoch, row.next\n", "        return ()\n"),),
        test="tests/core/test_producers.py",
        why="a simulated node rarely begins an epoch with two states of which the first went further",
    ),
    Bug(
        "producer-lost-while-an-epoch-begins",
        "a new epoch does not know a producer that publishes while the node that begins it sends its rows",
        "found by reading, before a release",
        (Edit(PRODUCERS, "        return dict(self._rows)\n", "        return self._rows\n"),),
        test="tests/core/test_producers.py",
        why="an epoch begins over entries that its node does not know only after five tries",
    ),
)
