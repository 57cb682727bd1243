"""Who may use a stream: the first frame, tokens that are refused without a reason, and tokens that end."""

from __future__ import annotations

import asyncio
import json
import time

from tests.support.aioquic_client import RawStream
from tests.support.felix_tokens import TokenMaker, encode
from tests.support.felix_wire import (
    ALL_FLAGS,
    frame,
    message,
    publish,
    publish_acked,
    publish_json,
    read_ack,
    scope,
)
from tests.support.processes import Processes
from tests.support.stream_nodes import Session, StreamNode, session, tenant, topic

ORDERS = "t1/default/orders"
REFUSED = {"type": "error", "message": "auth failed"}


async def refused(line: Session, token: str, why: str, tenant_id: str = "t1") -> None:
    """Check that a token is refused, without a reason, and that the stream ends."""
    stream = line.client.open()
    stream.write(message("auth", tenant_id=tenant_id, token=token, client_flags=ALL_FLAGS), publish(ORDERS, b"x"))
    assert await stream.message() == REFUSED, why
    assert await stream.rest() == [], why


async def told(stream: RawStream) -> dict[str, object]:
    """Return the only message up to the end of a stream."""
    (only,) = await stream.rest()
    found: dict[str, object] = json.loads(only.payload)
    return found


async def test_the_answer_tells_the_flags_of_the_server_to_who_tells_its_own(line: Session) -> None:
    stream = line.client.open()
    assert await stream.ask(line.auth(flags=ALL_FLAGS)) == {"type": "auth_ok", "server_flags": ALL_FLAGS}
    stream = line.client.open()
    assert await stream.ask(line.auth(flags=1)) == {"type": "auth_ok", "server_flags": ALL_FLAGS}
    stream = line.client.open()
    assert await stream.ask(line.auth(flags=0xFFFF)) == {"type": "auth_ok", "server_flags": ALL_FLAGS}
    stream = line.client.open()
    assert await stream.ask(line.auth(flags=None)) == {"type": "ok"}
    stream = line.client.open()
    asked = ["gap", "later", "session", "receipt"]
    answer = await stream.ask(line.auth(ext=asked, session="s-1"))
    assert set(answer.pop("ext")) == {"gap", "session", "receipt"}
    assert answer == {"type": "auth_ok", "server_flags": ALL_FLAGS}
    stream = line.client.open()
    assert (await stream.ask(line.auth(ext=["gap"])))["ext"] == ["gap"]


async def test_nothing_is_done_before_authentication(line: Session) -> None:
    for given in (
        publish(ORDERS, b"x"),
        publish_acked(1, ORDERS, b"x"),
        publish_json(ORDERS, b"x", request_id=1),
        message("subscribe", **scope(ORDERS)),
        message("cache_get", **scope("t1/default/primary", "cache"), key="k", request_id=1),
    ):
        stream = line.client.open()
        stream.write(given, line.auth())
        assert await told(stream) == {"type": "error", "message": "auth required"}
        await stream.stopped()


async def test_each_stream_authenticates_for_itself_and_once(line: Session) -> None:
    stream = await line.stream()
    stream.write(line.auth())
    assert await told(stream) == {"type": "error", "message": "auth already established"}
    await stream.stopped()
    other = line.client.open()
    other.write(publish_acked(1, ORDERS, b"x"))
    assert await told(other) == {"type": "error", "message": "auth required"}


async def test_tokens_that_are_not_valid_are_refused_without_a_reason(node: StreamNode, line: Session) -> None:
    maker, now = node.maker, int(time.time())
    other = TokenMaker("t1")  # the same key id, another key
    header = {"alg": "EdDSA", "kid": "k1"}
    unsigned = maker.token().rpartition(".")[0]
    tokens = {
        "empty": "",
        "no token": "demo-token",
        "two parts": unsigned,
        "no signature": unsigned + ".",
        "another key": other.token(),
        "alg none": maker.signed({"alg": "none"}, maker.claims()),
        "alg none, unsigned": maker.signed({"alg": "none"}, maker.claims()).rpartition(".")[0] + ".",
        "the public key as a shared secret": maker.forged_with_public_key(),
        "alg in capitals": maker.signed({"alg": "EDDSA"}, maker.claims()),
        "alg Ed25519": maker.signed({"alg": "Ed25519"}, maker.claims()),
        "no alg": maker.signed({"kid": "k1"}, maker.claims()),
        "other tenant": maker.token(tid="t2"),
        "expired": maker.token(ttl=-70),
        "long expired": maker.token(exp=0),
        "not yet valid": maker.token(nbf=now + 120),
        "issuer": maker.token(iss="felix"),
        "audience": maker.token(aud="felix"),
        "audience as a list": maker.token(aud=["felix-broker"]),
        **{f"without {claim}": maker.token(**{claim: None}) for claim in maker.claims()},
        "exp as text": maker.token(exp=str(now + 60)),
        "exp as a fraction": maker.token(exp=now + 60.5),
        "exp beyond everything": maker.token(exp=10**40),
        "perms as text": maker.token(perms="stream.publish:*"),
        "a perm that is a number": maker.token(perms=[7]),
        "an unknown action": maker.token("stream.publish:*", "stream.delete:*"),
        "an action without a pattern": maker.token("stream.publish"),
        "an action in capitals": maker.token("Stream.Publish:*"),
        "too many perms": maker.token(*["ns.manage:*"] * 1001),
        "too long": maker.token(jti="x" * (16 << 10)),
        "claims that are a list": maker.signed(header, [maker.claims()]),
        "claims nested deeply": maker.signed(header, {"x": [[[[]]]] * 1000}),
        "padding": maker.token() + "==",
        "not ascii": maker.token() + "ü",
        "spaces": " " + maker.token(),
    }
    for why, token in tokens.items():
        await refused(line, token, why)
    await refused(line, maker.token(), "another tenant's name", tenant_id="t2")
    await refused(line, maker.token(tid="t2"), "an undeclared tenant", tenant_id="t2")
    await refused(line, maker.token(tid=""), "an empty tenant", tenant_id="")
    changed = maker.token().split(".")
    changed[1] = encode(json.dumps(maker.claims(sub="admin")).encode())
    await refused(line, ".".join(changed), "claims of another token")
    log = node.process.log()
    assert maker.token().split(".")[2] not in log
    assert not any(token in log for token in tokens.values() if len(token) > 20)


