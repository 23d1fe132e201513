"""`{% pushup "ID OF THE LIST" %}` keeps a list up to date; the view of its page is decorated with `live`."""

from __future__ import annotations

from typing import Any

from django import template
from django.core.exceptions import ImproperlyConfigured

from pushup.frameworks.site import Markup

register = template.Library()


@register.simple_tag(takes_context=True)  # type: ignore[untyped-decorator]  # Django has no types
def pushup(context: Any, list_id: str, *channels: str, prepend: bool = False) -> Markup:
    """New rows come last, or first with `prepend=True`. Each of several lists names its `channels`."""
    live = getattr(getattr(context, "request", None), "pushup", None)
    if live is None:
        raise ImproperlyConfigured(
            'decorate the view of this page with @live("CHANNEL") of pushup.frameworks.django, '
            "and render its template with the request"
        )
    markup: Markup = live(list_id, *channels, prepend=prepend)
    return markup
