"""Keys: their syntax, what they allow, and that a door is never left open by mistake."""

from __future__ import annotations

import pytest

from eventd.api.auth import ANYONE, ApiKey, Keys, parse_keys, require_local_name
from eventd.errors import Forbidden, SettingsError, Unauthorized
from eventd.settings import load

ALL = {"read", "write", "delete", "admin"}


def keys(text: str) -> Keys:
    return Keys(lambda: parse_keys(text))


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
        ("k::edge-|core", ALL, ("edge-", "core")),
        ("k:r:a:b", {"read"}, ("a:b",)),
        ("k:", ALL, ()),
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
        ("geheim:reed", "scope 1 of entry 1 is none of read, write, delete, admin and rw"),
        ("a,geheim:r+geheim", "scope 2 of entry 2 is none of"),
        ("a,:r", "entry 2 begins with a colon"),
        ("", "holds no key"),
        (" , \n# geheim", "holds no key"),
        ("geheim:r,geheim:w", "holds one key twice"),
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
        "send it as Authorization: Bearer KEY",
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
    assert caught.value.hint == "it has read, write"


def test_a_key_for_some_groups_is_held_to_them() -> None:
    key = only("k::edge-|core")
    key.require_group("edge-7")
    key.require_group("core")
    for group in ("edge", "xedge-7", "Core"):
        with pytest.raises(Forbidden, match=f"not for the group '{group}'"):
            key.require_group(group)
    with pytest.raises(Forbidden, match="for some groups only"):
        key.require_group(None)


def test_a_key_without_prefixes_is_for_every_group() -> None:
    only("k").require_group("x")
    only("k").require_group(None)


def test_keys_that_cannot_be_read_again_leave_the_old_ones_in_force() -> None:
    texts = ["one", "", "two"]
    found = Keys(lambda: parse_keys(texts.pop(0)))
    with pytest.raises(ValueError, match="holds no key"):
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
    with pytest.raises(SettingsError, match=r"EVENTD_API_KEYS: scope 1 of entry 1") as caught:
        Keys.of(load({}, {"EVENTD_API_KEYS": "geheim:geheim"}))
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize("listen", ["0.0.0.0:8780", "[::]:8780", "10.0.0.1:1", "node.example:1"])
def test_an_api_without_keys_does_not_open_to_other_machines(listen: str) -> None:
    with pytest.raises(SettingsError, match="other machines could reach the API") as caught:
        Keys.of(load({"api_listen": listen}, {}))
    assert "EVENTD_API_KEYS" in caught.value.hint


def test_it_opens_when_keys_are_set_or_when_it_is_said_to_be_meant() -> None:
    assert Keys.of(load({"api_listen": "0.0.0.0:1"}, {"EVENTD_API_KEYS": "k"}))
    assert not Keys.of(load({"api_listen": "0.0.0.0:1", "allow_insecure_no_auth": True}, {}))


def test_keys_that_are_set_but_hold_none_do_not_open_the_door() -> None:
    with pytest.raises(SettingsError, match="EVENTD_API_KEYS: holds no key"):
        Keys.of(load({}, {"EVENTD_API_KEYS": ","}))


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8780", "a.localhost:1", "127.0.0.1:1", "[::1]:1", "::1", ""])
def test_names_of_this_machine(host: str) -> None:
    require_local_name(host)


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8780", "localhost.evil.example", "127.0.0.1.evil.example"]
)
def test_a_name_a_web_page_may_have_pointed_here_is_refused(host: str) -> None:
    with pytest.raises(Forbidden, match="does not answer to the name"):
        require_local_name(host)
