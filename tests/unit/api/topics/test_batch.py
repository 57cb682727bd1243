"""A batch before it is written: the stored form of its records, and the reasons to refuse it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventd.api.framework.decoding import decode
from eventd.api.topics.write import WriteBody, read_batch
from eventd.errors import Invalid
from eventd.log.core.records import read_body
from eventd.log.core.values import Drafts
from tests.support.schemas import ANYTHING


def read(records: list[Any], **members: Any) -> Drafts:
    return read_batch(decode(msgspec.json.encode({"records": records, **members}), WriteBody))


@given(
    st.lists(
        st.fixed_dictionaries(
            {"data": ANYTHING},
            optional={
                "tag": st.none() | st.text(max_size=9),
                "node": st.none() | st.text(max_size=9),
                "meta": st.none() | ANYTHING,
            },
        ),
        min_size=1,
        max_size=5,
    ),
    st.none() | st.text(max_size=9),
)
def test_every_record_can_be_read_again(records: list[dict[str, Any]], node: str | None) -> None:
    drafts = read(records, node=node)
    found = [read_body(body) for body in drafts.bodies]
    nodes = [node if record.get("node") is None else record["node"] for record in records]
    assert [stored.node for stored in found] == nodes
    assert [stored.tag for stored in found] == [record.get("tag") for record in records]
    for stored, record, size in zip(found, records, drafts.sizes, strict=True):
        assert msgspec.json.decode(stored.data) == record["data"]
        assert (None if stored.meta is None else msgspec.json.decode(stored.meta)) == record.get("meta")
        assert size == len(stored.data.encode()) + len((stored.meta or "").encode())
    assert drafts.sources == {each or "" for each in nodes}
    assert drafts.types == {record["tag"] for record in records if record.get("tag") is not None}


def test_a_refusal_names_the_record() -> None:
    with pytest.raises(Invalid, match=r"record 2: its tag has more than 256 bytes"):
        read([{"data": 1}, {"data": 1}, {"data": 1, "tag": "t" * 257}])
    with pytest.raises(Invalid, match=r"record 0: its data and meta have 1048577 bytes, more than 1048576"):
        read([{"data": "x" * ((1 << 20) - 1)}])


def test_white_space_does_not_count() -> None:
    body = '{"records":[{"data":' + " " * (1 << 20) + "1}]}"
    assert read_batch(decode(body.encode(), WriteBody)).sizes == [1]


def test_keys_of_meta_are_counted_and_values_are_not() -> None:
    inner = {"m": {str(n): n for n in range(100)}}
    assert read([{"data": 1, "meta": inner}]).sizes
    with pytest.raises(Invalid, match="its meta has more than 64 keys"):
        read([{"data": 1, "meta": {str(n): n for n in range(65)}}])
    assert read([{"data": 1, "meta": list(range(100))}]).sizes
