"""Asks the operator's own function who may poll what. It may block: it is called in a helper pool.

    def may_poll(channels: tuple[str, ...], headers: dict[str, str]) -> bool | float | dict: ...

`headers` has the client's header fields, with names in lower case. True allows the poll, a number allows it for this
many seconds, False or a `PermissionError` refuses it; a dict is what `authorize_url` answers (`decision.Decision`).
`pushup.core.errors.Unauthorized` tells the client to log in.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from typing import cast

import msgspec
from twisted.internet.defer import Deferred

from pushup.backends.authorization import Authorizer
from pushup.backends.decision import Decision, call_failed, checked, no_decision
from pushup.backends.helper_pool import HelperPool
from pushup.core.errors import PushUpError

AuthorizerFunction = Callable[[tuple[str, ...], dict[str, str]], object]
"""The operator's function. What it returns is checked."""


class FunctionAuthorizer:
    """Asks a function."""

    def __init__(self, function: AuthorizerFunction, pool: HelperPool) -> None:
        self._function = function
        self._pool = pool

    def __call__(self, channels: tuple[str, ...], headers: Mapping[bytes, bytes]) -> Deferred[Decision]:
        text = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers.items()}
        return self._pool.call(_call, self._function, channels, text).addCallbacks(_decision, call_failed)

    def stop(self) -> None:
        self._pool.stop()

    def renew_connections(self) -> None:
        pass  # it has none


def _call(function: AuthorizerFunction, channels: tuple[str, ...], headers: dict[str, str]) -> object:
    """Call the function, in the thread. An error that clients may be told is returned, not raised."""
    try:
        return function(channels, headers)
    except PushUpError as error:
        return error
    except PermissionError:
        return False
    except BaseException as error:  # also SystemExit: a function that calls sys.exit fails only its own poll
        return no_decision(f"the authorizer raised {type(error).__name__}", error)


def _decision(returned: object) -> Decision:
    if isinstance(returned, PushUpError):
        raise returned
    if isinstance(returned, bool):
        return checked(Decision(returned), "the authorizer")
    if isinstance(returned, int | float):
        return checked(Decision(True, returned), "the authorizer")
    if isinstance(returned, dict):
        try:
            return checked(msgspec.convert(returned, Decision), "the authorizer")
        except msgspec.ValidationError as error:
            raise no_decision(f"the authorizer returned an unexpected dict: {error}") from None
    what = "None" if returned is None else f"a {type(returned).__name__}"
    raise no_decision(f"the authorizer returned {what}; expected True, False, a number of seconds or a dict")


def load(path: str) -> AuthorizerFunction:
    """The function at `package.module:function`, imported from the current directory or the Python path.

    Raises: ValueError, whose text says why it cannot be used.
    """
    module_name, colon, name = path.partition(":")
    if not (module_name and colon and name):
        raise ValueError(f"{path!r} is not of the form package.module:function")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise ValueError(f"cannot import {module_name!r}: {error!r}") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise ValueError(f"there is no function {name!r} in {module_name!r}")
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise ValueError(f"{name!r} in {module_name!r} must be a plain function, which may block: def, not async def")
    if not _takes_two(function):
        raise ValueError(f"{name!r} in {module_name!r} must take two arguments: {name}(channels, headers)")
    return cast(AuthorizerFunction, function)


def _takes_two(function: Callable[..., object]) -> bool:
    """Whether the function accepts two arguments; True if its signature is unknown."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True  # not written in Python
    try:
        signature.bind((), {})
    except TypeError:
        return False
    return True


_check: type[Authorizer] = FunctionAuthorizer
