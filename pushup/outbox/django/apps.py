"""The application's configuration."""

from django.apps import AppConfig


class OutboxConfig(AppConfig):  # type: ignore[misc]  # Django has no types
    name = "pushup.outbox.django"
    label = "pushup_outbox"
    default_auto_field = "django.db.models.BigAutoField"
    verbose_name = "PushUp outbox"
