"""Asks the operator's own code who may poll what: a blocking function, called in a helper pool.

    def may_poll(channels: tuple[str, ...], headers: dict[str, str]) -> bool | float: ...

It gets the client's header fields with names in lower case. True is yes, a number is yes for so many seconds, False is
no, and so is a `PermissionError`. `pushup.core.errors.Unauthorized` says that the client has to log in first.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from typing import cast

from twisted.internet.defer import Deferred

from pushup.backends.authorization import Ask
from pushup.backends.helper_pool import HelperPool
from pushup.backends.verdict import for_seconds, no_verdict, nonsense, not_allowed
from pushup.core.errors import PushUpError

Authorizer = Callable[[tuple[str, ...], dict[str, str]], object]
"""The operator's function; what it returns is checked."""


class OwnCode:
    """Asks a function."""

    def __init__(self, authorizer: Authorizer, pool: HelperPool) -> None:
        self._authorizer = authorizer
        self._pool = pool

    def __call__(self, channels: tuple[str, ...], headers: Mapping[bytes, bytes]) -> Deferred[float | None]:
        text = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers.items()}
        return self._pool.call(_call, self._authorizer, channels, text).addCallback(_verdict)


def _call(authorizer: Authorizer, channels: tuple[str, ...], headers: dict[str, str]) -> object:
    """In the thread: every error of the function's own becomes one that clients may be told."""
    try:
        return authorizer(channels, headers)
    except PushUpError:
        raise
    except PermissionError:
        return False
    except BaseException as error:  # a function that calls sys.exit ends nothing here but its poll
        raise no_verdict(error) from error


def _verdict(given: object) -> float | None:
    if given is True:
        return None
    if given is False:
        raise not_allowed()
    if isinstance(given, int | float):
        return for_seconds(given)
    raise nonsense(f"{given!r}, which is neither True nor False nor a number of seconds")


def load(path: str) -> Authorizer:
    """The function at `package.module:function`; the directory that the server is started in is looked in, too.

    Raises: ValueError saying what is wrong with it.
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
    return cast(Authorizer, function)


def _takes_two(function: Callable[..., object]) -> bool:
    """Whether it can be called with two arguments, as far as is known."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True  # it is not written in Python
    try:
        signature.bind((), {})
    except TypeError:
        return False
    return True


_check: type[Ask] = OwnCode
