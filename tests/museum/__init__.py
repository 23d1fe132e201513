"""Bugs that other servers and clients had, run against PushUp. docs/lab/museum.md tells their stories.

| file | contents |
|---|---|
| `simulated` | a cluster with a written plan, and what its subscribers were told |
| `following` | a client of an in-memory node that polls and polls again |
"""
