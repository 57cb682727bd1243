"""Errors as answers and back: one status each, one shape, nothing lost on the way."""

from __future__ import annotations

import json

import pytest

from eventd import errors
from eventd.api.errors import codes, problems
from eventd.errors import (
    CheckFailed,
    Conflict,
    DatabaseUnavailable,
    DatabaseUnusable,
    EventdError,
    Forbidden,
    Full,
    Invalid,
    NotFound,
    SettingsError,
    TooLarge,
    Unauthorized,
    Unavailable,
)

DECLARED = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, EventdError)]


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (Invalid, 400),
        (Unauthorized, 401),
        (Forbidden, 403),
        (NotFound, 404),
        (codes.WrongMethod, 405),
        (codes.SlowBody, 408),
        (Conflict, 409),
        (TooLarge, 413),
        (codes.WrongMediaType, 415),
        (CheckFailed, 422),
        (EventdError, 500),
        (SettingsError, 500),
        (DatabaseUnavailable, 503),
        (DatabaseUnusable, 503),
        (Full, 507),
    ],
)
def test_each_kind_has_its_status(kind: type[EventdError], status: int) -> None:
    assert codes.API_FORM.status(kind("x")) == status


@pytest.mark.parametrize("kind", DECLARED, ids=lambda kind: kind.__name__)
def test_every_declared_error_goes_out_and_comes_back_as_itself(kind: type[EventdError]) -> None:
    error = kind("what and where", hint="what to do")
    answer = problems.answer(error)
    assert isinstance(answer.body, bytes)
    back = codes.restore(answer.status, answer.body)
    assert (type(back), back.message, back.hint, back.code) == (kind, error.message, error.hint, error.code)


def test_the_shape() -> None:
    assert codes.API_FORM.body(NotFound("no peer 'b'")) == {"error": {"code": "not_found", "message": "no peer 'b'"}}
    told = codes.API_FORM.body(codes.BadParams({"limit": "must be at least 1"}))
    assert told["error"]["detail"] == {"fields": {"limit": "must be at least 1"}}


@pytest.mark.parametrize(("kind", "header"), [(Unauthorized, "WWW-Authenticate"), (Unavailable, "Retry-After")])
def test_headers_that_belong_to_a_status(kind: type[EventdError], header: str) -> None:
    assert header in problems.answer(kind("x")).headers
    assert header not in problems.answer(Invalid("x")).headers


def test_a_method_that_is_not_allowed_names_those_that_are() -> None:
    assert problems.answer(codes.WrongMethod("x"), allow="GET, POST").headers["Allow"] == "GET, POST"


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (404, b"<html>nginx</html>", EventdError),
        (502, b"", EventdError),
        (503, b"[]", Unavailable),
        (401, b'{"error":"text"}', Unauthorized),
        (400, b"\xff", Invalid),
        (418, json.dumps({"error": {"code": "teapot"}}).encode(), EventdError),
    ],
)
def test_an_answer_of_somebody_else_still_tells_its_status(status: int, body: bytes, kind: type[EventdError]) -> None:
    error = codes.restore(status, body)
    assert type(error) is kind
    assert error.message == f"the server answered {status}"


def test_a_code_that_is_not_known_here_goes_by_its_status() -> None:
    told = {"code": "of_a_later_version", "message": "m", "detail": {"x": 1}}
    error = codes.restore(409, json.dumps({"error": told}).encode())
    assert type(error) is Conflict
    assert codes.API_FORM.body(error) == {"error": told}


def test_a_long_message_of_an_answer_is_cut() -> None:
    problem = {"code": "conflict", "message": "m" * 1_000_000, "hint": "h" * 1_000_000}
    error = codes.restore(409, json.dumps({"error": problem}).encode())
    assert isinstance(error, Conflict)
    assert len(str(error)) < 40_000
