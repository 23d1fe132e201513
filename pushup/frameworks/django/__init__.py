"""PushUp for Django: docs/guide/django.md. An application for `INSTALLED_APPS`.

| file | what |
|---|---|
| `views.py` | `live`, `may_poll` and `publish_on_commit` for the application, and the views of `urls` |
| `urls.py` | the token and the scripts |
| `settings.py` | the setting `PUSHUP` |
| `apps.py` | the application, with its system checks |
| `templatetags` | `{% pushup %}` |
"""

from pushup.frameworks.django.views import live, may_poll, publish_on_commit

__all__ = ["live", "may_poll", "publish_on_commit"]
