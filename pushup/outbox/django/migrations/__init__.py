"""`0001_initial.py` creates the tables; `0002_unread.py` adds the columns of messages that wait for readers."""
