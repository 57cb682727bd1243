"""Which addresses outgoing connections may lead to: what is public, what entries change, and the messages."""

from __future__ import annotations

import ipaddress
import socket
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eventd.errors import Invalid
from eventd.net.address_rules import (
    CALLBACK_ALLOW,
    CALLBACK_DENY,
    PEER_ALLOW,
    PEER_DENY,
    AddressForbidden,
    AddressRules,
    parse_entries,
)
from eventd.net.literal_address import literal_address, loose_ipv4
from eventd.settings.model import Settings, variable_of

PUBLIC = AddressRules.of_callbacks([], [])
CLOUD = ipaddress.ip_address("168.63.129.16")
NOT_PUBLIC = {
    "127.0.0.1": "a loopback address (127.0.0.0/8)",
    "127.255.255.254": "a loopback address (127.0.0.0/8)",
    "10.1.2.3": "a private address (10.0.0.0/8)",
    "172.16.0.1": "a private address (172.16.0.0/12)",
    "172.31.255.255": "a private address (172.16.0.0/12)",
    "192.168.1.1": "a private address (192.168.0.0/16)",
    "100.64.0.1": "a shared address of a provider's network (100.64.0.0/10)",
    "100.100.100.200": "a shared address of a provider's network (100.64.0.0/10)",
    "169.254.169.254": "a link-local address, where clouds serve metadata (169.254.0.0/16)",
    "168.63.129.16": "an address where a cloud serves metadata (168.63.129.16/32)",
    "0.0.0.0": "an address of this host (0.0.0.0/8)",
    "0.1.2.3": "an address of this host (0.0.0.0/8)",
    "192.0.0.8": "an address reserved for protocols (192.0.0.0/24)",
    "192.88.99.1": "an address of relays to IPv6 (192.88.99.0/24)",
    "192.0.2.1": "an address for documentation (192.0.2.0/24)",
    "198.51.100.1": "an address for documentation (198.51.100.0/24)",
    "203.0.113.1": "an address for documentation (203.0.113.0/24)",
    "198.19.255.255": "an address for benchmarks (198.18.0.0/15)",
    "224.0.0.1": "a multicast address (224.0.0.0/4)",
    "255.255.255.255": "the broadcast address (255.255.255.255/32)",
    "240.0.0.1": "a reserved address (240.0.0.0/4)",
    "::1": "the loopback address (::1/128)",
    "::": "the unspecified address (::/128)",
    "fe80::1": "a link-local address (fe80::/10)",
    "fd00:ec2::254": "a private address (fc00::/7)",
    "ff02::1": "a multicast address (ff00::/8)",
    "2001:db8::1": "an address for documentation (2001:db8::/32)",
    "3fff::1": "an address for documentation (3fff::/20)",
    "2001:1::1": "an address reserved for protocols (2001::/23)",
}
CARRIERS = {
    "::ffff:10.0.0.1": "10.0.0.1",
    "64:ff9b::127.0.0.1": "127.0.0.1",
    "2002:a00:1::1": "10.0.0.1",
    "2001:0:a00:1:0:0:f7f7:f7f7": "10.0.0.1",
    "2001:0:808:808:0:0:f5ff:fffe": "10.0.0.1",
}
"""Addresses of IPv6 that lead to this address of IPv4; of the two in Teredo, the server is the first."""


def judge(address: str, port: int = 443, *, allow: str = "", deny: str = "", host: str = "hooks.example") -> str | None:
    return AddressRules.of_callbacks(allow.split(), deny.split()).judge(address, host, port)


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_an_address_that_is_not_public_is_refused_with_the_reason_and_the_setting(address: str) -> None:
    reason = f"{address} (hooks.example) is {NOT_PUBLIC[address]}"
    assert judge(address) == f"{reason}: allow it with EVENTD_CALLBACK_ALLOW if connections may lead there"
    assert judge(address, allow=address) is None


@pytest.mark.parametrize("address", ["4000::1", "1::1", "64:ff9b:1::1", "fec0::1", "::8.8.8.8", "5f00::1"])
def test_outside_the_public_addresses_of_ipv6_all_is_refused(address: str) -> None:
    assert "is not in 2000::/3, the public addresses" in (judge(address) or "")


