"""The application, with its system checks."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.core import checks

from pushup.frameworks.django.settings import wrong_settings


class PushUpConfig(AppConfig):  # type: ignore[misc]  # Django has no types
    """Its label is `pushup`, as `django` would be that of any other application in a package of this name."""

    name = "pushup.frameworks.django"
    label = "pushup"
    verbose_name = "PushUp"

    def ready(self) -> None:
        checks.register(_check)


def _check(app_configs: Any, **_options: Any) -> list[Any]:
    return [checks.Error(text, id="pushup.E001") for text in wrong_settings()]
