"""Values that JSON cannot express are refused before they are sent, by their place."""

from __future__ import annotations

from collections import OrderedDict
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

import msgspec
import pytest

from eventd.client.json_values import MOST_LEVELS, require_json, require_payload
from eventd.errors import Invalid

SURROGATE = "\ud800"


class Port(StrEnum):
    UPLINK = "ge-0/0/7"


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "payload", [{}, {"port": "ge-0/0/7"}, {"größe": "groß"}, {"port": Port.UPLINK}, OrderedDict(a="b")]
)
def test_a_payload_of_texts_is_taken(payload: Any) -> None:
    require_payload(payload)


@pytest.mark.parametrize(
    ("payload", "message", "hint"),
    [
        (["a"], "payload is a list, not a dict of texts", "NewEvent(TYPE"),
        ({"ok": "1", "raw": b"x"}, "payload['raw'] is a bytes", "base64.b64encode(value).decode()"),
        ({"seen": datetime(2026, 5, 30, tzinfo=UTC)}, "payload['seen'] is a datetime", "value.isoformat()"),
        ({"n": 7}, "payload['n'] is an int: each value of a payload is a text", "str(value)"),
        ({"n": None}, "payload['n'] is a NoneType", "send a text"),
        ({"n": {"a": "b"}}, "payload['n'] is a dict", "json.dumps(dict(value)) in a payload"),
        ({7: "x"}, "payload has the key 7, an int: keys are texts", 'write "7"'),
        ({"k": SURROGATE}, "payload['k'] contains a lone surrogate", "errors='replace'"),
        ({SURROGATE: "x"}, "a key of payload contains a lone surrogate", "errors='replace'"),
    ],
)
def test_any_other_payload_is_refused_with_its_member_and_what_to_do(payload: Any, message: str, hint: str) -> None:
    with pytest.raises(Invalid) as caught:
        require_payload(payload)
    assert caught.value.message.startswith(message)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    "data",
    [
        *(None, True, 1, 2**70, 1.5, "größe", Port.UPLINK, [], {}, msgspec.Raw(b"[1]")),
        {"a": [{"b": (1, None)}]},
        nested(MOST_LEVELS),
    ],
    ids=str,
)
def test_data_of_json_values_is_taken(data: Any) -> None:
    require_json(data, "data")


@pytest.mark.parametrize(
    ("data", "message", "hint"),
    [
        ({"a": [0, {"b": b"x"}]}, "data['a'][1]['b'] is a bytes, which JSON cannot express", "base64"),
        ([date(2026, 5, 30)], "data[0] is a date, which", "value.isoformat()"),
        ({"a": float("nan")}, "data['a'] is nan, which JSON cannot express", "None or a text"),
        (float("-inf"), "data is -inf, which", "None or a text"),
        ({"a": {1: 2}}, "data['a'] has the key 1, an int: keys are texts", 'write "1"'),
        ([{"k": SURROGATE}], "data[0]['k'] contains a lone surrogate", "base64"),
        ({"a": {1, 2}}, "data['a'] is a set, which", "sorted(value)"),
        (Decimal("1.5"), "data is a Decimal, which", "str(value)"),
        (object(), "data is an object, which", "send a text"),
        (nested(MOST_LEVELS + 1), f"data{'[0]' * MOST_LEVELS} is nested more than 61 levels", "contains itself"),
        ({"k" * 100: b""}, "data['" + "k" * 39 + "…] is a bytes", "base64"),
    ],
)
def test_any_other_data_is_refused_with_its_member_and_what_to_do(data: Any, message: str, hint: str) -> None:
    with pytest.raises(Invalid) as caught:
        require_json(data, "data")
    assert caught.value.message.startswith(message)
    assert hint in caught.value.hint


def test_data_that_contains_itself_is_refused() -> None:
    data: list[Any] = []
    data.append(data)
    with pytest.raises(Invalid, match="nested more than 61 levels deep"):
        require_json(data, "data")