async def test_tokens_within_the_leeway_and_with_odd_additions_are_taken(node: StreamNode, line: Session) -> None:
    maker, now = node.maker, int(time.time())
    for token in (
        maker.token(ttl=-50),
        maker.token(nbf=now + 50),
        maker.token(nbf=now - 1000, iat=now + 1000),
        maker.token(jti="x", more={"a": [1]}),
        maker.token(perms=[]),
        maker.token("rbac.view:*", "tenant.manage:*", "stream.manage:stream:t1/*"),
        maker.token(header={"alg": "EdDSA"}),
        maker.token(header={"alg": "EdDSA", "kid": "unknown"}),
        maker.token(*["ns.manage:*"] * 500),
    ):
        stream = line.client.open()
        assert (await stream.ask(message("auth", tenant_id="t1", token=token)))["type"] == "ok", token


async def test_streams_without_answers_end_silently(node: StreamNode, line: Session) -> None:
    for given in (
        publish(ORDERS, b"x"),
        message("auth", tenant_id="t1", token="no token"),
        message("auth", tenant_id="t2", token=node.maker.token()),
        line.auth() + line.auth(),
    ):
        stream = line.client.open(unidirectional=True)
        stream.write(given)
        await stream.stopped()


async def allowed(line: Session, request: bytes) -> bool:
    """Return whether a request is allowed."""
    stream = await line.stream()
    answer = await stream.ask(request)
    if stream.is_over or answer.get("message") == "forbidden":
        await stream.over()
    return answer.get("message") != "forbidden"


async def test_permissions_allow_what_their_patterns_match(node: StreamNode) -> None:
    node.create("other/orders")
    publishing = {where: publish_json(where, b"x", request_id=1) for where in (ORDERS, "t1/other/orders")}
    reading = {where: message("subscribe", **scope(where)) for where in (ORDERS, "t1/other/orders")}
    get = message("cache_get", **scope("t1/default/primary", "cache"), key="k", request_id=1)
    put = message("cache_put", **scope("t1/default/primary", "cache"), key="k", value="", ttl_ms=None, request_id=1)
    cases: dict[str, tuple[bool, ...]] = {
        "stream.publish:*": (True, True, False, False, False, False),
        "stream.publish:stream:t1/default/*": (True, False, False, False, False, False),
        "stream.publish:stream:*/orders": (True, True, False, False, False, False),
        "stream.publish:stream:t1/*/o*d*s": (True, True, False, False, False, False),
        "stream.publish:stream:t1/default/orders": (True, False, False, False, False, False),
        "stream.publish:stream:t1/default/order": (False, False, False, False, False, False),
        "stream.publish:stream:T1/default/orders": (False, False, False, False, False, False),
        "stream.publish:stream:t1/default/order?": (False, False, False, False, False, False),
        "stream.publish:cache:t1/*": (False, False, False, False, False, False),
        "stream.subscribe:stream:t1/other/*": (False, False, False, True, False, False),
        "cache.read:*": (False, False, False, False, True, False),
        "cache.write:cache:t1/default/primary": (False, False, False, False, False, True),
    }
    requests = (*publishing.values(), *reading.values(), get, put)
    async with session(node) as line:
        for perm, wanted in cases.items():
            line.token = node.maker.token(perm)
            found = await asyncio.gather(*(allowed(line, request) for request in requests))
            assert tuple(found) == wanted, perm
        line.token = node.maker.token("stream.publish:" + "*a" * 3000 + "*b")
        begun = time.monotonic()
        assert not await allowed(line, publishing[ORDERS])
        assert time.monotonic() - begun < 1


