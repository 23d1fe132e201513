"""Which build of PushUp runs: its commit, and compiled or interpreted (docs/internals/decisions/0019-compiled.md)."""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

PACKAGE = Path(__file__).parents[1]


def build() -> str:
    """Such as `commit 3f2a51c, compiled`; a checkout, and a build that does not know its commit, say only the form."""
    try:
        commit = (PACKAGE / "commit").read_text().strip()  # setup.py writes it
    except OSError:
        return form()
    return f"commit {commit}, {form()}"


def form() -> str:
    """`compiled` or `interpreted`; without importing what may be compiled."""
    core = PACKAGE / "core"
    return "compiled" if any((core / f"state{suffix}").exists() for suffix in EXTENSION_SUFFIXES) else "interpreted"