@pytest.mark.parametrize("address", ["8.8.8.8", "172.32.0.1", "100.128.0.1", "2600::1", "2a00:1450::1", "3ffe::1"])
def test_a_public_address_is_allowed_on_the_port_of_https_and_above_those_of_the_system(address: str) -> None:
    assert [judge(address, port) for port in (443, 1024, 8443, 65535)] == [None] * 4


@pytest.mark.parametrize("port", [1, 22, 25, 80, 442, 444, 1023])
def test_a_port_of_the_system_needs_an_entry_that_names_it(port: int) -> None:
    reason = judge("8.8.8.8", port) or ""
    assert reason.endswith(f"is refused on port {port} (below 1024): allow it with 8.8.8.8:{port} in {CALLBACK_ALLOW}")
    for entry in (f"8.8.8.8:{port}", f"8.0.0.0/8:{port}", f"hooks.example:{port}", "hooks.example", "HOOKS.example."):
        assert judge("8.8.8.8", port, allow=entry) is None, entry
    for entry in ("8.8.8.8", "8.0.0.0/8", "8.8.8.8:8080", "hooks.example:8080", "example", "other.example"):
        assert judge("8.8.8.8", port, allow=entry) == reason, entry


def test_a_low_port_is_named_as_a_url_writes_it() -> None:
    assert f"allow it with [2600::1]:25 in {CALLBACK_ALLOW}" in (judge("2600::1", 25) or "")
    assert judge("2600::1", 25, allow="[2600::1]:25") is None


@pytest.mark.parametrize(("address", "inner"), CARRIERS.items())
def test_an_address_of_ipv4_in_one_of_ipv6_is_judged_by_itself(address: str, inner: str) -> None:
    assert f"{address} (hooks.example) contains {inner}, which is a " in (judge(address) or "")
    assert judge(address, allow=f"{inner} 8.8.8.8") is None
    assert judge(address, allow="::/0") is not None
    assert "is denied by entry 1" in (judge(address, allow=inner, deny=inner) or "")


@pytest.mark.parametrize(
    "address", ["::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2002:808:808::1", "2001:0:808:808::f7f7:f7f7"]
)
def test_a_public_address_in_one_of_ipv6_is_allowed(address: str) -> None:
    assert judge(address) is None


def test_a_zone_needs_an_entry_also_with_a_public_address() -> None:
    for address in ("fe80::1%eth0", "2600::1%2"):
        assert "is an address with a zone" in (judge(address) or "")
    assert judge("fe80::1%eth0", allow="fe80::/10") is None


def test_an_entry_with_a_port_allows_that_port_only() -> None:
    assert judge("10.1.2.3", 8080, allow="10.1.2.3:8080") is None
    assert judge("10.1.2.3", 8081, allow="10.1.2.3:8080") is not None
    assert judge("10.1.2.3", 443, allow="hooks.example:8443") is not None
    assert judge("10.1.2.3", 80, allow="hooks.example:80") is None


def test_a_name_that_is_allowed_may_have_any_address() -> None:
    for address in NOT_PUBLIC:
        assert judge(address, allow="hooks.example") is None
        assert judge(address, allow="hooks.example", host="Hooks.Example.") is None
        assert judge(address, allow="hooks.example", host="a.hooks.example") is not None


@pytest.mark.parametrize("entry", ["10.1.0.0/16", "10.1.2.3", "10.1.2.3:8080", "hooks.example", "hooks.example:8080"])
def test_deny_wins(entry: str) -> None:
    reason = judge("10.1.2.3", 8080, allow="10.0.0.0/8 hooks.example", deny=f"192.0.2.0/24 {entry}")
    assert reason == f"10.1.2.3 (hooks.example) is denied by entry 2 of {CALLBACK_DENY}, '{entry}'"
    assert judge("10.9.9.9", 8080, allow="10.0.0.0/8", deny="10.1.0.0/16") is None
    if entry.endswith("8080"):
        assert judge("10.1.2.3", 8081, allow="10.0.0.0/8", deny=entry) is None


