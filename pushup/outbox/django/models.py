"""The tables of `pushup.outbox.rows`."""

from django.db import models
from django.db.models.functions import Now


class OutboxMessage(models.Model):  # type: ignore[misc]  # Django has no types
    """A message that is not published yet, or was refused (`error`)."""

    channels = models.TextField()
    data = models.TextField()
    event = models.CharField(max_length=64, null=True)
    sequence = models.BigIntegerField(null=True, unique=True)
    created_at = models.DateTimeField(db_default=Now())
    error = models.TextField(null=True)
    unread_after = models.FloatField(null=True)
    unread_for = models.TextField(null=True)

    class Meta:
        db_table = "pushup_outbox"


class OutboxProducer(models.Model):  # type: ignore[misc]
    """The one row of the relay."""

    id = models.IntegerField(primary_key=True)
    name = models.CharField(max_length=128)
    epoch = models.BigIntegerField()
    next_sequence = models.BigIntegerField()
    holder = models.TextField()
    lease_until = models.FloatField()

    class Meta:
        db_table = "pushup_outbox_producer"
