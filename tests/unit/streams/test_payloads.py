"""Payloads are bytes and come back as they were, whatever they look like."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventd.streams.payloads import payload_of, payloads_of, record_of, texts_of


@given(st.binary(max_size=100) | st.text(max_size=50).map(lambda text: text.encode(errors="surrogatepass")))
def test_every_payload_comes_back(payload: bytes) -> None:
    record = record_of(payload)
    assert payload_of(record) == payload
    json.loads(record)
    assert "\\u0000" not in record


@pytest.mark.parametrize(
    "payload", [b"", b"\0", b"a\0b", b"\xff", b'{"$b64":"aGk="}', b'"', b"\\u0000", "ü".encode(), b"\xed\xa0\x80"]
)
def test_odd_ones(payload: bytes) -> None:
    assert payload_of(record_of(payload)) == payload


@pytest.mark.parametrize(
    "record",
    [
        *("1", "null", "[1, 2]", '{"a": 1}', "{}", '{"$b64":1}', '{"$b64":"aGk"}', '{"$b64":"a-_="}'),
        *('{"$b64":"aGk=","$b64":"aGk="}', '{"$b64":"' + "[" * 5000, '{"$b64":[{"$b64":"aGk="}]}'),
        *('{"$b64":"aGl="}', '{"$b64":"aGk=","a":1}', '{"a":"$b64"}'),
    ],
)
def test_a_record_that_was_written_otherwise_is_its_json(record: str) -> None:
    assert payload_of(record) == record.encode()


def test_escapes_in_a_record_that_was_written_otherwise_are_read() -> None:
    assert payload_of('{"$b64":"\\/\\/8="}') == b"\xff\xff"
    assert payload_of('"a\\/\\u0041\\n"') == b"a/A\n"


@given(st.lists(st.binary() | st.text().map(str.encode)))
def test_records_of_many_payloads_are_those_of_each(payloads: list[bytes]) -> None:
    found = texts_of(payloads)
    assert found.texts == [record_of(payload) for payload in payloads]
    assert found.sizes == [len(text.encode()) for text in found.texts]


@pytest.mark.parametrize("payload", [b'","', b'\\","', b'"', b"\\", b"\\u0000", b"\x00", b"", b",", "é".encode()])
def test_quotes_and_commas_do_not_part_a_payload(payload: bytes) -> None:
    assert texts_of([payload, b"x", payload]).texts == [record_of(payload), '"x"', record_of(payload)]


@given(
    st.lists(
        st.binary(max_size=20).map(record_of)
        | st.text(max_size=20).map(lambda text: record_of(text.encode(errors="surrogatepass")))
        | st.sampled_from(["1", "null", "[]", '{"a":"b"}', '{"$b64":1}', '"\\n"', '""']),
        max_size=6,
    )
)
def test_many_records_have_the_payloads_that_each_of_them_has(records: list[str]) -> None:
    assert payloads_of(records) == [*map(payload_of, records)]
