"""Live lists in Django, FastAPI and Flask: the application's side of PushUp, over `pushup.client`.

A framework is imported only by its own module, and no part of the server by any.

| file | what |
|---|---|
| `django` | the application for `INSTALLED_APPS` (docs/guide/django.md) |
| `fastapi.py` | `PushUp` for FastAPI (docs/guide/fastapi.md) |
| `flask.py` | `PushUp` for Flask (docs/guide/flask.md) |
| `site.py` | what they share: settings, cursors, tokens, and the element that keeps a list up to date |
| `publisher.py` | publishes in the background |
| `after_commit.py` | calls after a transaction of SQLAlchemy |
| `live.js` | the page's part |
"""
