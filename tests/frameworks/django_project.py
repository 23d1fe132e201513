"""A project of Django in this process: no models of its own, SQLite in memory."""

from __future__ import annotations

import django
from django.conf import settings

URL = "http://127.0.0.1:8080"


def channels(user: object) -> list[str]:
    return ["news"]


def configure() -> None:
    """Once in a process; `PUSHUP` may be overridden later."""
    if settings.configured:
        return
    settings.configure(
        ROOT_URLCONF="tests.frameworks.django_urls",
        SECRET_KEY="x" * 50,
        USE_TZ=True,
        ALLOWED_HOSTS=["*"],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}],
        INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "pushup.frameworks.django"],
        PUSHUP={"URL": URL},
    )
    django.setup()
