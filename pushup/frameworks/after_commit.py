"""Calls after a transaction of SQLAlchemy has been committed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import event
from sqlalchemy.orm import Session, SessionTransaction

_WAITING = "pushup.waiting"

Call = Callable[[], None]


def call_after_commit(session: Any, call: Call) -> None:
    """`session`: a Session, scoped_session or AsyncSession. A rollback drops the call, also one to a savepoint."""
    plain = session() if callable(session) else session
    plain = getattr(plain, "sync_session", plain)
    if _WAITING not in plain.info:
        plain.info[_WAITING] = []
        event.listen(plain, "after_commit", _committed)
    plain.info[_WAITING].append((_innermost(plain) or plain.begin(), call))


def _innermost(session: Session) -> SessionTransaction | None:
    return session.get_nested_transaction() or session.get_transaction()


def _committed(session: Session) -> None:
    """A savepoint hands its calls to the transaction around it. What another transaction left was rolled back."""
    committed = _innermost(session)
    waiting: list[tuple[SessionTransaction | None, Call]] = session.info[_WAITING]
    if session.in_nested_transaction() and committed is not None:
        waiting[:] = [(committed.parent if each is committed else each, call) for each, call in waiting]
        return
    done = [call for each, call in waiting if each is committed]
    waiting.clear()
    for call in done:
        call()
