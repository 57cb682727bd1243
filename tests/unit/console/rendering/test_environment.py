"""How templates look up members of JSON objects, whose names may be those of a dictionary's methods."""

from __future__ import annotations

from typing import Any

import pytest
from jinja2 import UndefinedError

from eventd.console.rendering.environment import templates


def rendered(text: str, **values: Any) -> str:
    made: list[Any] = []
    return templates().from_string(text).render({**values, "made_contexts": made})


def test_a_member_of_an_object_is_found_by_its_name() -> None:
    assert rendered("{{ link.state }} {{ link.lag.events }}", link={"state": "running", "lag": {"events": 3}}) == (
        "running 3"
    )


def test_a_label_of_the_name_of_a_method_hides_no_method() -> None:
    labels = {"items": "a", "get": "b"}
    assert rendered("{% for name, text in labels.items() %}{{ name }}={{ text }};{% endfor %}", labels=labels) == (
        "items=a;get=b;"
    )


def test_a_missing_member_is_an_error_when_it_is_shown_and_can_be_asked_for() -> None:
    with pytest.raises(UndefinedError, match="nothing"):
        rendered("{{ link.nothing }}", link={})
    assert rendered("{{ 'yes' if link.nothing is defined else 'no' }}", link={}) == "no"


def test_a_member_of_an_object_is_looked_up_without_an_attribute_of_the_dictionary() -> None:
    class Members(dict[str, Any]):
        """A dictionary with an attribute, which Jinja's own way finds first."""

    members = Members(state="member")
    members.state = "attribute"  # type: ignore[attr-defined]
    assert rendered("{{ one.state }}", one=members) == "attribute"
    assert rendered("{{ one.state }}", one=dict(members)) == "member"
