"""JSON whose numbers come out as they went in, and its size as MessagePack."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventd.api.routemaster.json_text import read_json, write_object

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), VALUES, max_size=4))
def test_what_is_written_means_what_was_read(value: dict[str, Any]) -> None:
    text = json.dumps(value)
    size = len(msgspec.msgpack.encode(json.loads(text)))
    written = write_object(read_json(text.encode()), size)
    assert json.loads(written) == json.loads(text)
    assert "\n" not in written
    with pytest.raises(ValueError, match="more than"):
        write_object(read_json(text.encode()), size - 1)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("{}", 1),
        ('{"a":"' + "x" * 31 + '"}', 35),
        ('{"a":"' + "x" * 32 + '"}', 37),
        ('{"a":1.0}', 12),
        ('{"a":127,"b":-32,"c":-33}', 11),
        ('{"a":"ä"}', 6),
    ],
)
def test_sizes_are_those_of_the_shortest_form(text: str, size: int) -> None:
    assert write_object(read_json(text.encode()), size)
    with pytest.raises(ValueError, match="as MessagePack"):
        write_object(read_json(text.encode()), size - 1)


@pytest.mark.parametrize(
    "text", ['{"a":NaN}', '{"a":01}', "{'a':1}", "\ufeff{}", '{"a":1,}', '"\\ud800', "", "[" * 10**5]
)
def test_what_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_json(text.encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize("text", ['{"a":1e400}', '{"a":18446744073709551616}', '{"a":"\\ud800"}', '{"\\udfff":1}'])
def test_what_no_reader_could_hold_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        write_object(read_json(text.encode()), 64)
