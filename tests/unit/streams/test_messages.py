"""JSON messages: strict about what they know, deaf to what they do not, and never at the mercy of a sender."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventd.streams.base64_text import write_bytes
from eventd.streams.messages import (
    At,
    BadMessage,
    CacheGetRequest,
    CachePutRequest,
    CacheValue,
    PublishRequest,
    SubscribeRequest,
    is_named,
    read_message,
    read_payload,
    require_names,
    write_message,
)

PUBLISH: dict[str, Any] = {"type": "publish", "tenant_id": "t", "namespace": "n", "stream": "s", "payload": "aGk="}


def read(text: str | bytes) -> Any:
    return read_message(text.encode() if isinstance(text, str) else text)


def test_members_are_in_any_order_and_unknown_ones_are_ignored() -> None:
    message = read(json.dumps({"later": [{}], **dict(reversed(PUBLISH.items()))}))
    assert message == PublishRequest(tenant_id="t", namespace="n", stream="s", payload="aGk=")


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "null", "1", '"publish"', "{}", '{"type":1}', '{"type":null}'),
        '{"type":"ok"}x',
        '{"type":"publish","stream":"s"}',
        '{"type":"publish","stream":1,"payload":""}',
        '{"type":"publish","stream":"s","payload":"","request_id":7.0}',
        '{"type":"publish","stream":"s","payload":"","request_id":-1}',
        '{"type":"publish","stream":"s","payload":"","request_id":1e3}',
        '{"type":"publish","stream":"s","payload":"","request_id":18446744073709551616}',
        '{"type":"publish","stream":"s","payload":"","request_id":true}',
        '{"type":"publish","stream":"s","payload":"","ack":"all"}',
        '{"type":"publish","stream":"s","stream":"s","payload":""}',
        '{"type":"ok","type":"ok"}',
        '{"type":"ok","typ\\u0065":"ok"}',
        '{"type":"subscribe","stream":"s","start":"first"}',
        '{"type":"subscribe","stream":"s","start":{"offset":-1}}',
        '{"type":"subscribe","stream":"s","start":{"offset":18446744073709551616}}',
        '{"type":"cache_value","tenant_id":"t","namespace":"n","cache":"c","key":"k"}',
        '{"type":"auth","tenant_id":"t","token":"x","client_flags":65536}',
        b'{"type":"ok","unknown":"\xff"}',
        '{"type":"ok","unknown":NaN}',
    ],
)
def test_malformed(text: str | bytes) -> None:
    with pytest.raises(BadMessage, match=r"^malformed message$"):
        read(text)


@pytest.mark.parametrize("kind", ["publish_all", "", "Publish"])
def test_unknown_type(kind: str) -> None:
    with pytest.raises(BadMessage, match=r"^unknown message type$"):
        read(json.dumps({"type": kind}))


@pytest.mark.parametrize(("depth", "fits"), [(63, True), (64, False), (1_000_000, False)])
def test_depth_is_limited_in_unknown_members_too(depth: int, fits: bool) -> None:
    text = '{"type":"ok","unknown":' + "[" * depth + "]" * depth + "}"
    if fits:
        read(text)
    else:
        with pytest.raises(BadMessage, match=r"^malformed message$"):
            read(text)


def test_brackets_in_a_text_are_no_depth() -> None:
    assert read(json.dumps({"type": "error", "message": '"[{' * 1000})).message == '"[{' * 1000


TEXTS = st.sampled_from(['"a"', '""', '"\\\\":"', '"x :"', '"{"', "null", "7", '"\\u0061"'])
MEMBERS = st.lists(
    st.tuples(
        st.sampled_from(["tenant_id", "namespace", "cache", "key", "request_id", "type", "unknown"]),
        st.sampled_from(["", " ", "\n", "\t "]),
        TEXTS,
    ),
    max_size=8,
)


@given(MEMBERS)
def test_a_message_is_read_exactly_if_no_member_of_it_is_given_twice(members: list[tuple[str, str, str]]) -> None:
    text = "".join(f',"{name}"{blank}:{value}' for name, blank, value in members)
    names = [name for name, _, _ in members if name != "unknown"]
    try:
        message = read(f'{{"type":"cache_get"{text}}}')
    except BadMessage:
        return
    assert len({*names, "type"}) == len(names) + 1
    for name, _, value in members:
        assert name == "unknown" or getattr(message, name) == json.loads(value)


@pytest.mark.parametrize("blank", ["", " ", "\t", "\n", "\r", "  "])
@pytest.mark.parametrize("twice", ['"key"{}:"b"', '"request_id"{}:null', '"type"{}:"cache_get"'])
def test_a_member_that_is_given_twice_is_malformed(blank: str, twice: str) -> None:
    head = '"type":"cache_get","tenant_id":"t","namespace":"n","cache":"c"'
    for text in (f'{head},"key":"a","request_id":7,{twice}', f'{head},{twice},"key":"a","request_id":7'):
        with pytest.raises(BadMessage, match="malformed message"):
            read("{" + text.format(blank) + "}")


def test_null_is_as_good_as_left_out() -> None:
    assert read('{"type":"subscribe","stream":"s","start":null,"request_id":null}') == SubscribeRequest(stream="s")


def test_start() -> None:
    assert read('{"type":"subscribe","stream":"s","start":{"offset":3}}').start == At(offset=3)
    assert read('{"type":"subscribe","stream":"s","start":"earliest"}').start == "earliest"


def test_what_is_written() -> None:
    put = CachePutRequest(tenant_id="t", namespace="n", cache="c", key="ü", value="", ttl_ms=None)
    assert (
        write_message(put).decode()
        == '{"type":"cache_put","tenant_id":"t","namespace":"n","cache":"c","key":"ü","value":"","ttl_ms":null}'
    )
    value = CacheValue(tenant_id="t", namespace="n", cache="c", key="k", value=None, request_id="a")
    assert (
        write_message(value).decode()
        == '{"type":"cache_value","tenant_id":"t","namespace":"n","cache":"c","key":"k","value":null,"request_id":"a"}'
    )


@given(st.binary(max_size=80))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    for text in (data, b'{"type":"publish","stream":' + data + b"}", b'{"type":"ok","x":"' + data + b'"}'):
        try:
            read(text)
        except BadMessage:
            continue


@given(st.binary(max_size=80))
def test_bytes(value: bytes) -> None:
    assert read_payload(write_bytes(value)) == value


@pytest.mark.parametrize("text", ["aGk", "aGk=\n", "aGl=", "a-_=", "aGk==", "ü"])
def test_wrong_base64(text: str) -> None:
    with pytest.raises(BadMessage):
        read_payload(text)


def test_names_may_be_left_out_only_where_the_id_is_a_text() -> None:
    named = CacheGetRequest(key="k", request_id="a")
    require_names(named)
    assert is_named(named)
    assert (named.tenant_id, named.namespace, named.cache) == (None, "default", "default")
    for wrong in (
        CacheGetRequest(key="k", request_id=1, tenant_id="t", namespace="n"),
        CacheGetRequest(key="k", tenant_id="t", cache="c"),
        PublishRequest(stream="s", payload="", namespace="n"),
    ):
        with pytest.raises(BadMessage, match=r"^malformed message$"):
            require_names(wrong)


def test_a_large_text_with_brackets_takes_little_memory() -> None:
    text = "[" * 70 + "a" * (2 << 20)
    payload = json.dumps({**PUBLISH, "note": text}).encode()
    tracemalloc.start()
    try:
        read_message(payload)
        assert tracemalloc.get_traced_memory()[1] < 8 * len(payload)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("inside", [b"][" * 100, b"[]" * 100, b"}{" * 100])
def test_brackets_without_order_are_malformed(inside: bytes) -> None:
    with pytest.raises(BadMessage, match="malformed message"):
        read(b'{"type":"ok","x":' + inside + b"}")
