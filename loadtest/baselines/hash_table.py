"""Design 6: one thread accepts, workers look for the sockets in a concurrent hash table (Roussev & Wu §3.5).

The key of a socket is its hash, which is its address in memory, as in Java; a worker searches from a random key.
"""

from __future__ import annotations

import random
import socket

from loadtest.baselines import command_line
from loadtest.baselines.service import serve_client, start_workers
from loadtest.structures.hash_table import HashTable

CAPACITY = 101
"""As in the paper's Table 1. A prime."""

KEY_BITS = 31
"""Java's integers, without the sign."""


def serve(listener: socket.socket, *, delay: float, threads: int) -> None:
    table: HashTable[socket.socket] = HashTable(CAPACITY)

    def work(number: int) -> None:
        chance = random.Random(number)  # noqa: S311  # any order will do
        while True:
            client, _ = table.take(chance.getrandbits(KEY_BITS))
            serve_client(client, delay)

    start_workers(threads, work)
    while True:
        client, _ = listener.accept()
        table.insert(client, hash(client))


if __name__ == "__main__":
    command_line.run(serve)