def test_a_public_address_may_be_denied() -> None:
    assert "is denied" in (judge("8.8.8.8", deny="8.8.8.0/24") or "")
    assert "is denied" in (judge("2600::1", deny="::/0") or "")


def test_of_a_mixed_answer_the_allowed_addresses_stay_in_their_order() -> None:
    found = ["10.0.0.1", "2600::1", "127.0.0.1", "8.8.8.8"]
    assert PUBLIC.select(found, "hooks.example", 443) == ("2600::1", "8.8.8.8")
    with pytest.raises(AddressForbidden, match=r"^10\.0\.0\.1 \(hooks\.example\) is a private address") as caught:
        PUBLIC.select(["10.0.0.1", "127.0.0.1"], "hooks.example", 443)
    assert caught.value.address == "10.0.0.1"


# --- peers ------------------------------------------------------------------------------------------------------


def test_peers_may_be_anywhere_unless_a_list_says_otherwise() -> None:
    assert AddressRules.of_peers([], []) is None
    only = AddressRules.of_peers(["10.99.0.0/16", "hub.example"], ["10.99.9.0/24"])
    assert only is not None
    assert [only.judge(address, "b", 80) for address in ("10.99.0.7", "::ffff:10.99.0.7")] == [None, None]
    assert only.judge("192.0.2.1", "hub.example", 22) is None
    reason = only.judge("8.8.8.8", "b", 443)
    assert reason == f"8.8.8.8 (b) is not in {PEER_ALLOW}: add it there, or correct the URL"
    assert "denied by entry 1 of EVENTD_PEER_DENY" in (only.judge("10.99.9.1", "b", 443) or "")
    but = AddressRules.of_peers([], ["169.254.0.0/16"])
    assert but is not None
    assert [but.judge(address, "b", 22) for address in ("127.0.0.1", "10.0.0.1", "8.8.8.8", "fe80::1%2")] == [None] * 4
    assert but.judge("169.254.169.254", "b", 443) is not None


def test_refusals_name_the_variables_of_the_settings() -> None:
    names = ("callback_allow", "callback_deny", "peer_allow", "peer_deny")
    assert [variable_of(name) for name in names] == [CALLBACK_ALLOW, CALLBACK_DENY, PEER_ALLOW, PEER_DENY]
    assert set(names) <= Settings.model_fields.keys()


# --- entries ----------------------------------------------------------------------------------------------------

FORMS = "write an address, a network or a host name, each with or without a port, such as 10.1.2.3, 10.0.0.0/8, "


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("10.1.2.3/8", "has bits beyond its prefix: write 10.0.0.0/8"),
        ("fd00::1/8", "has bits beyond its prefix: write fd00::/8"),
        ("10.0.0.0/255.0.0.0", "is not valid: write 10.0.0.0/8"),
        *[
            (text, f"is not valid: {FORMS}")
            for text in (
                "https://a",
                "a b",
                "a:",
                ":80",
                "",
                "*",
                "*.a",
                "10.0.0.0/33",
                "a/8",
                "[a]:80",
                "[10.0.0.1]:80",
            )
        ],
        *[
            (text, f"is not valid: {FORMS}")
            for text in ("[fd00::1", "fd00::1]:80", "[]:80", "a:b", "a@b", "10.0.0.256")
        ],
        ("a:0", "has a port that is not between 1 and 65535"),
        ("10.0.0.1:65536", "has a port that is not between 1 and 65535"),
        ("fe80::1%eth0", "has a zone: leave out the % and what follows it"),
        ("[fe80::1%eth0]:80", "has a zone: leave out the % and what follows it"),
        ("127.1", "is an address in an unusual notation: write 127.0.0.1"),
        ("0x7f000001:80", "is an address in an unusual notation: write 127.0.0.1"),
    ],
)
def test_an_entry_that_cannot_be_read_is_named_with_its_number_and_what_to_write(text: str, message: str) -> None:
    for allow in (True, False):
        with pytest.raises(Invalid) as caught:
            parse_entries(["10.0.0.0/8", text], allow=allow)
        assert str(caught.value).startswith(f"entry 2, {text!r}, {message}")


