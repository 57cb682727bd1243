"""Validation errors of a request, field by field, in the project's words."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, field_validator

from eventd.api.errors.codes import BadParams
from eventd.api.framework.operations import Params
from eventd.api.framework.params import from_query, merge, read_params


class Inner(Params):
    size: int


class Asked(Params):
    group: str
    limit: int = Field(default=10, ge=1, le=100)
    subject_prefix: str = Field(default="", max_length=5)
    type: list[str] = Field(default=[])
    maybe: Annotated[list[str] | None, Field(max_length=2)] = None
    newest: bool = False
    state: Literal["a", "b"] = "a"
    inner: list[Inner] = Field(default=[])
    seconds: float = 0.0
    word: str = "fine"

    @field_validator("word")
    @classmethod
    def _fine(cls, value: str) -> str:
        if value != "fine":
            raise ValueError("is not fine")
        return value


def wrong(**values: Any) -> dict[str, str]:
    with pytest.raises(BadParams) as caught:
        read_params(Asked, {"group": "g", **values})
    fields: dict[str, str] = caught.value.detail["fields"]
    return fields


def test_names_are_camel_case_outside_and_either_inside() -> None:
    assert read_params(Asked, {"group": "g", "subjectPrefix": "10."}).subject_prefix == "10."
    assert read_params(Asked, {"group": "g", "subject_prefix": "10."}).subject_prefix == "10."


def test_what_a_query_says_as_text_is_understood() -> None:
    asked = read_params(Asked, {"group": "g", "limit": "7", "newest": "true", "seconds": "1.5"})
    assert (asked.limit, asked.newest, asked.seconds) == (7, True, 1.5)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"limit": 0}, {"limit": "must be at least 1, not 0"}),
        ({"limit": "200"}, {"limit": "must be at most 100, not '200'"}),
        ({"limit": "x"}, {"limit": "must be a whole number, not 'x'"}),
        ({"limit": 1.5}, {"limit": "must be a whole number, not 1.5"}),
        ({"limit": None}, {"limit": "must be a whole number"}),
        ({"limit": "9" * 5000}, {"limit": f"must be a smaller number, not '{'9' * 60}…'"}),
        ({"newest": "maybe"}, {"newest": "must be true or false, not 'maybe'"}),
        ({"newest": []}, {"newest": "must be true or false"}),
        ({"subjectPrefix": 5}, {"subjectPrefix": "must be text, not 5"}),
        ({"subjectPrefix": "123456"}, {"subjectPrefix": "must have at most 5 characters, not '123456'"}),
        ({"type": "a"}, {"type": "must be a list, not 'a'"}),
        ({"type": ["a", 5]}, {"type[1]": "must be text, not 5"}),
        ({"maybe": ["a", "b", "c"]}, {"maybe": "must have at most 2 entries"}),
        ({"state": "c"}, {"state": "must be 'a' or 'b', not 'c'"}),
        ({"inner": [{"size": 1}, {}]}, {"inner[1].size": "is required"}),
        ({"inner": [5]}, {"inner[0]": "must be an object, not 5"}),
        ({"seconds": "x"}, {"seconds": "must be a number, not 'x'"}),
        ({"word": "bad"}, {"word": "is not fine"}),
        ({"group": "a\0b"}, {"group": "must not contain the character U+0000"}),
        ({"type": ["x", {"y": "\0"}]}, {"type[1].y": "must not contain the character U+0000"}),
        ({"a\0": 1}, {"a\0": "is not a valid field name"}),
    ],
)
def test_each_problem_names_its_field(values: dict[str, Any], told: dict[str, str]) -> None:
    assert wrong(**values) == told


def test_a_value_that_may_be_a_secret_is_not_repeated() -> None:
    class Secretive(Params):
        secret_file: int
        api_token: int

    with pytest.raises(BadParams) as caught:
        read_params(Secretive, {"secretFile": "geheim", "apiToken": "geheim"})
    assert "geheim" not in caught.value.message


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(BadParams) as caught:
        read_params(Asked, {"limit": "geheim", "state": "geheim", "word": "geheim"})
    told = caught.value.message
    assert told.startswith("4 problems in the request:\n")
    assert {line.split()[0] for line in told.splitlines()[1:]} == {"group", "limit", "state", "word"}


def test_one_problem_is_one_line() -> None:
    with pytest.raises(BadParams) as caught:
        read_params(Asked, {})
    assert caught.value.message == "group is required"


def test_an_unknown_field_gets_a_guess_or_the_list() -> None:
    assert wrong(subjectPrefx="x") == {"subjectPrefx": "is not a field of this request, did you mean subjectPrefix?"}
    assert wrong(zzz="x")["zzz"].startswith("is not a field of this request, which has group, limit, subjectPrefix")


def test_a_number_no_database_holds_is_refused() -> None:
    class Free(Params):
        position: int
        at_most: int = 0
        ids: list[int] = Field(default=[])

    for text in (str(2**63), -(2**64)):
        with pytest.raises(BadParams, match="atMost must be a smaller number"):
            read_params(Free, {"position": 1, "atMost": text})
    with pytest.raises(BadParams, match="ids must be a smaller number"):
        read_params(Free, {"position": 1, "ids": [1, 2**63]})
    assert read_params(Free, {"position": 2**63 - 1}).position == 2**63 - 1


def test_a_list_takes_every_value_of_its_name_from_the_query() -> None:
    pairs = [("type", "a"), ("limit", "5"), ("type", "b"), ("maybe", "c")]
    assert from_query(Asked, pairs) == {"type": ["a", "b"], "limit": "5", "maybe": ["c"]}


def test_what_is_no_list_is_given_once() -> None:
    with pytest.raises(BadParams, match="limit is given twice"):
        from_query(Asked, [("limit", "1"), ("limit", "1")])


def test_the_path_may_be_repeated_but_not_contradicted() -> None:
    assert merge({"group": "g"}, {}, {"group": "g", "limit": 1}) == {"group": "g", "limit": 1}
    with pytest.raises(BadParams, match="group is given twice, with different values"):
        merge({"group": "g"}, {"group": "h"})
    with pytest.raises(BadParams, match="limit is given twice"):
        merge({}, {"limit": "1"}, {"limit": 1})
