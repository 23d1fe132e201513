"""What the tests of several broadcasts need."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest


@pytest.fixture
def databases(monkeypatch: pytest.MonkeyPatch) -> list[sqlite3.Connection]:
    """The connections to SQLite that are made, in order; an open journal lets nobody else read its file."""
    made: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def recorded(*arguments: Any, **options: Any) -> sqlite3.Connection:
        made.append(connect(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(sqlite3, "connect", recorded)
    return made