@pytest.mark.parametrize(
    "text", ["::ffff:10.0.0.0/104", "64:ff9b::/96", "2002::/16", "2001:0:a00::/40", "[2002::1]:80"]
)
def test_an_entry_that_could_never_allow_anything_is_refused_and_may_deny(text: str) -> None:
    with pytest.raises(Invalid, match="would have no effect: such an address is judged by the IPv4 address"):
        parse_entries([text], allow=True)
    assert len(parse_entries([text], allow=False)) == 1
    assert "is denied" in (judge("::ffff:8.8.8.8", deny="::ffff:0:0/96") or "")


def test_entries_are_read_with_and_without_brackets() -> None:
    found = parse_entries(["fd00::1", "[fd00::1]", "[fd00::1]:80", "[fd00::/8]:80", " a.example:1 ", "_x"], allow=True)
    assert [(str(entry.network or entry.host), entry.port) for entry in found] == [
        *[("fd00::1/128", 0), ("fd00::1/128", 0), ("fd00::1/128", 80), ("fd00::/8", 80), ("a.example", 1), ("_x", 0)]
    ]


# --- literal addresses ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "127.1", "0x7f000001", "2130706433", "0177.0.0.1", "0x7F.1", "017700000001", "127.0.1"),
        *("127.0.0.1.", "[::ffff:127.0.0.1]", "[::1]", "[::]", "[64:ff9b::7f00:1]", "[fe80::1%25eth0]"),
        *("[fe80::1%eth0]", "１２７.0.0.1"),
    ],
)
def test_a_forbidden_address_in_a_url_is_refused_in_any_notation(host: str) -> None:
    for url in (f"https://{host}/hook", f"https://user:pw@{host}:8443/hook?a=b"):
        reason = PUBLIC.forbidden_url(url)
        assert reason is not None
        assert "EVENTD_CALLBACK_ALLOW" in reason
        assert "pw" not in reason


@pytest.mark.parametrize(
    "url",
    [
        *("https://8.8.8.8", "https://[2600::1]:8443/x", "https://134744072/", "https://localhost/", "https://a:8022/"),
        *(
            "https://1.2.3.4.5/",
            "https://127.0.0.256/",
            "https://0x/",
            "https://08.1/",
            "https://[::1/",
            "https://a:b/",
        ),
        *("", "x"),
    ],
)
def test_a_public_address_a_name_or_what_is_no_url_is_not_refused_here(url: str) -> None:
    assert PUBLIC.forbidden_url(url) is None


def test_the_port_of_a_literal_counts_and_that_of_the_scheme() -> None:
    assert "port 22 " in (PUBLIC.forbidden_url("https://8.8.8.8:22/") or "")
    assert "port 80 " in (PUBLIC.forbidden_url("http://8.8.8.8/") or "")
    rules = AddressRules.of_callbacks(["127.0.0.1:80"], [])
    assert rules.forbidden_url("http://127.1/") is None


def test_a_port_that_no_entry_allows_is_refused_before_the_name_is_looked_up() -> None:
    told = "a.example is refused on port 80 (below 1024): allow it with a.example:80 in EVENTD_CALLBACK_ALLOW"
    assert PUBLIC.forbidden_url("http://a.example/") == told
    assert PUBLIC.forbidden_url("https://user:pw@a.example:22/") == told.replace("80", "22")
    for entry in ("a.example", "a.example:80", "A.example.", "10.0.0.0/8:80", "0.0.0.0/0:80"):
        assert AddressRules.of_callbacks([entry], []).forbidden_url("http://a.example/") is None, entry
    for entry in ("a.example:81", "b.example", "10.0.0.0/8", "10.0.0.0/8:81"):
        assert AddressRules.of_callbacks([entry], []).forbidden_url("http://a.example/") == told, entry


# --- properties: Python's own tables and parsers judge the same ---------------------------------------------------

BITS32, BITS128 = st.integers(0, 2**32 - 1), st.integers(0, 2**128 - 1)
NEAR = st.sampled_from(list(NOT_PUBLIC)).map(ipaddress.ip_address)


