"""Histories: the checker that judges them, and the file format."""
