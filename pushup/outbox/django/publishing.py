"""Publishing within a transaction of Django."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pushup.outbox.django.models import OutboxMessage
from pushup.outbox.rows import columns_of


def publish(
    channels: str | Sequence[str],
    data: Any,
    event: str | None = None,
    *,
    unread_after: float | None = None,
    unread_for: Sequence[str] | None = None,
    using: str | None = None,
) -> None:
    """Publish a message when the transaction commits, and not if it is rolled back. `using`: another database.

    Raises: TypeError, ValueError if the data has no JSON.
    """
    OutboxMessage.objects.using(using).create(**columns_of(channels, data, event, unread_after, unread_for))
