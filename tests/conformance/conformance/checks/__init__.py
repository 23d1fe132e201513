"""The checks. Each file is one part of the protocol; importing this package registers them all.

| file | part |
|---|---|
| `http` | requests and responses of HTTP, odd bytes included |
| `errors` | problems |
| `names` | names and ids of channels |
| `publishing`, `keys`, `producers`, `acknowledgements` | publications |
| `polling`, `cursors` | polls |
| `streams`, `raw_events` | event streams |
| `ephemeral` | messages that are kept for a moment |
| `delivery` | nothing lost, nothing twice, one order |
| `gaps` | gaps and closings |
| `erasure` | deleting messages |
| `channels` | the calls of channels |
| `access` | publish keys, origins, hosts, tickets |
| `tokens` | signed tokens, revocation |
| `unread` | messages of which an application is told who has not read them |
| `presence` | who follows a channel |
| `limits` | what is within the limits, and beyond |
| `operations` | health, readiness, nodes, metrics |
| `cluster` | a second node of the same service |
"""

from conformance.checks import (
    access,
    acknowledgements,
    channels,
    cluster,
    cursors,
    delivery,
    ephemeral,
    erasure,
    errors,
    gaps,
    http,
    keys,
    limits,
    names,
    operations,
    polling,
    presence,
    producers,
    publishing,
    raw_events,
    streams,
    tokens,
    unread,
)

__all__ = [
    "access", "acknowledgements", "channels", "cluster", "cursors", "delivery", "ephemeral", "erasure", "errors",
    "gaps", "http", "keys", "limits", "names", "operations", "polling", "presence", "producers", "publishing",
    "raw_events", "streams", "tokens", "unread",
]  # fmt: skip