@given(st.one_of(BITS32.map(ipaddress.IPv4Address), NEAR.filter(lambda address: address.version == 4)))
def test_an_address_of_ipv4_is_public_if_python_finds_it_global(address: ipaddress.IPv4Address) -> None:
    expected = address.is_global and not address.is_multicast and address != CLOUD
    for network in ("192.0.0.0/24", "192.88.99.0/24"):  # of which some are global
        expected = expected and address not in ipaddress.ip_network(network)
    assert (PUBLIC.judge(str(address), "h", 443) is None) is expected


@given(
    st.one_of(
        BITS128.map(ipaddress.IPv6Address),
        st.integers(0x2000 << 112, (0x4000 << 112) - 1).map(ipaddress.IPv6Address),
        st.integers(0, 2**112 - 1).map(lambda bits: ipaddress.IPv6Address(0x2001 << 112 | bits >> 9)),
        NEAR.filter(lambda address: address.version == 6),
    )
)
def test_an_address_of_ipv6_that_is_public_is_global_by_python_or_carries_one_that_is(
    address: ipaddress.IPv6Address,
) -> None:
    if PUBLIC.judge(str(address), "h", 443) is not None:
        return
    carried = address.ipv4_mapped or address.sixtofour or (address.teredo or (None, None))[1]
    if carried is None and address in ipaddress.ip_network("64:ff9b::/96"):
        carried = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    seen = carried or address
    assert seen.is_global
    assert not any((seen.is_multicast, seen.is_loopback, seen.is_link_local, seen.is_private, seen.is_reserved))


@given(BITS32.map(ipaddress.IPv4Address), st.integers(1, 65535))
def test_all_that_carries_an_address_is_judged_as_the_address(inner: ipaddress.IPv4Address, port: int) -> None:
    allowed = PUBLIC.judge(str(inner), "h", port) is None
    bits = int(inner)
    for carrier in (0xFFFF << 32 | bits, 0x64FF9B << 96 | bits, 0x2002 << 112 | bits << 80 | 1):
        address = ipaddress.IPv6Address(carrier)
        assert (PUBLIC.judge(str(address), "h", port) is None) is allowed, address
    server = int(ipaddress.IPv4Address("8.8.8.8"))
    teredo = ipaddress.IPv6Address(0x20010000 << 96 | server << 64 | (~bits & 0xFFFFFFFF))
    assert teredo.teredo == (ipaddress.IPv4Address("8.8.8.8"), inner)
    assert (PUBLIC.judge(str(teredo), "h", port) is None) is allowed


@given(BITS32, st.integers(0, 32), BITS32, st.integers(1, 65535))
def test_a_network_allows_its_addresses_and_denies_them(base: int, prefix: int, bits: int, port: int) -> None:
    network = ipaddress.ip_network((base, prefix), strict=False)
    address = ipaddress.IPv4Address(bits)
    allowing = AddressRules.of_callbacks([str(network)], [])
    denying = AddressRules.of_callbacks(["h", str(network)], [str(network)])
    may = port == 443 or port >= 1024
    plain = PUBLIC.judge(str(address), "h", port) is None
    assert (allowing.judge(str(address), "h", port) is None) is (may and (address in network or plain))
    assert (denying.judge(str(address), "h", port) is None) is (address not in network)


NUMBERS = st.one_of(st.integers(0, 300), BITS32, st.integers(2**32 - 2, 2**32 + 2), st.just(65536), st.just(16777216))
PARTS = st.builds(
    lambda number, form: form.format(number), NUMBERS, st.sampled_from(["{}", "0{:o}", "0x{:x}", "00{:o}"])
)


@given(st.lists(PARTS, min_size=1, max_size=5).map(".".join))
@example("0")
@example("00")
@example("0x0")
@example("1.2.3.256")
@example("256.1")
def test_an_odd_notation_is_read_as_the_system_reads_it(text: str) -> None:
    try:
        expected = ipaddress.IPv4Address(socket.inet_aton(text))
    except OSError:
        expected = None
    assert loose_ipv4(text) == expected


@given(st.text(max_size=40))
def test_any_text_is_a_literal_or_none_and_an_entry_or_invalid(text: str) -> None:
    literal_address(text)
    PUBLIC.forbidden_url(f"https://{text}/")
    with suppress(Invalid):
        assert len(parse_entries([text], allow=True)) == 1
