"""The server that Hsu §4.1 warns of: PushUp, but for calls to a backend, which run in the event loop itself."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred

from loadtest.kit.server import HelperPool, main


def call_here(pool: HelperPool, function: Any, *arguments: Any, **keywords: Any) -> Deferred[Any]:
    """Call the function now; until it returns, no client is served."""
    return maybeDeferred(function, *arguments, **keywords)


if __name__ == "__main__":
    HelperPool.call = call_here  # type: ignore[assignment,method-assign]
    main()
