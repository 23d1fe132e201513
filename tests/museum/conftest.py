"""A fixture for the scenarios with a simulated cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture
def faults_may_be_logged(logged_failures: list[str]) -> Iterator[None]:
    """Simulated servers log the faults that they meet, some as errors."""
    yield
    logged_failures.clear()
