"""Bugs that others have had, planted in a copy of the source: does the simulation find them? See docs/lab/planted-bugs.md.

| file | what it defines |
|---|---|
| `bug` | a bug as a change of text, and a copy of the source to make it in |
| `core`, `retention`, `erasure`, `producers`, `unread`, `presence`, `server`, `journal`, `redis`, `leases`, `reports` | the bugs, by where they are |
| `found_by_tests`, `outbox`, `workers`, `tokens` | those that only a test can find; of the relay; of a server with workers; of tokens and keys |
| `hunting` | tries one bug |
| `hunt` | what runs in the copy: seeds until a promise is broken |
"""

from __future__ import annotations

from tests.planted_bugs import (
    core,
    erasure,
    found_by_tests,
    journal,
    leases,
    outbox,
    presence,
    producers,
    redis,
    reports,
    retention,
    server,
    tokens,
    unread,
    workers,
)

_FILES = (
    core, retention, erasure, producers, unread, presence, outbox, server, journal, redis, leases, reports, found_by_tests, workers, tokens,
)  # fmt: skip

BUGS = tuple([bug for file in _FILES for bug in file.BUGS])
