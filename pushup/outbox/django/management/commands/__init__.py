"""`pushup_outbox.py` runs the relay."""
