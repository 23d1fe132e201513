from __future__ import annotations

import pytest

from pushup.host.process_limits import raise_file_limit


@pytest.fixture(scope="session", autouse=True)
def file_limit() -> int:
    """The tests open thousands of connections in this process."""
    return raise_file_limit()
