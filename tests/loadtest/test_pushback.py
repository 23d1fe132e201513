from __future__ import annotations

import pytest

from loadtest.beyond import pushback
from loadtest.beyond.pushback import Sizes
from loadtest.everything import PLAN

TINY = Sizes(clients=10, rate=20, connections=20, depth=5, seconds=1.0)


@pytest.mark.xdist_group("pushback")
def test_a_flood_beside_other_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every message of the backend is answered, delivered and kept, and the flood is carried out as well."""
    monkeypatch.setattr(pushback, "FIRST_SECONDS", 0.5)
    ((table,), _) = pushback.measure(TINY)
    assert {table.name} == set(PLAN["pushback"].writes)
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    assert [row["flood"] for row in rows] == ["none", "20 x 5 begins", "20 x 5"]
    for row in rows:
        assert float(row["messages"]) == float(row["delivered"]) > 5
    assert float(rows[-1]["of the flood 201"]) > 100
    kept, of = (int(word) for word in table.title.split() if word.isdecimal() and word != "10")
    assert kept == of > 20
