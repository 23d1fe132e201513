"""Design 6: one thread accepts; workers search for sockets in a concurrent hash table (Roussev & Wu §3.5).

A socket's key is its hash, which is its address in memory, as in Java. A worker searches from a random key.
"""

from __future__ import annotations

import random
import socket

from loadtest.roussev.baselines import command_line
from loadtest.roussev.baselines.service import serve_client, start_workers
from loadtest.roussev.structures.hash_table import HashTable

CAPACITY = 101
"""From the paper's Table 1. Must be prime."""

KEY_BITS = 31
"""The non-negative part of Java's `int`."""


def serve(listener: socket.socket, *, delay: float, threads: int, capacity: int = CAPACITY) -> None:
    table: HashTable[socket.socket] = HashTable(capacity)

    def work(number: int) -> None:
        rng = random.Random(number)  # noqa: S311  # any order will do; not a secret
        while True:
            client, _ = table.take(rng.getrandbits(KEY_BITS))
            serve_client(client, delay)

    start_workers(threads, work)
    while True:
        client, _ = listener.accept()
        table.insert(client, hash(client))


if __name__ == "__main__":
    command_line.run(serve, capacity=CAPACITY)
