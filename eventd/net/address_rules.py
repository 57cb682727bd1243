"""Which addresses outgoing connections may lead to: without an entry only public ones, so that a URL that someone else
chose leads to nothing inside the network.

Pure.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from eventd.errors import Invalid
from eventd.net.literal_address import IpAddress, literal_address, loose_ipv4
from eventd.text.hosts import is_host_name
from eventd.text.quoting import quoted

CALLBACK_ALLOW: Final = "EVENTD_CALLBACK_ALLOW"
CALLBACK_DENY: Final = "EVENTD_CALLBACK_DENY"
PEER_ALLOW: Final = "EVENTD_PEER_ALLOW"
PEER_DENY: Final = "EVENTD_PEER_DENY"
LOWEST_PORT: Final = 1024
"""Lower ports belong to services of the system; except for `HTTPS_PORT`, each of them needs an entry."""
HTTPS_PORT: Final = 443
MOST_JUDGED: Final = 1024
"""Number of judgements that are remembered: many requests go to one receiver."""

_WITH_PORT: Final = re.compile(r"(\[[^\[\]]+\]|[^\[\]:]+):([0-9]{1,9})")
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_FORMS: Final = (
    "write an address, a network or a host name, each with or without a port, such as 10.1.2.3, 10.0.0.0/8,"
    " hooks.example:8443 or [fd00::1]:8443"
)


def _networks(*rows: tuple[str, str]) -> list[tuple[_Network, str]]:
    return [(ipaddress.ip_network(text), f"{words} ({text})") for text, words in rows]


_NOT_PUBLIC_V4: Final = _networks(
    ("127.0.0.0/8", "a loopback address"),
    ("10.0.0.0/8", "a private address"),
    ("172.16.0.0/12", "a private address"),
    ("192.168.0.0/16", "a private address"),
    ("100.64.0.0/10", "a shared address of a provider's network"),
    ("169.254.0.0/16", "a link-local address, where clouds serve metadata"),
    ("168.63.129.16/32", "an address where a cloud serves metadata"),
    ("0.0.0.0/8", "an address of this host"),
    ("192.0.0.0/24", "an address reserved for protocols"),
    ("192.88.99.0/24", "an address of relays to IPv6"),
    ("192.0.2.0/24", "an address for documentation"),
    ("198.51.100.0/24", "an address for documentation"),
    ("203.0.113.0/24", "an address for documentation"),
    ("198.18.0.0/15", "an address for benchmarks"),
    ("224.0.0.0/4", "a multicast address"),
    ("255.255.255.255/32", "the broadcast address"),
    ("240.0.0.0/4", "a reserved address"),
)
_NOT_PUBLIC_V6: Final = _networks(
    ("::1/128", "the loopback address"),
    ("::/128", "the unspecified address"),
    ("fe80::/10", "a link-local address"),
    ("fc00::/7", "a private address"),
    ("ff00::/8", "a multicast address"),
    ("2001::/23", "an address reserved for protocols"),
    ("2001:db8::/32", "an address for documentation"),
    ("3fff::/20", "an address for documentation"),
)
_PUBLIC_V6: Final = ipaddress.IPv6Network("2000::/3")
_MAPPED: Final = ipaddress.IPv6Network("::ffff:0:0/96")
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_SIX_TO_FOUR: Final = ipaddress.IPv6Network("2002::/16")
_TEREDO: Final = ipaddress.IPv6Network("2001::/32")
_CARRIERS: Final = (_MAPPED, _NAT64, _SIX_TO_FOUR, _TEREDO)


class UnlistedPolicy(Enum):
    """Whether connections may lead to an address that is in none of the lists."""

    PUBLIC = "public"
    """Public addresses are allowed on port 443 and ports from 1024; everything else is refused."""
    REFUSED = "refused"
    ALLOWED = "allowed"


class AddressForbidden(Exception):
    """No connection may lead to the `address`; the message says why, and which setting decides."""

    def __init__(self, address: str, message: str) -> None:
        super().__init__(message)
        self.address = address


class AddressEntry(NamedTuple):
    """One entry of a list, as it was written: a network or a host name, and a port, 0 if it names none."""

    text: str
    network: _Network | None
    host: str
    port: int

    def names(self, host: str, port: int) -> bool:
        """Return whether this entry is the name of a URL's host, in lower case, and includes the port."""
        return bool(self.host) and self.host == host and self.port in (0, port)

    def contains(self, address: IpAddress) -> bool:
        """Return whether this entry is a network with the address in it."""
        return self.network is not None and address in self.network


