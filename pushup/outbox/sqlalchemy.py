"""The outbox for SQLAlchemy: its tables in `metadata`, and `add`."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import iscoroutinefunction
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    DateTime,
    Float,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    func,
    insert,
)
from sqlalchemy.orm import Session

from pushup.outbox.rows import columns_of

metadata = MetaData()

outbox = Table(
    "pushup_outbox",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("channels", Text, nullable=False),
    Column("data", Text, nullable=False),
    Column("event", String(64)),
    Column("sequence", BigInteger, unique=True),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("error", Text),
    Column("unread_after", Float(53)),
    Column("unread_for", Text),
)

producer = Table(
    "pushup_outbox_producer",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("name", String(128), nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("next_sequence", BigInteger, nullable=False),
    Column("holder", Text, nullable=False),
    Column("lease_until", Float(53), nullable=False),
)


def add(
    session: Session | Connection,
    channels: str | Sequence[str],
    data: Any,
    event: str | None = None,
    *,
    unread_after: float | None = None,
    unread_for: Sequence[str] | None = None,
) -> None:
    """Publish a message when the transaction commits, and not if it is rolled back.

    With an AsyncSession: `await session.run_sync(add, channels, data)`.
    Raises: TypeError, ValueError if the data has no JSON; TypeError for an AsyncSession.
    """
    if iscoroutinefunction(session.execute):
        raise TypeError(f"add cannot wait for a {type(session).__name__}: write `await session.run_sync(add, ...)`")
    session.execute(insert(outbox).values(columns_of(channels, data, event, unread_after, unread_for)))
