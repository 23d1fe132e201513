"""The setting `PUSHUP`: a dictionary with the arguments of `Site` in upper case; `CHANNELS` may be a dotted path."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from inspect import signature
from typing import Any

from django.conf import settings
from django.core.signals import setting_changed
from django.dispatch import receiver
from django.utils.module_loading import import_string

from pushup.frameworks.site import Site, problems

NAMES = [name.upper() for name in signature(Site).parameters]


@cache
def site() -> Site:
    """The one of this process. Raises ValueError if a setting cannot be used; `manage.py check` says more."""
    return Site(**{name.lower(): value for name, value in _given().items()})


@receiver(setting_changed)  # type: ignore[untyped-decorator]  # Django has no types
def _changed(setting: str, **_more: Any) -> None:
    """Tests have other settings for a while."""
    if setting == "PUSHUP" and site.cache_info().currsize:
        site().close()
        site.cache_clear()


def wrong_settings() -> Iterator[str]:
    """What is wrong with `PUSHUP`, and what to do."""
    if not isinstance(getattr(settings, "PUSHUP", None), dict):
        yield 'set PUSHUP, such as PUSHUP = {"URL": "http://127.0.0.1:8080"}'
        return
    for name in settings.PUSHUP.keys() - set(NAMES):
        yield f"PUSHUP has no {name!r}; it knows {', '.join(NAMES)}"
    try:
        given = _given()
    except ImportError as error:
        yield f'PUSHUP["CHANNELS"] cannot be imported: {error}'
        return
    yield from problems(*map(given.get, ("URL", "KEY", "TOKEN_SECRET", "CHANNELS")))


def _given() -> dict[str, Any]:
    given = dict(settings.PUSHUP)
    if isinstance(given.get("CHANNELS"), str):
        given["CHANNELS"] = import_string(given["CHANNELS"])
    return given
