"""API keys: their syntax, what they allow, and that no mistake leaves the API open."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import pytest

from eventd.api.keys.api_key import ANYONE, OWNER, ApiKey
from eventd.api.keys.configured_keys import parse_keys
from eventd.api.keys.cross_site import require_local_name
from eventd.api.keys.valid_keys import LONGEST_WAIT, Keys, KeyUses
from eventd.errors import Forbidden, SettingsError, Unauthorized
from eventd.runtime.clock import SECOND
from eventd.settings.loading import load
from eventd.store.rows.keys import KeyRow
from eventd.testing import NOW, ManualClock, give_turns

ALL = {"read", "write", "delete", "admin"}


def keys(text: str) -> Keys:
    return Keys(lambda: parse_keys(text))


def line(secret: str, **given: Any) -> KeyRow:
    """A key of the database, of every scope unless `given` says otherwise."""
    digest = hashlib.sha256(secret.encode()).hexdigest()
    return KeyRow(f"key-{secret}", digest, tuple(sorted(ALL)), (), NOW, None, None)._replace(**given)


def only(text: str) -> ApiKey:
    (key,) = parse_keys(text)
    return key


@pytest.mark.parametrize(
    ("entry", "scopes", "prefixes"),
    [
        ("k", ALL, ()),
        ("k:read", {"read"}, ()),
        ("k:r+w", {"read", "write"}, ()),
        ("k:rw", {"read", "write"}, ()),
        ("k:del+d", {"delete"}, ()),
        ("k:A", {"admin"}, ()),
        ("k:look", {"look"}, ()),
        ("k:l+w", {"look", "write"}, ()),
        ("k::edge-|core", ALL, ("edge-", "core")),
        ("k:r:a:b", {"read"}, ("a:b",)),
        ("k: :edge-", ALL, ("edge-",)),
    ],
)
def test_the_forms_of_an_entry(entry: str, scopes: set[str], prefixes: tuple[str, ...]) -> None:
    key = only(entry)
    assert (set(key.scopes), key.prefixes) == (scopes, prefixes)


def test_entries_are_parted_by_commas_and_lines_and_comments_are_left_out() -> None:
    assert len(parse_keys("a, b:r\n# c\n\n  d:w:x\n,")) == 3


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("geheim:reed", "entry 1: scope 1 is not one of look, read, write, delete, admin and rw"),
        ("a,geheim:r+geheim", "entry 2: scope 2 is not one of"),
        ("a,:r", "entry 2 begins with a colon"),
        ("", "contains no key"),
        (" , \n# geheim", "contains no key"),
        ("geheim:r,geheim:w", "contains one key twice"),
        ("geheim:", "entry 1: scope 1 is empty"),
        ("geheim: ", "entry 1: scope 1 is empty"),
        ("geheim:+", "entry 1: scope 1 is empty"),
        ("geheim:r+", "entry 1: scope 2 is empty"),
        ("geheim::", "entry 1: an empty prefix would allow every name"),
        ("geheim:r:", "entry 1: an empty prefix would allow every name"),
        ("a,geheim:r: | ", "entry 2: an empty prefix would allow every name"),
        ("geheim:r:geheim||lab", "entry 1: an empty prefix would allow every name"),
    ],
)
def test_a_wrong_entry_is_named_by_its_number_and_never_shown(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as caught:
        parse_keys(text)
    assert "geheim" not in str(caught.value)


def test_a_key_is_kept_as_its_digest_alone() -> None:
    assert "geheim" not in repr(parse_keys("geheim:r"))


@pytest.mark.parametrize("header", ["Bearer one", "bearer one", "BEARER  one "])
def test_a_known_key_is_found(header: str) -> None:
    assert keys("zero,one:r,two").identify(header) == only("one:r")


@pytest.mark.parametrize("header", ["", "one", "Basic one", "Bearer", "Bearer ", "Token one"])
def test_without_a_key_the_header_is_explained(header: str) -> None:
    with pytest.raises(Unauthorized) as caught:
        keys("one").identify(header)
    assert (caught.value.message, caught.value.hint) == (
        "this API needs a key",
        "with routerctl, use --key-file; programs send it as Authorization: Bearer KEY",
    )


@pytest.mark.parametrize("header", ["Bearer on", "Bearer onee", "Bearer one two", "Bearer \udcff"])
def test_an_unknown_key_is_refused(header: str) -> None:
    with pytest.raises(Unauthorized, match="this key is not known"):
        keys("one").identify(header)


def test_without_keys_everyone_may_do_everything() -> None:
    none = Keys(tuple)
    assert not none
    assert none.identify("") is ANYONE
    assert set(ANYONE.scopes) == ALL


def test_a_scope_that_is_missing_is_named() -> None:
    only("k:rw").require_scope("write")
    with pytest.raises(Forbidden, match="lacks the scope delete") as caught:
        only("k:rw").require_scope("delete")
    assert caught.value.hint == "use a key with this scope; this one has read, write"


@pytest.mark.parametrize(("scopes", "looks"), [("look", True), ("read", True), ("write+delete+admin", False)])
def test_read_alone_includes_look(scopes: str, looks: bool) -> None:
    key = only(f"k:{scopes}")
    assert key.may("look") is looks
    assert not only("k:look").may("read")


def test_a_key_for_some_groups_is_held_to_them() -> None:
    key = only("k::edge-|core")
    key.require_group("edge-7")
    key.require_group("core")
    for group in ("edge", "xedge-7", "Core"):
        with pytest.raises(Forbidden, match=f"not for the group '{group}'"):
            key.require_group(group)
    with pytest.raises(Forbidden, match="limited to some names"):
        key.require_group(None)


def test_a_key_without_prefixes_is_for_every_group() -> None:
    only("k").require_group("x")
    only("k").require_group(None)


def test_keys_that_cannot_be_read_again_leave_the_old_ones_in_force() -> None:
    texts = ["one", "", "two"]
    found = Keys(lambda: parse_keys(texts.pop(0)))
    with pytest.raises(ValueError, match="contains no key"):
        found.reload()
    assert found.identify("Bearer one")
    found.reload()
    assert found.identify("Bearer two")
    with pytest.raises(Unauthorized):
        found.identify("Bearer one")


def test_the_keys_of_the_settings() -> None:
    assert Keys.of(load({}, {"EVENTD_API_KEYS": "one:r"})).identify("Bearer one").scopes == {"read"}
    assert not Keys.of(load({}, {}))


def test_wrong_keys_in_the_settings_are_told_with_their_origin() -> None:
    with pytest.raises(SettingsError, match=r"EVENTD_API_KEYS: entry 1: scope 1") as caught:
        Keys.of(load({}, {"EVENTD_API_KEYS": "geheim:geheim"}))
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize("listen", ["0.0.0.0:8780", "[::]:8780", "10.0.0.1:1", "node.example:1"])
def test_an_api_without_keys_does_not_open_to_other_machines(listen: str) -> None:
    found = Keys.of(load({"api_listen": listen}, {}))
    with pytest.raises(SettingsError, match="other machines can reach the API") as caught:
        found.require_any()
    assert "EVENTD_API_KEYS" in caught.value.hint
    with pytest.raises(Unauthorized):  # also before the first request
        found.identify("")


def test_it_opens_when_there_are_keys_or_when_it_is_said_to_be_meant() -> None:
    others = "0.0.0.0:1"
    set_up = Keys.of(load({"api_listen": others}, {"EVENTD_API_KEYS": "k"}))
    made = Keys.of(load({"api_listen": others}, {}))
    made.reload_from([line("one")])
    meant = Keys.of(load({"api_listen": others, "allow_insecure_no_auth": True}, {}))
    for found in (set_up, made, meant):
        found.require_any()
    assert (bool(set_up), bool(made), bool(meant)) == (True, True, False)


def test_keys_that_are_set_but_hold_none_do_not_open_the_door() -> None:
    with pytest.raises(SettingsError, match="EVENTD_API_KEYS: contains no key"):
        Keys.of(load({}, {"EVENTD_API_KEYS": ","}))


def test_a_key_of_the_database_is_as_good_as_one_of_the_settings() -> None:
    found = keys("one:r")
    found.reload_from([line("two", scopes=("write",), prefixes=("edge-",))])
    assert found.identify("Bearer one").scopes == {"read"}
    two = found.identify("Bearer two")
    assert (two.name, two.scopes, two.prefixes) == ("key-two", {"write"}, ("edge-",))
    found.reload()
    assert found.identify("Bearer two") == two


def test_a_key_that_stands_in_both_is_that_of_the_settings() -> None:
    found = keys("one:r")
    found.reload_from([line("one")])
    assert found.identify("Bearer one").scopes == {"read"}


async def test_an_older_read_does_not_replace_a_later_one() -> None:
    found, begun = Keys(tuple), asyncio.Event()
    older: asyncio.Future[list[KeyRow]] = asyncio.get_running_loop().create_future()

    async def read_before() -> list[KeyRow]:
        begun.set()
        return await older

    async def read_after() -> list[KeyRow]:
        return [line("one", revoked_at=NOW), line("two")]

    first = asyncio.create_task(found.take_over(read_before))
    await begun.wait()
    second = asyncio.create_task(found.take_over(read_after))
    await give_turns()
    older.set_result([line("one")])
    await asyncio.gather(first, second)
    assert found.find("two").name == "key-two"
    with pytest.raises(Unauthorized):
        found.find("one")


def test_a_revoked_key_is_not_known_any_more_and_opens_no_door() -> None:
    found = Keys(tuple)
    found.reload_from([line("one")])
    found.reload_from([line("one", revoked_at=NOW)])
    assert found
    with pytest.raises(Unauthorized, match="not known"):
        found.identify("Bearer one")
    with pytest.raises(Unauthorized, match="needs a key"):
        found.identify("")


def test_an_expired_key_is_told_so() -> None:
    clock = ManualClock()
    found = Keys(tuple, clock=clock)
    found.reload_from([line("one", expires_at=NOW + SECOND)])
    key = found.identify("Bearer one")
    assert found.holds(key)
    clock.advance(1)
    assert not found.holds(key)
    with pytest.raises(Unauthorized, match="this key has expired"):
        found.identify("Bearer one")


def digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def test_the_digest_of_a_key_finds_it_with_its_present_permissions() -> None:
    settings = ["one:r"]
    found = Keys(lambda: parse_keys(settings[0]))
    found.reload_from([line("made", scopes=("read",))])
    assert (found.by_digest(digest("one")), found.by_digest(digest("made"))) == (found.find("one"), found.find("made"))
    settings[0] = "one:w:edge-"
    found.reload()
    found.reload_from([line("made", scopes=("write",))])
    one, made = found.by_digest(digest("one")), found.by_digest(digest("made"))
    assert one
    assert made
    assert (one.scopes, one.prefixes, made.scopes) == ({"write"}, ("edge-",), {"write"})
    settings[0] = "two"
    found.reload()
    assert found.by_digest(digest("one")) is None


def test_the_digest_of_a_key_that_is_revoked_deleted_or_expired_finds_none() -> None:
    clock = ManualClock()
    found = Keys(tuple, clock=clock)
    found.reload_from([line("one"), line("two"), line("short", expires_at=NOW + SECOND)])
    assert all(found.by_digest(digest(secret)) for secret in ("one", "two", "short"))
    found.reload_from([line("one", revoked_at=NOW), line("short", expires_at=NOW + SECOND)])
    assert [found.by_digest(digest(secret)) is None for secret in ("one", "two", "short")] == [True, True, False]
    clock.advance(1)
    assert found.by_digest(digest("short")) is None


def test_a_digest_finds_keys_of_the_api_alone() -> None:
    client = only("one")._replace(digest=digest("certificate"))
    found = Keys(lambda: parse_keys("one"), clients={"ops.example": client})
    found.reload_from([token("two")])
    for wrong in (digest("two"), client.digest, ANYONE.digest, OWNER.digest, b""):
        assert found.by_digest(wrong) is None
    assert found.by_digest(digest("one")) == found.find("one")


def token(secret: str, **given: Any) -> KeyRow:
    """A token of the Routemaster surface."""
    return line(secret, surface="routemaster", scopes=(), label="app", identity="app--1")._replace(**given)


def test_no_token_is_a_key_and_no_key_is_a_token() -> None:
    found = keys("zero")
    found.reload_from([line("one"), token("two")])
    assert found.find("two", "routemaster").identity == "app--1"
    assert found.find("one").scopes == ALL
    for secret, surface in (("zero", "routemaster"), ("one", "routemaster"), ("two", "api"), ("none", "routemaster")):
        with pytest.raises(Unauthorized, match="not known"):
            found.find(secret, surface)  # type: ignore[arg-type]


def test_a_token_alone_neither_closes_nor_opens_the_api() -> None:
    found = Keys(tuple)
    found.reload_from([token("two")])
    assert not found
    assert found.identify("") is ANYONE


def test_what_uses_a_token_ends_with_it_and_not_with_its_name() -> None:
    ended: list[str] = []
    clock = ManualClock()
    found = Keys(tuple, clock=clock)
    found.reload_from([token("two")])
    with found.using(found.find("two", "routemaster"), lambda: ended.append("two")):
        found.reload_from([token("two", label="renamed")])
        assert ended == []
        found.reload_from([])
        assert ended == ["two"]
    found.reload_from([token("two", expires_at=NOW + SECOND)])
    found.find("two", "routemaster")
    clock.advance(1)
    with pytest.raises(Unauthorized, match="has expired"):
        found.find("two", "routemaster")


def test_what_uses_a_key_ends_with_it_and_nothing_else_does() -> None:
    ended: list[str] = []
    found = keys("zero")
    found.reload_from([line("one"), line("two")])
    with (
        found.using(found.identify("Bearer zero"), lambda: ended.append("zero")),
        found.using(found.identify("Bearer one"), lambda: ended.append("one")),
        found.using(found.identify("Bearer two"), lambda: ended.append("two")),
    ):
        found.reload_from([line("one", revoked_at=NOW), line("two")])
        found.reload()
        assert ended == ["one"]
        found.reload_from([line("two", scopes=("read",))])  # it may less than when the use began
        assert ended == ["one", "two"]
    found.reload_from([])
    assert ended == ["one", "two"]


def test_whoever_came_without_a_key_goes_when_there_is_one() -> None:
    ended: list[str] = []
    found = Keys(tuple)
    with found.using(found.identify(""), lambda: ended.append("anyone")):
        found.reload_from([line("one")])
    assert ended == ["anyone"]


async def test_what_uses_a_key_ends_when_it_expires() -> None:
    clock, ended = ManualClock(), asyncio.Event()
    found = Keys(tuple, clock=clock)
    found.reload_from([line("one", expires_at=NOW + 90 * SECOND)])
    with found.using(found.identify("Bearer one"), ended.set):
        for seconds in (LONGEST_WAIT, 29.9):
            clock.advance(seconds)
            await give_turns()
            assert not ended.is_set()
        clock.advance(0.1)
        async with asyncio.timeout(10):
            await ended.wait()
    assert clock.waits == []


async def test_a_key_in_use_expires_by_the_wall_clock_also_when_that_is_set() -> None:
    clock, ended = ManualClock(), asyncio.Event()
    found = Keys(tuple, clock=clock)
    found.reload_from([line("one", expires_at=NOW + 3600 * SECOND)])
    with found.using(found.identify("Bearer one"), ended.set):
        clock.set_wall(NOW - 3600 * SECOND)
        clock.advance(3600)
        await give_turns()
        assert not ended.is_set(), "by the wall clock it has an hour left"
        clock.set_wall(NOW + 86400 * SECOND)
        clock.advance(LONGEST_WAIT)
        async with asyncio.timeout(10):
            await ended.wait()


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8780", "a.localhost:1", "127.0.0.1:1", "[::1]:1", "::1", ""])
def test_names_of_this_machine(host: str) -> None:
    require_local_name(host)


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8780", "localhost.evil.example", "127.0.0.1.evil.example"]
)
def test_a_name_a_web_page_may_have_pointed_here_is_refused(host: str) -> None:
    with pytest.raises(Forbidden, match="does not answer to the name"):
        require_local_name(host)


def test_the_last_use_of_a_key_is_known_until_the_key_is_gone() -> None:
    clock = ManualClock()
    held = Keys(list, clock=clock)
    held.reload_from([line("first"), line("second")])
    began = clock.now()
    clock.advance(60)
    held.find("second")
    assert held.uses() == KeyUses(began, {digest("second").hex(): clock.now()})
    held.reload_from([line("first")])
    assert held.uses().latest == {}


def test_the_last_use_of_a_key_is_known_until_the_key_is_removed() -> None:
    clock = ManualClock()
    used = Keys(lambda: (), clock=clock)
    used.reload_from([line("a")])
    used.find("a")
    uses = {line("a").digest: clock.now()}
    used.reload_from([line("a", revoked_at=clock.now())])
    assert used.uses().latest == uses, "also of one that was revoked"
    used.reload_from([])
    assert used.uses().latest == {}