def parse_entries(entries: Iterable[str], *, allow: bool) -> tuple[AddressEntry, ...]:
    """Return the entries of a list that allows or denies addresses.

    Raises `Invalid`, with the number of the entry and the entry.
    """
    return tuple(_parse_entry(number, text.strip(), allow=allow) for number, text in enumerate(entries, start=1))


def _parse_entry(number: int, text: str, *, allow: bool) -> AddressEntry:
    where = f"entry {number}, {quoted(text)},"
    with_port = _WITH_PORT.fullmatch(text)
    body, port = (with_port[1], int(with_port[2])) if with_port else (text, 0)
    if with_port and not 1 <= port <= 65535:
        raise Invalid(f"{where} has a port that is not between 1 and 65535")
    if body.startswith("[") and body.endswith("]"):
        body = body[1:-1]
        if ":" not in body:
            raise Invalid(f"{where} is not valid: {_FORMS}")
    network = _parse_network(where, body)
    if network is None:
        return AddressEntry(text, None, _parse_host(where, body), port)
    if allow and isinstance(network, ipaddress.IPv6Network) and any(network.subnet_of(each) for each in _CARRIERS):
        raise Invalid(
            f"{where} would have no effect: such an address is judged by the IPv4 address in it, so allow that one"
        )
    return AddressEntry(text, network, "", port)


def _parse_network(where: str, body: str) -> _Network | None:
    if "%" in body:
        raise Invalid(f"{where} has a zone: leave out the % and what follows it")
    address, slash, prefix = body.partition("/")
    try:
        network = ipaddress.ip_network(body, strict=False)
        begin = ipaddress.ip_address(address)
    except ValueError:
        return None
    if slash and not prefix.isdigit():  # a mask
        raise Invalid(f"{where} is not valid: write {network}")
    if network.network_address != begin:
        raise Invalid(f"{where} has bits beyond its prefix: write {network}")
    return network


def _parse_host(where: str, body: str) -> str:
    if (address := loose_ipv4(body)) is not None:
        raise Invalid(f"{where} is an address in an unusual notation: write {address}")
    if not is_host_name(body):
        raise Invalid(f"{where} is not valid: {_FORMS}")
    return normal_host(body)


def normal_host(host: str) -> str:
    """Return a host name as names are compared: in lower case, without the dot at its end."""
    return host.lower().removesuffix(".")


