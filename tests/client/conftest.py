"""Each test runs with both clients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.client.both_clients import KINDS, MakeClient, making


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest) -> Iterator[MakeClient]:
    with making(request.param) as make_client:
        yield make_client
