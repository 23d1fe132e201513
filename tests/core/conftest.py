"""What most tests of the core begin with."""

from __future__ import annotations

import pytest

from .builders import Feed


@pytest.fixture
def feed() -> Feed:
    """An empty state with the default limits, and polls held on it."""
    return Feed()
