"""PushUp in Django, FastAPI and Flask."""
