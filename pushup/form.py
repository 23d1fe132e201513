"""Which form of PushUp runs: compiled, or interpreted (docs/decisions/0019-compiled.md)."""

from __future__ import annotations

from importlib.util import find_spec


def form() -> str:
    """`compiled` or `interpreted`."""
    spec = find_spec("pushup.core.state")
    assert spec is not None
    assert spec.origin is not None
    return "interpreted" if spec.origin.endswith(".py") else "compiled"
