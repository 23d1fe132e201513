"""The outbox for Django: add `pushup.outbox.django` to INSTALLED_APPS.

| file | what |
|---|---|
| `apps.py` | the application's configuration |
| `models.py` | the tables |
| `publishing.py` | `publish` |
| `migrations` | the tables' migrations |
| `management` | the command `manage.py pushup_outbox` |
"""