async def test_a_token_that_ends_ends_its_streams_and_subscriptions(node: StreamNode) -> None:
    async with session(node, node.maker.token(ttl=-58.5)) as line:
        begun = time.monotonic()
        reading, stream = await line.subscribe(ORDERS), await line.stream()
        uni = line.uni()
        frames = await stream.rest(5)
        assert [json.loads(each.payload) for each in frames] == [{"type": "error", "message": "token expired"}]
        await reading.stream.over(5)
        await uni.stopped(5)
        assert time.monotonic() - begun < 4
        await refused(line, line.token, "it has expired")
        line.token = node.maker.token()
        await line.publish(ORDERS, b"with another token")


async def test_a_key_or_tenant_that_is_removed_ends_its_streams_within_a_second(node: StreamNode) -> None:
    old, new = TokenMaker("t3", "old"), TokenMaker("t3", "new")
    node.apply(tenant(old, new))
    node.v0("PUT", f"/topics/{topic('t3/default/orders')}", {"durability": "fsync"})
    async with session(node, old.token()) as line, session(node, new.token()) as other:
        line.tenant = other.tenant = "t3"
        where = "t3/default/orders"
        for each, left in ((line, (new,)), (other, ())):
            reading, stream = await each.subscribe(where), await each.stream()
            stays = await other.stream()
            node.apply(tenant(*left)) if left else node.ask("DELETE", "/resources/StreamTenant/t3")
            begun = time.monotonic()
            assert await told(stream) == {"type": "error", "message": "token revoked"}
            await reading.stream.over()
            assert time.monotonic() - begun < 1.5
            await refused(each, each.token, "its key is not declared any more", tenant_id="t3")
            if left:
                stays.write(publish_acked(1, where, b"still"))
                assert read_ack(await stays.frame()).status == 0


async def test_keys_of_the_api_are_tokens_within_their_scopes_and_prefixes(processes: Processes) -> None:
    root = "root-key-of-sixteen-letters"
    reader = "read-key-of-sixteen-letters"
    keys = f"{root}:read+write+admin+delete,{reader}:read:stream:t1:default:|cache:t1:default:"
    node = StreamNode(processes, "keyed", key=root, EVENTD_API_KEYS=keys)
    made = node.ask("POST", "/keys", {"name": "bus", "scopes": ["write"], "prefixes": ["stream:t9:"]})["key"]
    node.create("default/orders"), node.create("other/orders")
    node.v0("PUT", f"/topics/{topic('t9/default/orders')}", {"durability": "fsync"})
    requests = (
        publish_json(ORDERS, b"x", request_id=1),
        message("subscribe", **scope(ORDERS)),
        message("subscribe", **scope("t1/other/orders")),
        message("cache_get", **scope("t1/default/primary", "cache"), key="k", request_id=1),
        message("cache_put", **scope("t1/default/primary", "cache"), key="k", value="", ttl_ms=None, request_id=1),
    )
    async with session(node, root) as line:
        assert [await allowed(line, request) for request in requests] == [True] * 5
        line.token = reader
        assert [await allowed(line, request) for request in requests] == [False, True, False, True, False]
        await refused(line, reader + "x", "it is no key")
        line.token, line.tenant = made, "t9"
        stream = await line.stream()
        stream.write(publish_acked(1, "t9/default/orders", b"x"))
        assert read_ack(await stream.frame()).status == 0
        assert not await allowed(line, message("subscribe", **scope("t9/default/orders")))
        node.ask("POST", "/keys/bus/revoke")
        begun = time.monotonic()
        assert await told(stream) == {"type": "error", "message": "token revoked"}
        assert time.monotonic() - begun < 1.5
        await refused(line, made, "it is revoked", tenant_id="t9")
    assert not [key for key in (root, reader, made) if key in node.process.log()]
    assert node.stop() == 0


async def test_without_keys_and_tenants_everybody_on_this_machine_may_do_everything(processes: Processes) -> None:
    node = StreamNode(processes, "open")
    node.create("default/orders")
    for kind, name in (("StreamTenant", "t1"), ("StreamCache", "t1-primary"), ("StreamCache", "t1-default")):
        node.ask("DELETE", f"/resources/{kind}/{name}")
    async with session(node, "anything") as line:
        await line.publish(ORDERS, b"x")
    assert node.stop() == 0


async def test_a_stream_has_ten_seconds_to_authenticate_and_quiet_subscribers_stay(node: StreamNode) -> None:
    begun = time.monotonic()
    async with session(node, idle_timeout=11.5) as quiet, session(node) as line:
        reading = await quiet.subscribe(ORDERS)
        silent, half, uni = line.client.open(), line.client.open(), line.client.open(unidirectional=True)
        silent.write(b"FLX1")
        half.write(line.auth()[:40])
        uni.write(frame(0, b"", length=100))
        for stream in (silent, half):
            await stream.over(15)
            await stream.stopped()
        await uni.stopped()
        assert 9 < time.monotonic() - begun < 13
        await asyncio.sleep(begun + 13 - time.monotonic())  # longer than the client waits for a sign of life
        assert not quiet.client.is_closed
        await quiet.publish(ORDERS, b"after the silence")
        while b"after the silence" not in reading.payloads:
            await reading.step()
