"""Tests of the outbox: its rules with SQLite and a simulated PushUp, real databases, and kills at random."""
