"""The outcomes of Deferreds, for assertions."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure


class Outcome:
    """The outcome of a Deferred: nothing yet, a result or an error."""

    def __init__(self, deferred: Deferred[Any]) -> None:
        self.deferred = deferred
        self._results: list[Any] = []
        self._errors: list[BaseException] = []
        deferred.addCallbacks(self._results.append, self._failed)

    def _failed(self, failure: Failure) -> None:
        assert failure.value is not None
        self._errors.append(failure.value)

    @property
    def fired(self) -> bool:
        return bool(self._results or self._errors)

    @property
    def result(self) -> Any:
        assert not self._errors, self._errors
        (result,) = self._results
        return result

    @property
    def error(self) -> BaseException:
        (error,) = self._errors
        return error
