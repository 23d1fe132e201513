"""Functions become named checks: `must` and `should` in front of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from conformance.trial import Trial

Level = Literal["MUST", "SHOULD"]

Body = Callable[["Trial"], None]


class Failed(Exception):
    """The server does not do what it should; the text says what was expected and what came."""


class NotApplicable(Exception):
    """The check makes no sense for this server; the text says why."""


class Check(NamedTuple):
    """A named check; `requirement` is one of docs/internals/protocol.md."""

    name: str
    level: Level
    requirement: str
    sentence: str
    needs: tuple[str, ...]
    body: Body


CHECKS: dict[str, Check] = {}
"""All checks by name, in the order of their files."""


def must(requirement: str, *needs: str) -> Callable[[Body], Body]:
    """A check of a MUST. `needs`: capabilities (`adapter`); without any, it is about PushUp's own calls (`native`).

    The name is that of the file and the function; the sentence is the docstring.
    """
    return _check("MUST", requirement, needs)


def should(requirement: str, *needs: str) -> Callable[[Body], Body]:
    """A check of a SHOULD; see `must`."""
    return _check("SHOULD", requirement, needs)


def _check(level: Level, requirement: str, needs: tuple[str, ...]) -> Callable[[Body], Body]:
    def register(body: Body) -> Body:
        group = body.__module__.rpartition(".")[2]
        name = f"{group}/{body.__name__}".replace("_", "-")
        sentence = " ".join((body.__doc__ or "").split())
        assert name not in CHECKS, f"two checks are called {name}"
        assert sentence, f"{name} needs a sentence"
        CHECKS[name] = Check(name, level, requirement, sentence, needs or ("native",), body)
        return body

    return register
