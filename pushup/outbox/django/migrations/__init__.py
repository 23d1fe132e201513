"""`0001_initial.py` creates the tables."""