@dataclass(frozen=True, slots=True)
class AddressRules:
    """Judges addresses by two lists, of which `deny` wins, and addresses that are in neither list by `unlisted`.

    Addresses are judged after the look-up of a name. `allow_setting` and `deny_setting` are named in refusals. `hint`:
    whose settings these are, where it is not obvious.
    """

    allow: tuple[AddressEntry, ...]
    deny: tuple[AddressEntry, ...]
    allow_setting: str
    deny_setting: str
    unlisted: UnlistedPolicy
    hint: str = ""
    _judged: dict[tuple[str, str, int], str | None] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of_callbacks(cls, allow: Iterable[str], deny: Iterable[str]) -> AddressRules:
        """Return the rules for URLs that other people may choose: public addresses, and the entries of `allow`.

        Raises `Invalid` for an entry that cannot be read.
        """
        lists = parse_entries(allow, allow=True), parse_entries(deny, allow=False)
        return cls(*lists, CALLBACK_ALLOW, CALLBACK_DENY, UnlistedPolicy.PUBLIC)

    @classmethod
    def of_peers(cls, allow: Iterable[str], deny: Iterable[str]) -> AddressRules | None:
        """Return the rules for peers: only the entries of `allow`, or every address if `allow` is empty.

        None if both lists are. Raises `Invalid` for an entry that cannot be read.
        """
        allowed, denied = parse_entries(allow, allow=True), parse_entries(deny, allow=False)
        if not allowed and not denied:
            return None
        return cls(
            allowed, denied, PEER_ALLOW, PEER_DENY, UnlistedPolicy.REFUSED if allowed else UnlistedPolicy.ALLOWED
        )

    def judge(self, address: str, host: str, port: int) -> str | None:
        """Return why no connection for a URL's host and port may lead to this address; None if it is allowed.

        `host` is as in the URL, in any case and without brackets; `address` may be the same.
        """
        key = address, host, port
        if key not in self._judged:
            while len(self._judged) >= MOST_JUDGED:
                del self._judged[next(iter(self._judged))]
            self._judged[key] = self._judge(address, host, port)
        return self._judged[key]

    def _judge(self, address: str, host: str, port: int) -> str | None:
        ip, name = ipaddress.ip_address(address), normal_host(host)
        shown = address if name == address.lower() else f"{address} ({host})"
        carried = _carried(ip)
        for number, entry in enumerate(self.deny, start=1):
            if self._covers(entry, (ip, *carried), name, port):
                return f"{shown} is denied by entry {number} of {self.deny_setting}, {quoted(entry.text)}"
        if any(entry.names(name, port) for entry in self.allow):
            return None
        for each in carried or (ip,):
            reason = self._judge_unnamed(each, port, has_zone="%" in address)
            if reason is not None:
                return f"{shown} {f'contains {each}, which ' if carried else ''}{reason}"
        return None

    def select(self, addresses: Sequence[str], host: str, port: int) -> tuple[str, ...]:
        """Return those of a host's addresses, at least one, that are allowed, in their order.

        Raises `AddressForbidden` if none is.
        """
        reasons = [self.judge(address, host, port) for address in addresses]
        allowed = tuple(address for address, reason in zip(addresses, reasons, strict=True) if reason is None)
        if not allowed:
            raise AddressForbidden(addresses[0], reasons[0] or "")
        return allowed

    def forbidden_url(self, url: str) -> str | None:
        """Return why the rules forbid every connection for a URL.

        None if one may be allowed, or if the URL is invalid. A host that is an address, in any notation, is judged
        here. A name is judged by its addresses when a connection is made, and here only by its port: whether any entry
        allows that one.
        """
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port or (HTTPS_PORT if parts.scheme == "https" else 80)
        except ValueError:
            return None
        if not host:
            return None
        address = literal_address(host)
        return self._judge_port(host, port) if address is None else self.judge(str(address), host, port)

    def _judge_port(self, host: str, port: int) -> str | None:
        """Return why a port is refused whatever address the host name resolves to; None if an address decides."""
        if self.unlisted is not UnlistedPolicy.PUBLIC or port >= LOWEST_PORT or port == HTTPS_PORT:
            return None
        name = normal_host(host)
        if any(entry.names(name, port) or (not entry.host and entry.port == port) for entry in self.allow):
            return None
        return f"{host} {_port_refused(port, f'{host}:{port}', self.allow_setting)}"

    @staticmethod
    def _covers(entry: AddressEntry, addresses: Iterable[IpAddress], name: str, port: int) -> bool:
        in_network = entry.port in (0, port) and any(entry.contains(address) for address in addresses)
        return in_network or entry.names(name, port)

    def _judge_unnamed(self, address: IpAddress, port: int, *, has_zone: bool) -> str | None:
        """Return why an address that no entry allows by name is refused, as the end of a sentence."""
        entries = [entry for entry in self.allow if entry.contains(address)]
        if any(entry.port == port for entry in entries):
            return None
        is_listed = any(entry.port == 0 for entry in entries)
        if self.unlisted is not UnlistedPolicy.PUBLIC:
            is_refused = self.unlisted is UnlistedPolicy.REFUSED and not is_listed
            return f"is not in {self.allow_setting}: add it there, or correct the URL" if is_refused else None
        why = "" if is_listed else ("is an address with a zone" if has_zone else _not_public(address))
        if why:
            return f"{why}: allow it with {self.allow_setting} if connections may lead there"
        if port < LOWEST_PORT and port != HTTPS_PORT:
            entry = f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
            return _port_refused(port, entry, self.allow_setting)
        return None


def _port_refused(port: int, entry: str, setting: str) -> str:
    return f"is refused on port {port} (below {LOWEST_PORT}): allow it with {entry} in {setting}"


def _not_public(address: IpAddress) -> str:
    """Return why an address is not public, as the end of a sentence; empty if it is."""
    table = _NOT_PUBLIC_V4 if address.version == 4 else _NOT_PUBLIC_V6
    for network, words in table:
        if address in network:
            return f"is {words}"
    return "" if address.version == 4 or address in _PUBLIC_V6 else f"is not in {_PUBLIC_V6}, the public addresses"


def _carried(address: IpAddress) -> tuple[ipaddress.IPv4Address, ...]:
    """Return the IPv4 addresses to which traffic for an IPv6 address is translated or tunnelled; empty without any."""
    if isinstance(address, ipaddress.IPv4Address):
        return ()
    if address in _MAPPED or address in _NAT64:
        return (ipaddress.IPv4Address(int(address) & 0xFFFFFFFF),)
    if address in _SIX_TO_FOUR:
        return (ipaddress.IPv4Address(int(address) >> 80 & 0xFFFFFFFF),)
    if address in _TEREDO:  # of the server, and of the client, whose bits are inverted
        return (
            ipaddress.IPv4Address(int(address) >> 64 & 0xFFFFFFFF),
            ipaddress.IPv4Address(~int(address) & 0xFFFFFFFF),
        )
    return ()
