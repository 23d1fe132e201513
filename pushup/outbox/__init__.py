"""The outbox: messages that the application stores in its own transaction, and that a relay publishes exactly once.

A row is stored or not, with the rest of the transaction. The relay gives the rows numbers, one after the other, and
publishes them as a producer that counts (docs/internals/decisions/0035-outbox.md). `python -m pushup.outbox` and
`pushup outbox` run it. It needs `pushup.client` and the driver of the database; the frameworks only in their modules.

| file | what |
|---|---|
| `rows.py` | the relay's SQL, for PostgreSQL and SQLite |
| `relay.py` | the relay: leases, batches, what is refused |
| `database.py` | connections by a URL; running the relay as a process |
| `sqlalchemy.py` | the tables for SQLAlchemy, and `add` |
| `django` | the application for Django: models, `publish`, the command |
"""

from pushup.outbox.relay import Relay

__all__ = ["Relay"]
