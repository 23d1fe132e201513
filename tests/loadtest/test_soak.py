from __future__ import annotations

import random

import pytest

from loadtest.beyond import soak
from loadtest.beyond.soak import MEANS, Sizes, slope_of
from loadtest.everything import PLAN

TINY = Sizes(fills=0.5, lasts=2.5, every=0.1, polls=20, streams=4)


@pytest.mark.xdist_group("soak")
def test_a_server_is_measured_while_clients_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """No publication and no poll is refused, and what is delivered is counted."""
    monkeypatch.setattr(soak, "FOLLOWING_SECONDS", 0.5)
    monkeypatch.setattr(soak, "POPULAR_SHARE", 0.5)
    ((table,), (figure,)) = soak.measure(TINY)
    assert {table.name, figure.name} == set(PLAN["soak"].writes)
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert row["clients"] == 24
    assert float(row["messages"]) > 300
    assert float(row["unanswered"]) <= 5
    assert float(row["deliveries"]) > 300
    assert row["polls refused"] == 0
    assert float(row["open channels"]) > 300
    (_, memory), (_, heap) = (points[-1] for points in figure.lines.values())
    assert 0 < heap < memory


def test_the_slope_of_a_line_and_of_noise() -> None:
    """1 MB an hour is found exactly; the interval of noise around a flat line has 0 in it, nearly always."""
    steady = [(10.0 * i, 50e6 + 10 * i / 3600 * 1e6) for i in range(10 * MEANS)]
    assert slope_of(steady).value == pytest.approx(1e6)
    assert slope_of(steady).error == pytest.approx(0, abs=1)
    chance = random.Random(1)
    slopes = [slope_of([(10.0 * i, chance.gauss(50e6, 1e6)) for i in range(360)]) for _ in range(200)]
    assert 180 <= sum(abs(slope.value) <= slope.error for slope in slopes) <= 199
