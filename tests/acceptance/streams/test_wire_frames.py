"""What frames and messages of a second library do at a node: what is answered, and what becomes of the stream."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.aioquic_client import RawStream
from tests.support.felix_wire import (
    RawFrame,
    WireAck,
    b64,
    body,
    frame,
    message,
    publish,
    publish_acked,
    publish_json,
    read_ack,
    scope,
)
from tests.support.stream_nodes import Session, StreamNode, Subscription

ORDERS = "t1/default/orders"
VECTORS = Path(__file__).parents[2] / "vectors" / "felix"


def upstream(name: str) -> bytes:
    """Return a frame of the test data of the protocol."""
    return bytes.fromhex(json.loads((VECTORS / f"{name}.json").read_text())["frame_hex"])


NO_MESSAGES = [
    b"",
    b"{",
    b"[]",
    b"null",
    b'"auth"',
    b'{"type":"cache_get"} x',
    b'{"type":7}',
    b'{"tenant_id":"t1"}',
    b'\xef\xbb\xbf{"type":"ok"}',
    b'{"type":"cache_get","tenant_id":"t1","namespace":"\xff","cache":"c","key":"k"}',
    b'{"type":"cache_get","tenant_id":"t1","namespace":"d","cache":"c","key":"k","key":"k"}',
    b'{"type":"cache_get","type":"cache_get","tenant_id":"t1","namespace":"d","cache":"c","key":"k"}',
    b'{"type":"cache_get","tenant_id":"t1","namespace":"d","cache":"c"}',
    b'{"type":"cache_get","tenant_id":"t1","namespace":"d","key":"k","request_id":1}',
    b'{"type":"cache_get","tenant_id":"t1","namespace":"d","cache":"c","key":7}',
    b'{"type":"cache_get","tenant_id":"t1","namespace":"d","cache":"c","key":"k","request_id":-1}',
    b'{"type":"cache_get","tenant_id":"t1","namespace":"d","cache":"c","key":"k","request_id":7.0}',
    b'{"type":"cache_get","tenant_id":"t1","namespace":"d","cache":"c","key":"k","request_id":1e3}',
    b'{"type":"cache_get","tenant_id":"t1","namespace":"d","cache":"c","key":"k","request_id":18446744073709551616}',
    b'{"type":"cache_get","tenant_id":"t1","namespace":"d","cache":"c","key":"k","request_id":true}',
    b'{"type":"cache_get","tenant_id":"t1","namespace":"d","cache":"c","key":"\\ud800","x":NaN}',
    b'{"type":"publish","tenant_id":"t1","namespace":"d","stream":"s","payload":"aGk","request_id":1}',
    b'{"type":"publish","tenant_id":"t1","namespace":"d","stream":"s","payload":"a-_=","request_id":1}',
    b'{"type":"publish","tenant_id":"t1","namespace":"d","stream":"s","payload":"aG k=","request_id":1}',
    b'{"type":"publish","tenant_id":"t1","namespace":"d","stream":"s","payload":"aGk=","request_id":1,"ack":"some"}',
    b'{"type":"publish_batch","tenant_id":"t1","namespace":"d","stream":"s","payloads":"aGk=","request_id":1}',
    b'{"type":"publish_batch","tenant_id":"t1","namespace":"d","stream":"s","payloads":["aGk=",1],"request_id":1}',
    b'{"type":"subscribe","tenant_id":"t1","namespace":"d","stream":"s","start":"middle"}',
    b'{"type":"subscribe","tenant_id":"t1","namespace":"d","stream":"s","start":{"offset":-1}}',
    b'{"type":"cache_put","tenant_id":"t1","namespace":"d","cache":"c","key":"k","value":null,"request_id":1}',
    b'{"type":"cache_get","x":' + b"[" * 100_000,
    b'{"type":"cache_get","x":' + b"[" * 64 + b"]" * 64 + b"}",
    b'{"type":"cache_get","x":' + b'{"a":' * 100_000,
]


async def ends(stream: RawStream, told: str | None, given: bytes = b"") -> None:
    """Check that the node says `told`, or nothing, and gives the stream up."""
    frames = await stream.rest()
    found = [json.loads(each.payload) for each in frames]
    assert found == ([] if told is None else [{"type": "error", "message": told}]), given
    await stream.stopped()


async def goes_on(stream: RawStream) -> None:
    """Check that the stream answers the next request."""
    stream.write(publish_acked(77, ORDERS, b"on"))
    assert read_ack(await stream.frame())[:2] == (0, 77)


async def test_a_header_that_is_none_is_answered_and_ends_the_stream(line: Session) -> None:
    cases = {
        frame(0, b"{}", magic=b"FLX2"): "invalid magic number",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n": "invalid magic number",
        frame(0, b"{}", version=2): "unsupported version 2",
        frame(0, b"{}", version=0): "unsupported version 0",
        frame(0, b"", length=(16 << 20) + 1): "frame too large",
        frame(1, b"", length=0xFFFFFFFF): "frame too large",
    }
    for given, told in cases.items():
        stream = await line.stream()
        stream.write(given)
        await ends(stream, told)


async def test_before_authentication_a_frame_is_small(line: Session) -> None:
    stream = line.client.open()
    stream.write(frame(0, b"x" * 100, length=(64 << 10) + 1))
    await ends(stream, "frame too large")
    stream = line.client.open()
    padded = json.dumps({"type": "auth", "tenant_id": "t1", "token": line.token, "pad": "x" * 60_000}).encode()
    assert await stream.ask(frame(0, padded)) == {"type": "ok"}


async def test_flags_of_the_other_direction_end_the_stream(line: Session) -> None:
    for flags in (0x0002, 0x0004, 0x0008, 0x0010, 0x0020, 0x003E):
        stream = await line.stream()
        stream.write(frame(flags, body(ORDERS, [b"x"])))
        await ends(stream, "malformed message")


def cut_names() -> list[bytes]:
    whole = body(ORDERS, [b"one", b"two"])
    return [whole[:cut] for cut in range(len(whole))]


async def test_a_wrong_body_of_an_acknowledged_publish_is_answered_by_its_id(line: Session) -> None:
    stream = await line.stream()
    head = (9).to_bytes(8, "big") + b"\2"
    bodies = [
        *cut_names(),
        body(ORDERS, [], count=0xFFFFFFFF),
        body(ORDERS, [b"x"], count=2),
        body(ORDERS, [b""] * 3, count=4),
        body("t1/default/zz", [b"x"]).replace(b"zz", b"\xff\xff"),
    ]
    for each in bodies:
        stream.write(frame(0x0009, head + each))
    for each in bodies:
        assert read_ack(await stream.frame()) == WireAck(1, 9, "malformed publish batch"), each
    await goes_on(stream)


async def test_json_that_is_no_message_is_answered_and_ends_the_stream(line: Session) -> None:
    for payload in NO_MESSAGES:
        stream = await line.stream()
        stream.write(frame(0, payload))
        await ends(stream, "malformed message", payload[:200])


async def test_unknown_types_end_the_stream_and_so_do_answers_from_a_client(line: Session) -> None:
    unknown = {"unknown": "unknown message type", "Publish": "unknown message type", "": "unknown message type"}
    wrong = "unexpected message type"
    cases = {
        **{message(kind): told for kind, told in unknown.items()},
        message("ok"): wrong,
        message("auth_ok", server_flags=1): wrong,
        message("publish_ok", request_id=1): wrong,
        message("subscribed", subscription_id=1): wrong,
        message("event_stream_hello", subscription_id=1): wrong,
        message("cache_ok", request_id=1): wrong,
        upstream("cache_value"): wrong,
        upstream("event"): wrong,
        message("error", message="no"): None,
    }
    for given, told in cases.items():
        stream = await line.stream()
        stream.write(given)
        await ends(stream, told)


async def test_unknown_members_are_ignored_and_members_come_in_any_order(line: Session) -> None:
    stream = await line.stream()
    where = dict(reversed(scope(ORDERS).items()))
    text = json.dumps({"new": [{"deep": [[]]}], "ack": "per_message", "payload": b64(b"x"), "request_id": 3, **where})
    answer = await stream.ask(frame(0, f'{text[:-1]}, "type" : "publish" }}'.encode()))
    assert (answer["type"], answer["request_id"], answer["count"]) == ("publish_ok", 3, 1)
    deep = (
        b'{"type":"cache_get","tenant_id":"t1","namespace":"default","cache":"primary","key":"none","request_id":4,"x":'
    )
    answer = await stream.ask(frame(0, deep + b"[" * 63 + b"]" * 63 + b"}"))
    assert answer["value"] is None
    brackets = json.dumps({"x": "[{" * 1000})[1:]
    answer = await stream.ask(frame(0, deep[:-4] + brackets.encode()))
    assert answer["value"] is None


async def test_both_kinds_of_ids_are_answered_in_their_own_dialect(line: Session) -> None:
    stream = await line.stream()
    texts = {"request_id": "né-1"}
    answer = await stream.ask(message("publish", namespace="default", stream="orders", payload=b64(b"a"), **texts))
    assert (answer["type"], answer["request_id"], answer["count"]) == ("ok", "né-1", 1)
    answer = await stream.ask(publish_json(ORDERS, b"b", request_id=7))
    assert (answer["type"], answer["request_id"]) == ("publish_ok", 7)
    answer = await stream.ask(message("cache_put", key="k", value=b64(b"v"), ttl_ms=None, **texts))
    assert answer == {"type": "ok", **texts}
    answer = await stream.ask(message("cache_get", key="k", **texts))
    assert (answer["type"], answer["value"], answer["request_id"]) == ("cache_value", b64(b"v"), "né-1")
    assert (answer["tenant_id"], answer["namespace"], answer["cache"]) == ("t1", "default", "default")
    answer = await stream.ask(message("publish", stream="nowhere", payload=b64(b"a"), **texts))
    gone = "stream not found: tenant=t1 namespace=default stream=nowhere"
    assert answer == {"type": "error", "message": gone, **texts}
    answer = await stream.ask(publish_json("t1/default/nowhere", b"x", request_id=8))
    assert answer == {"type": "publish_error", "request_id": 8, "message": gone}
    answer = await stream.ask(publish_json(ORDERS, b"x", request_id=2**64 - 1))
    assert answer["request_id"] == 2**64 - 1


async def test_a_number_for_the_id_needs_all_names(line: Session) -> None:
    for given in (
        message("publish", stream="orders", payload=b64(b"b"), request_id=7),
        message("publish", tenant_id="t1", stream="orders", payload=b64(b"b"), request_id=7),
        message("cache_get", tenant_id="t1", namespace="default", key="k"),
    ):
        stream = await line.stream()
        stream.write(given)
        await ends(stream, "malformed message")


async def test_the_frames_of_the_protocols_test_data_get_what_they_earn(node: StreamNode, line: Session) -> None:
    node.create("default/demo")
    stream = await line.stream()
    told = {"type": "error", "message": "missing request_id for acked publish"}
    assert await stream.ask(upstream("publish")) == told
    stream.write(upstream("binary_publish_acked"))
    assert await stream.frame() == RawFrame(0x0010, upstream("binary_publish_ack_ok")[12:])
    assert await stream.ask(upstream("cache_put")) == {"type": "ok"}  # it has no id, so the stream ends
    await ends(stream, None)
    stream = await line.stream()
    stream.write(upstream("cache_get"))
    assert await stream.frame() == RawFrame(0, upstream("cache_value")[12:])
    await ends(stream, None)
    stream = await line.stream()
    stream.write(upstream("subscribe"), end=True)
    assert (await stream.message())["type"] == "subscribed"
    assert await stream.rest() == []


# --- streams without answers ----------------------------------------------------------------------------------------


async def seen_before(reading: Subscription, line: Session, where: str, last: bytes) -> list[bytes]:
    """Return what a subscriber sees before a last record, which is published now."""
    await line.publish(where, last)
    while last not in reading.payloads:
        await reading.step()
    return reading.payloads[:-1]


async def test_streams_without_answers_publish_in_every_form(line: Session) -> None:
    where = "t1/default/notes"
    reading = await line.subscribe(where)
    line.uni(
        publish(where, b"a", b"b"),
        publish_json(where, b"c"),
        publish_json(where, b"d", b"e", request_id=1, ack="per_batch"),
        publish("t1/default/nowhere", b"dropped"),
        publish_json(where, b"f", request_id="text"),
        end=True,
    )
    assert await reading.until(6) == [b"a", b"b", b"c", b"d", b"e", b"f"]


async def test_anything_else_there_ends_the_stream_silently(line: Session) -> None:
    where = "t1/default/notes"
    reading = await line.subscribe(where)
    for given in (
        publish_acked(1, where, b"garbled"),
        frame(0x0003, body(where, [b"odd"])),
        frame(0x0040, b""),
        frame(0x0001, b"\0"),
        publish("t2/default/notes", b"other tenant"),
        frame(0, b"no json"),
        frame(0, b"", magic=b"HTTP"),
        message("subscribe", **scope(where)),
        message("cache_get", **scope("t1/default/primary", "cache"), key="k", request_id=1),
        line.auth(),
    ):
        stream = line.uni(given, publish(where, b"too late"))
        await stream.stopped()
    early = line.client.open(unidirectional=True)
    early.write(publish(where, b"too early"))
    await early.stopped()
    assert await seen_before(reading, line, where, b"last of odd ones") == []
    assert not line.client.opened
