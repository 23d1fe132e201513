"""Errors as HTTP responses (RFC 9457): the table of their statuses, codes and titles."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pushup.core import errors as core_errors
from pushup.core.errors import BadRequest, Overloaded, PushUpError, Unauthorized, Unavailable
from pushup.net import http_errors as http_errors
from pushup.net.http_errors import (
    PROBLEM_TYPES,
    ForbiddenOrigin,
    MethodNotAllowed,
    ProblemType,
    SpokeTls,
    problem,
    problem_type,
)

ERRORS_PAGE = Path(__file__).parents[2] / "docs" / "guide" / "errors.md"


def _errors() -> list[type[PushUpError]]:
    """Every error that a client can be told about."""
    named = {**vars(core_errors), **vars(http_errors)}.values()
    kinds = [kind for kind in named if isinstance(kind, type) and issubclass(kind, PushUpError)]
    return [kind for kind in kinds if kind is not PushUpError]


def _body(error: PushUpError, **options: Any) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(problem(error, **options).body)
    return body


def _error(kind: type[PushUpError]) -> PushUpError:
    return kind("the reason", allow="GET") if kind is MethodNotAllowed else kind("the reason", field="data")


@pytest.mark.parametrize("kind", _errors())
def test_every_error_has_a_problem_type(kind: type[PushUpError]) -> None:
    """Each error or one of its base classes is in the table, and determines the problem."""
    listed = [ancestor for ancestor in kind.__mro__ if ancestor in PROBLEM_TYPES]
    assert listed, f"{kind.__name__} is missing from PROBLEM_TYPES"
    status, code, title, _ = PROBLEM_TYPES[listed[0]]
    response = problem(_error(kind))
    assert (response.status, response.content_type) == (status, b"application/problem+json")
    wanted = {"type": f"urn:pushup:{code}", "title": title, "status": status, "detail": "the reason", "field": "data"}
    if kind is MethodNotAllowed:
        del wanted["field"]
    assert json.loads(response.body) == wanted
    assert (b"WWW-Authenticate" in dict(response.headers)) == (status == 401)


def test_every_error_of_the_program_has_a_listed_base_class() -> None:
    """This includes errors defined elsewhere, such as in a backend."""
    waiting, found = [PushUpError], []
    while waiting:
        subclasses = [kind for kind in waiting.pop().__subclasses__() if kind.__module__.startswith("pushup.")]
        waiting += subclasses
        found += subclasses
    assert set(found) >= set(_errors())
    for kind in found:
        assert any(ancestor in PROBLEM_TYPES for ancestor in kind.__mro__), kind


def test_a_subclass_has_the_type_of_its_nearest_base_class() -> None:
    """An error raised by an authorizer function has a type; one without a listed base class is an internal error."""

    class OutOfCredit(Overloaded):
        pass

    class Strange(PushUpError):
        pass

    assert problem_type(SpokeTls).code == "bad-request"
    assert problem_type(ForbiddenOrigin).code == "forbidden"
    assert problem_type(OutOfCredit) is PROBLEM_TYPES[Overloaded]
    assert problem_type(Strange) == ProblemType(500, "internal-error", "Internal server error")
    assert problem_type(PushUpError).status == 500


def test_the_documentation_matches_the_table() -> None:
    """docs/guide/errors.md lists exactly these codes, with their status, and its examples have these titles."""
    text = ERRORS_PAGE.read_text()
    _, _, table = text.partition("| status | `type`")
    rows = re.findall(r"^\| ([0-9]{3}) \| `([a-z-]+)` \|", table, re.MULTILINE)
    documented = [(int(status), code) for status, code in rows]
    assert sorted(documented) == sorted({kind[:2] for kind in PROBLEM_TYPES.values()})
    titles = {kind.code: kind.title for kind in PROBLEM_TYPES.values()}
    examples = re.findall(r'"type": "urn:pushup:([a-z-]+)", "title": "(.*?)"', text)
    assert examples
    assert all(titles[code] == title for code, title in examples), examples


def test_a_problem_without_a_field() -> None:
    assert "field" not in _body(BadRequest("wrong"))


def test_operator_details_are_not_in_a_problem() -> None:
    """They are neither in the body nor in a header nor in the error's text, unless an operator asks."""
    error = Unavailable("the message log cannot be reached", retry_after=1, operator_detail="10.0.0.7: refused")
    response = problem(error)
    assert b"cannot be reached" in response.body
    assert b"10.0.0.7" not in response.body + b"".join(value for _, value in response.headers)
    assert _body(error, for_operator=True)["detail"] == "the message log cannot be reached: 10.0.0.7: refused"
    assert str(error) == "the message log cannot be reached"


def test_headers_of_problems() -> None:
    """401 says how to authenticate, an overload when to retry, and 405 which methods are allowed."""
    assert dict(problem(Unauthorized("x")).headers)[b"WWW-Authenticate"].startswith(b"Bearer")
    assert dict(problem(Overloaded("x", retry_after=5)).headers)[b"Retry-After"] == b"5"
    assert problem(Overloaded("x")).headers == ()
    assert dict(problem(MethodNotAllowed("x", allow="GET, OPTIONS")).headers)[b"Allow"] == b"GET, OPTIONS"
