"""Which form of PushUp runs: compiled, or interpreted (docs/decisions/0019-compiled.md)."""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path


def form() -> str:
    """`compiled` or `interpreted`; without importing what may be compiled."""
    core = Path(__file__).with_name("core")
    return "compiled" if any((core / f"state{suffix}").exists() for suffix in EXTENSION_SUFFIXES) else "interpreted"
