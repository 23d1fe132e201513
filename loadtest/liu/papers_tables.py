"""The values of PushUp's Tables 1 and 2, by number of connections and method, for each of `INTERVALS`."""

from __future__ import annotations

from collections.abc import Mapping

INTERVALS = (10.0, 20.0, 30.0, 40.0, 50.0)
"""Seconds between two messages."""

Values = Mapping[tuple[int, str], list[float]]

TABLE_1: Values = {
    (10, "CP"): [12.7, 25.8, 39.8, 55.2, 68.2],
    (10, "MLP"): [1.27, 1.27, 1.27, 1.27, 1.27],
    (10, "ELP"): [1.27, 1.27, 1.27, 1.27, 1.27],
    (100, "CP"): [127.4, 277.1, 415.2, 580.5, 745.5],
    (100, "MLP"): [12.7, 12.7, 12.7, 12.7, 13.1],
    (100, "ELP"): [12.7, 12.7, 12.7, 12.7, 12.7],
    (1000, "CP"): [1370.5, 3457.1, 5537.5, 7282.5, 10743.5],
    (1000, "MLP"): [135.5, 132.5, 137.8, 133.4, 135.5],
    (1000, "ELP"): [130.1, 129.5, 132.8, 131.8, 130.5],
}
"""Network traffic, KB."""

TABLE_2: Values = {
    (10, "CP"): [0.6, 0.7, 0.5, 0.7, 0.8],
    (10, "MLP"): [0.1, 0.0, 0.1, 0.2, 0.1],
    (10, "ELP"): [0.2, 0.1, 0.1, 0.4, 0.2],
    (100, "CP"): [0.8, 1.1, 2.5, 3.1, 2.7],
    (100, "MLP"): [0.5, 0.4, 0.5, 0.8, 1.1],
    (100, "ELP"): [0.7, 0.4, 0.8, 1.2, 0.9],
    (1000, "CP"): [2.8, 3.4, 4.5, 5.3, 7.2],
    (1000, "MLP"): [2.3, 2.9, 2.7, 3.5, 3.4],
    (1000, "ELP"): [2.4, 2.8, 1.8, 2.4, 2.9],
}
"""Mean publish trip time, seconds."""
