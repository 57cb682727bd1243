"""Values that JSON cannot express are refused before they are sent, by their place."""

from __future__ import annotations

from collections import OrderedDict
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from types import MappingProxyType
from typing import Any
from uuid import UUID

import msgspec
import pytest

from eventd.client.json_values import MOST_LEVELS, require_event, require_json, require_payload
from eventd.client.values import NewEvent
from eventd.errors import Invalid

SURROGATE = "\ud800"


class Port(StrEnum):
    UPLINK = "ge-0/0/7"


class Speed(IntEnum):
    TEN = 10


class Key(Enum):
    RAW = b"x"


class Plain(Enum):
    A = "a"


class Text(str):
    __slots__ = ()


class Number(int):
    pass


class Share(float):
    pass


class S:
    pass


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
        ({"n": None}, "payload['n'] is None: each", "leave it out"),
        ({"n": {"a": "b"}}, "payload['n'] is a dict", "send json.dumps(value)"),
        ({"n": ["a"]}, "payload['n'] is a list", "send json.dumps(value)"),
        ({"n": MappingProxyType({})}, "payload['n'] is a mappingproxy", "send json.dumps(dict(value))"),
        ({"n": {"a"}}, "payload['n'] is a set", "send json.dumps(sorted(value))"),
        ({"n": True}, "payload['n'] is a bool", 'send "true" or "false"'),
        ({"n": Text("x")}, "payload['n'] is a Text", "send str(value)"),
        ({"n": Speed.TEN}, "payload['n'] is a Speed", "send str(value.value)"),
        ({7: "x"}, "payload has the key 7, an int: keys are texts", 'write "7"'),
        ({Key.RAW: "x"}, "payload has the key <Key.RAW: b'x'>, a Key", "write str(key.value)"),
        ({Plain.A: "x"}, "payload has the key <Plain.A: 'a'>, a Plain", "write key.value"),
        ({("a",): "x"}, "payload has the key ('a',), a tuple", "write a text"),
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
        *(None, True, 1, 2**70, 1.5, "größe", Port.UPLINK, Speed.TEN, [], {}, {Text("a"): 1}),
        *(msgspec.Raw(b"[1]"), msgspec.Raw(b"-1e999")),
        {"a": [{"b": (1, None)}]},
        nested(MOST_LEVELS),
    ],
    ids=lambda data: bytes(data).decode() if isinstance(data, msgspec.Raw) else str(data),
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
        (UUID(int=1), "data is a UUID, which", "send a text"),
        (S(), "data is an S, which", "send a text"),
        (nested(MOST_LEVELS + 1), f"data{'[0]' * 12}…]{'[0]' * 13} is nested more than 61 levels", "contains itself"),
        ([Text("x")], "data[0] is a Text, which JSON cannot express", "send str(value)"),
        ([Number(1)], "data[0] is a Number, which JSON cannot express", "send int(value)"),
        ([Share(1.5)], "data[0] is a Share, which JSON cannot express", "send float(value)"),
        ([Key.RAW], "data[0] is a bytes, which JSON cannot express", "base64"),
        ([10**5000], "data[0] is an int of too many digits", "hex(value)"),
        (msgspec.Raw(b"[1,]"), "data is a Raw that does not hold a JSON value: JSON is malformed", "json.encode"),
        (msgspec.Raw(b'"\xff"'), "data is a Raw that does not hold a JSON value", "json.encode"),
        (msgspec.Raw(b"[" + b"1" * 5000 + b"]"), "data is a Raw that has an integer of too many digits", "as a text"),
        (msgspec.Raw(b"[" * 5000), "data is a Raw that is nested too deep", "less of it"),
        ([msgspec.Raw(msgspec.json.encode(nested(MOST_LEVELS)))], "data[0]", "contains itself"),
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


def test_an_event_of_texts_and_times_with_a_zone_is_taken() -> None:
    at = datetime(2026, 5, 30, tzinfo=UTC)
    require_event(NewEvent("t", "größe", {"a": "b"}, id="i", ttl="1h"))
    require_event(NewEvent(Port.UPLINK, observed_at=at, expires_at=at))


@pytest.mark.parametrize(
    ("members", "message", "hint"),
    [
        ({"type": ""}, "type is empty", "NewEvent(TYPE, SUBJECT)"),
        ({"type": b"t"}, "type is a bytes, not a text", "value.decode()"),
        ({"subject": 7}, "subject is an int, not a text", "str(value)"),
        ({"id": Text("x")}, "id is a Text, not a text", "str(value)"),
        ({"subject": None}, "subject is None, not a text", "leave it out"),
        *(
            ({name: SURROGATE}, f"{name} contains a lone surrogate", "errors='replace'")
            for name in ("type", "subject", "id", "source_node", "dedupe_key", "ttl")
        ),
        ({"payload": {"n": 7}}, "payload['n'] is an int", "str(value)"),
        ({"observed_at": datetime(2026, 5, 30)}, "observed_at is 2026-05-30T00:00:00, without a time", "tzinfo=UTC"),
        ({"expires_at": datetime(2026, 5, 30)}, "expires_at is 2026-05-30T00:00:00, without a time", "astimezone()"),
        ({"expires_at": date(2026, 5, 30)}, "expires_at is a date, not a datetime", "datetime.now(UTC)"),
    ],
)
def test_an_event_that_no_node_can_take_is_refused(members: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(Invalid) as caught:
        require_event(NewEvent(**{"type": "t", **members}))
    assert caught.value.message.startswith(message)
    assert hint in caught.value.hint
