"""Publishing within a transaction of Django."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pushup.outbox.django.models import OutboxMessage
from pushup.outbox.rows import channels_text, data_text


def publish(channels: str | Sequence[str], data: Any, event: str | None = None, *, using: str | None = None) -> None:
    """Publish a message when the transaction commits, and not if it is rolled back. `using`: another database.

    Raises: TypeError, ValueError if the data has no JSON.
    """
    OutboxMessage.objects.using(using).create(channels=channels_text(channels), data=data_text(data), event=event)
