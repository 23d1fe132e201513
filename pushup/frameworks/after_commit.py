"""Publishing after a transaction of SQLAlchemy has been committed."""

from __future__ import annotations

from typing import Any

from sqlalchemy import event
from sqlalchemy.orm import Session, SessionTransaction

from pushup.frameworks.publisher import Outgoing
from pushup.frameworks.site import Site

_WAITING = "pushup.waiting"


def publish_after_commit(site: Site, session: Any, message: Outgoing) -> None:
    """`session`: a Session, scoped_session or AsyncSession. A rollback drops the message, also one to a savepoint."""
    plain = session() if callable(session) else session
    plain = getattr(plain, "sync_session", plain)
    if _WAITING not in plain.info:
        plain.info[_WAITING] = []
        event.listen(plain, "after_commit", lambda session: _committed(site, session))
    plain.info[_WAITING].append((_innermost(plain) or plain.begin(), message))


def _innermost(session: Session) -> SessionTransaction | None:
    return session.get_nested_transaction() or session.get_transaction()


def _committed(site: Site, session: Session) -> None:
    """A savepoint hands its messages to the transaction around it. What another transaction left was rolled back."""
    committed = _innermost(session)
    waiting: list[tuple[SessionTransaction | None, Outgoing]] = session.info[_WAITING]
    if session.in_nested_transaction() and committed is not None:
        waiting[:] = [(committed.parent if each is committed else each, message) for each, message in waiting]
        return
    done = [message for each, message in waiting if each is committed]
    waiting.clear()
    for message in done:
        site.publish(message.channel, message.data, html=message.html)
